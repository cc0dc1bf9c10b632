"""The HTTP endpoints of an SGLang server that opsctl uses, over httpx."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Literal, Self

import httpx

from opsctl.sglang.metrics import parse_metrics
from opsctl.sglang.releases import names
from opsctl.sglang.spec import SpecCounters

Cause = Literal["refused", "timeout", "reset", "status", "malformed", "failed"]

# Of server arguments, which /server_info repeats in full (http_server.py:624 and again in
# internal_states, scheduler.py:3532): never let them out.
_SECRETS: Final = frozenset({"api_key", "admin_api_key", "ssl_keyfile_password"})
_BODY_LIMIT: Final = 300

# One name each in every release that was read; /server_info has an older one.
(_MODELS,), (_CHAT,) = names("endpoints", "models"), names("endpoints", "chat")
(_GENERATE,), (_METRICS,) = names("endpoints", "generate"), names("endpoints", "metrics")


class ServerError(Exception):
    """The server gave no usable answer. `cause` is stable; `status` is None without one."""

    def __init__(
        self, message: str, *, cause: Cause, status: int | None = None, body: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.cause: Cause = cause
        self.status = status
        self.body = body


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """Of `/v1/chat/completions`, which shows no speculation counters in 0.5.11 and 0.5.12."""

    text: str
    finish_reason: str
    completion_tokens: int | None
    prompt_tokens: int | None
    latency_s: float
    reasoning: str = ""  # a reasoning parser moves its part of the text here


@dataclass(frozen=True, slots=True)
class GenerateAnswer:
    """Of the native `/generate`."""

    text: str
    finish_reason: str
    completion_tokens: int | None
    prompt_tokens: int | None
    latency_s: float
    meta: SpecCounters
    output_ids: tuple[int, ...] = ()


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

    def __post_init__(self) -> None:
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        # trust_env off: a proxy variable or ~/.netrc must not come between us and the host.
        self._http = httpx.Client(
            base_url=self.base_url,
            headers=headers,
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
            raise self._malformed(_CHAT, answer, error) from None

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
        try:
            meta = answer["meta_info"]
            reason = meta.get("finish_reason")
            return GenerateAnswer(
                text=answer.get("text") or "",
                # {"type": "length", "length": 32}; a plain string in old versions
                finish_reason=str(reason["type"] if isinstance(reason, dict) else reason or ""),
                completion_tokens=meta.get("completion_tokens"),
                prompt_tokens=meta.get("prompt_tokens"),
                latency_s=latency,
                meta=SpecCounters.from_meta_info(meta, self.version),
                output_ids=tuple(answer.get("output_ids") or ()),
            )
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            raise self._malformed(_GENERATE, answer, error) from None

    def metrics(self) -> dict[str, float]:
        """The `sglang:*` gauges and counters (needs `--enable-metrics`); see `parse_metrics`."""
        text = self._request("GET", _METRICS).text
        try:
            return parse_metrics(text)
        except ValueError as error:
            raise self._malformed(_METRICS, text, error) from None

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
            raise self._malformed(path, response.text, error) from None
        if not isinstance(answer, dict):
            raise self._malformed(path, answer, TypeError("not a JSON object"))
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
        try:
            response = self._http.request(
                method, path, json=body, timeout=self.timeout if timeout is None else timeout
            )
        except httpx.ConnectError as error:
            raise self._error(f"{what}: cannot connect ({error})", "refused") from None
        except httpx.TimeoutException:
            seconds = self.timeout if timeout is None else timeout
            raise self._error(f"{what}: no answer within {seconds:g} s", "timeout") from None
        except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
            reason = str(error) or "the connection was reset"
            raise self._error(f"{what}: ended before its answer did ({reason})", "reset") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._error(f"{what}: {error}", "failed") from None
        if response.is_success:
            return response
        text = self._short(response.text)
        raise self._error(
            f"{what}: HTTP {response.status_code}: {text}",
            "status",
            status=response.status_code,
            body=text,
        )

    def _malformed(self, path: str, answer: object, error: Exception) -> ServerError:
        return self._error(
            f"{path}: unexpected answer ({type(error).__name__})",
            "malformed",
            status=200,
            body=self._short(str(answer)),
        )

    def _error(
        self, message: str, cause: Cause, *, status: int | None = None, body: str = ""
    ) -> ServerError:
        return ServerError(self._hide(message), cause=cause, status=status, body=self._hide(body))

    def _short(self, text: str) -> str:
        text = " ".join(self._hide(text).split())
        return text if len(text) <= _BODY_LIMIT else text[:_BODY_LIMIT] + "..."

    def _hide(self, text: str) -> str:
        return text.replace(self.api_key, "[api key]") if self.api_key else text


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_secrets(item) for key, item in value.items() if key not in _SECRETS}
    if isinstance(value, list):
        return [_without_secrets(item) for item in value]
    return value
