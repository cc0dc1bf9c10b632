"""The HTTP endpoints of an SGLang server that opsctl uses, over httpx."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import httpx

from opsctl.sglang.answers import ChatAnswer, GenerateAnswer, Load, generate_answer
from opsctl.sglang.faults import Faults, ServerError, authorization
from opsctl.sglang.metrics import parse_metrics
from opsctl.sglang.releases import RELEASES, names, release_of

# Of server arguments, which /server_info repeats in full (http_server.py:624 and again in
# internal_states, scheduler.py:3532): never let them out.
_SECRETS: Final = frozenset({"api_key", "admin_api_key", "ssl_keyfile_password"})

# One name each in every release that was read; /server_info has an older one.
(_MODELS,), (_CHAT,) = names("endpoints", "models"), names("endpoints", "chat")
(_GENERATE,), (_METRICS,) = names("endpoints", "generate"), names("endpoints", "metrics")
(_HEALTH,) = names("endpoints", "health")


@dataclass(slots=True)
class SglangClient:
    """One server. Every method raises `ServerError` and nothing else.

    `timeout` is in seconds and bounds each wait for the server (connect, and any silence).
    `transport` stands in for the network in tests and for a forwarded port.
    """

    base_url: str
    api_key: str | None = field(default=None, repr=False)
    transport: httpx.BaseTransport | None = field(default=None, repr=False)
    timeout: float = 10.0
    version: str | None = None
    _http: httpx.Client = field(init=False, repr=False)
    _faults: Faults = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._faults = Faults(self.api_key)
        # trust_env off: a proxy variable or ~/.netrc must not come between us and the host.
        self._http = httpx.Client(
            base_url=self.base_url,
            headers=authorization(self.api_key),
            transport=self.transport,
            timeout=self.timeout,
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def models(self) -> tuple[str, ...]:
        """The served names. An answer says that the port listens, not that it is ready."""
        listing = self._json("GET", _MODELS).get("data")
        entries = listing if isinstance(listing, list) else []
        return tuple(str(entry["id"]) for entry in entries if isinstance(entry, dict))

    def server_info(self) -> dict[str, Any]:
        """Server arguments, version and `internal_states`, without their secrets."""
        path, *older = names("endpoints", "server_info")
        try:
            info = self._json("GET", path)
        except ServerError as error:
            if error.status != httpx.codes.NOT_FOUND or not older:
                raise
            info = self._json("GET", older[0])
        kept: dict[str, Any] = _without_secrets(info)
        if isinstance(kept.get("version"), str):
            self.version = kept["version"]
        return kept

    def chat(
        self, prompt: str, max_tokens: int, timeout: float, model: str = "default"
    ) -> ChatAnswer:
        """One greedy chat completion."""
        began = time.monotonic()
        answer = self._json(
            "POST",
            _CHAT,
            timeout=timeout,
            body={
                "model": model,
                "messages": [{"role": "user", "content": prompt}],
                "temperature": 0,
                "max_tokens": max_tokens,
            },
        )
        latency = time.monotonic() - began
        try:
            choice = answer["choices"][0]
            message = choice["message"]
            usage = answer.get("usage") or {}
            return ChatAnswer(
                text=message.get("content") or "",
                reasoning=message.get("reasoning_content") or "",
                finish_reason=choice.get("finish_reason") or "",
                completion_tokens=usage.get("completion_tokens"),
                prompt_tokens=usage.get("prompt_tokens"),
                latency_s=latency,
            )
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise self._faults.malformed(_CHAT, answer, error) from None

    def generate(self, prompt: str, max_new_tokens: int, timeout: float) -> GenerateAnswer:
        """One greedy native generation, whose own counters prove the verify path."""
        began = time.monotonic()
        answer = self._json(
            "POST",
            _GENERATE,
            timeout=timeout,
            body={
                "text": prompt,
                "sampling_params": {"temperature": 0, "max_new_tokens": max_new_tokens},
            },
        )
        latency = time.monotonic() - began
        return generate_answer(answer, latency, self._faults, self.version)

    def metrics(self) -> dict[str, float]:
        """The `sglang:*` gauges and counters (needs `--enable-metrics`); see `parse_metrics`."""
        text = self._request("GET", _METRICS).text
        try:
            return parse_metrics(text)
        except ValueError as error:
            raise self._faults.malformed(_METRICS, text, error) from None

    def loads(self) -> list[Load]:
        """Of each data-parallel rank, what it has under way. `version` says where it is told."""
        release = release_of(self.version) or RELEASES[0]
        path = release.endpoints["loads"][0].text
        text = self._request("GET", path).text
        try:
            answer = json.loads(text)
            each = answer["loads"] if isinstance(answer, dict) else answer
            return [Load.of(load) for load in each]
        except (KeyError, TypeError, ValueError) as error:
            raise self._faults.malformed(path, text, error) from None

    def healthy(self) -> bool:
        """What /health says: one token from a prefill, or of late any sign of the scheduler's."""
        try:
            self._request("GET", _HEALTH)
        except ServerError:
            return False
        return True

    def _json(
        self,
        method: str,
        path: str,
        *,
        timeout: float | None = None,
        body: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        response = self._request(method, path, timeout=timeout, body=body)
        try:
            answer = response.json()
        except ValueError as error:
            raise self._faults.malformed(path, response.text, error) from None
        if not isinstance(answer, dict):
            raise self._faults.malformed(path, answer, TypeError("not a JSON object"))
        return answer

    def _request(
        self,
        method: str,
        path: str,
        *,
        timeout: float | None = None,
        body: Mapping[str, object] | None = None,
    ) -> httpx.Response:
        what = f"{method} {path}"
        seconds = self.timeout if timeout is None else timeout
        with self._faults.told(what, seconds):
            response = self._http.request(method, path, json=body, timeout=seconds)
        if response.is_success:
            return response
        raise self._faults.status(what, response.status_code, response.text)


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_secrets(item) for key, item in value.items() if key not in _SECRETS}
    if isinstance(value, list):
        return [_without_secrets(item) for item in value]
    return value
