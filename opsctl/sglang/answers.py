"""What a server answers to a request, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsctl.sglang.faults import Faults
from opsctl.sglang.releases import names
from opsctl.sglang.spec import SpecCounters

(_GENERATE,) = names("endpoints", "generate")

# Of one output token: its likeliest alternatives as (token id, logprob), best first.
Top = tuple[tuple[int, float], ...]


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
    """Of the native `/generate`.

    `top` has one entry for each of `output_ids` where logprobs were asked for, else none;
    `arrivals` are the seconds from sending to each piece of a stream.
    """

    text: str
    finish_reason: str
    completion_tokens: int | None
    prompt_tokens: int | None
    latency_s: float
    meta: SpecCounters
    output_ids: tuple[int, ...] = ()
    cached_tokens: int | None = None
    top: tuple[Top, ...] = ()
    arrivals: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """Of `/v1/loads`, or of the older `/get_load`. `used_tokens` of the KV pool are neither free
    nor evictable: an idle server has none."""

    requests: int  # running and waiting
    used_tokens: int

    @classmethod
    def of(cls, load: Mapping[str, Any]) -> Load:
        if "num_reqs" in load:  # /get_load counts pending tokens in
            return cls(load["num_reqs"], load["num_tokens"] - load["num_pending_tokens"])
        running, waiting = load["num_running_reqs"], load["num_waiting_reqs"]
        return cls(running + waiting, load["num_used_tokens"])


def generate_answer(
    answer: Mapping[str, Any],
    latency: float,
    faults: Faults,
    version: str | None = None,
    *,
    output_ids: Sequence[int] | None = None,
    text: str | None = None,
    arrivals: Sequence[float] = (),
) -> GenerateAnswer:
    """From the JSON of `/generate`, or of the last piece of its stream. `output_ids` and `text`
    are given where a stream sent them in pieces.

    Raises:
        ServerError: it is not such an answer.
    """
    try:
        meta = answer["meta_info"]
        reason = meta.get("finish_reason")
        ids = answer.get("output_ids") or () if output_ids is None else output_ids
        return GenerateAnswer(
            text=(answer.get("text") or "") if text is None else text,
            # {"type": "length", "length": 32}; a plain string in old versions
            finish_reason=str(reason["type"] if isinstance(reason, dict) else reason or ""),
            completion_tokens=meta.get("completion_tokens"),
            prompt_tokens=meta.get("prompt_tokens"),
            latency_s=latency,
            meta=SpecCounters.from_meta_info(meta, version),
            output_ids=tuple(ids),
            cached_tokens=meta.get("cached_tokens"),
            top=tuple(_top(each) for each in meta.get("output_top_logprobs") or ()),
            arrivals=tuple(arrivals),
        )
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise faults.malformed(_GENERATE, answer, error) from None


def _top(alternatives: Sequence[Sequence[Any]]) -> Top:
    """SGLang gives [logprob, token id, text or null] for each."""
    return tuple((int(token), float(logprob)) for logprob, token, *_ in alternatives)
