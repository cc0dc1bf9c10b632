"""Many native generations at once, streamed or whole, over httpx's asynchronous client."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import anyio
import httpx

from opsctl.sglang.answers import GenerateAnswer, as_ids, as_text, generate_answer
from opsctl.sglang.faults import Faults, authorization
from opsctl.sglang.releases import names

(_GENERATE,) = names("endpoints", "generate")
(_TOKENIZE,) = names("endpoints", "tokenize")
_WHAT = f"POST {_GENERATE}"


@dataclass(frozen=True, slots=True)
class Generation:
    """One greedy request. `prompt` is text or token ids.

    `top_logprobs` of each output token are asked for; SGLang 0.5.12 refuses that under DFLASH
    (scheduler.py: validate_dflash_request). With `hang_up_after` the client goes away once so
    many tokens of the stream have come.
    """

    prompt: str | tuple[int, ...]
    max_new_tokens: int
    stream: bool = False
    top_logprobs: int = 0
    ignore_eos: bool = False
    hang_up_after: int | None = None

    @property
    def streamed(self) -> bool:
        return self.stream or self.hang_up_after is not None

    def body(self) -> dict[str, Any]:
        """As `/generate` takes it."""
        prompt = self.prompt if isinstance(self.prompt, str) else list(self.prompt)
        body: dict[str, Any] = {
            "text" if isinstance(prompt, str) else "input_ids": prompt,
            "sampling_params": {"temperature": 0, "max_new_tokens": self.max_new_tokens},
            "stream": self.streamed,
        }
        if self.ignore_eos:
            body["sampling_params"]["ignore_eos"] = True
        if self.top_logprobs:
            body |= {"return_logprob": True, "top_logprobs_num": self.top_logprobs}
        return body


@dataclass(slots=True)
class Completions:
    """One server, for any number of requests at once; `generate` raises `ServerError` alone.

    `transport` stands in for the network in tests and for a forwarded port.
    """

    base_url: str
    api_key: str | None = field(default=None, repr=False)
    transport: httpx.AsyncBaseTransport | None = field(default=None, repr=False)
    version: str | None = None
    _http: httpx.AsyncClient = field(init=False, repr=False)
    _faults: Faults = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._faults = Faults(self.api_key)
        self._http = httpx.AsyncClient(
            base_url=self.base_url,
            headers=authorization(self.api_key),
            transport=self.transport,
            limits=httpx.Limits(max_connections=None),  # how many at once is the caller's to say
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def generate(self, request: Generation, timeout: float) -> GenerateAnswer:
        """The answer, whole within `timeout` seconds; what came of it before hanging up."""
        began = time.monotonic()
        with self._faults.told(_WHAT, timeout), anyio.fail_after(timeout):
            asked = self._http.stream("POST", _GENERATE, json=request.body(), timeout=timeout)
            async with asked as response:
                if not response.is_success:
                    await response.aread()
                    raise self._faults.status(_WHAT, response.status_code, response.text)
                if not request.streamed:
                    await response.aread()
                    return self._whole(response, time.monotonic() - began)
                return await self._streamed(response, request, began)

    async def tokenize(self, text: str, timeout: float) -> tuple[int, ...]:
        """The token ids that the server makes of a prompt's text."""
        what = f"POST {_TOKENIZE}"
        with self._faults.told(what, timeout):
            response = await self._http.post(_TOKENIZE, json={"prompt": text}, timeout=timeout)
        if not response.is_success:
            raise self._faults.status(what, response.status_code, response.text)
        try:
            return as_ids(response.json()["tokens"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._faults.malformed(_TOKENIZE, response.text, error) from None

    def _whole(self, response: httpx.Response, latency: float) -> GenerateAnswer:
        try:
            answer = response.json()
        except ValueError as error:
            raise self._faults.malformed(_GENERATE, response.text, error) from None
        return generate_answer(answer, latency, self._faults, self.version)

    async def _streamed(
        self, response: httpx.Response, request: Generation, began: float
    ) -> GenerateAnswer:
        ids: list[int] = []
        text, arrivals, last = "", [], None
        async for piece in self._pieces(response):
            arrivals.append(time.monotonic() - began)
            try:
                text, last = _joined(text, ids, piece), piece
            except (TypeError, AttributeError) as error:
                raise self._faults.malformed(_GENERATE, piece, error) from None
            if request.hang_up_after is not None and len(ids) >= request.hang_up_after:
                break
        if last is None:
            raise self._faults.malformed(_GENERATE, "", ValueError("an empty stream"))
        latency = time.monotonic() - began
        return generate_answer(
            last, latency, self._faults, self.version, output_ids=ids, text=text, arrivals=arrivals
        )

    async def _pieces(self, response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
        """The JSON of each event; an error within the stream is one as well."""
        async for line in response.aiter_lines():
            data = line.removeprefix("data:").strip()
            if not line.startswith("data:") or data == "[DONE]":
                continue
            try:
                piece = json.loads(data)
            except ValueError as error:
                raise self._faults.malformed(_GENERATE, data, error) from None
            if not isinstance(piece, dict) or "meta_info" not in piece:
                status = httpx.codes.INTERNAL_SERVER_ERROR
                raise self._faults.status(f"{_WHAT}, in its stream", status, data)
            yield piece


def _joined(text: str, ids: list[int], piece: dict[str, Any]) -> str:
    """All text so far; `ids` grows. A piece holds everything so far, or what is new alone
    (--incremental-streaming-output), which its count of tokens tells.

    Raises TypeError or AttributeError: it is no piece of an answer."""
    new, fresh = as_ids(piece.get("output_ids")), as_text(piece.get("text"))
    whole = len(new) == piece["meta_info"].get("completion_tokens")
    ids[:] = new if whole else [*ids, *new]
    return fresh if whole else text + fresh
