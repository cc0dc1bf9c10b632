"""What a server answers to a request, as values."""

from __future__ import annotations

import math
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
    waiting: int | None = None

    @classmethod
    def of(cls, load: Mapping[str, Any]) -> Load:
        """Raises KeyError or TypeError: it is none."""
        if "num_reqs" in load:  # /get_load counts pending tokens in
            pending, waiting = as_count(load["num_pending_tokens"]), load.get("num_waiting_reqs")
            return cls(
                as_count(load["num_reqs"]),
                as_count(load["num_tokens"]) - pending,
                None if waiting is None else as_count(waiting),
            )
        running, waiting = as_count(load["num_running_reqs"]), as_count(load["num_waiting_reqs"])
        return cls(running + waiting, as_count(load["num_used_tokens"]), waiting)


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
        return GenerateAnswer(
            text=as_text(answer.get("text")) if text is None else text,
            # {"type": "length", "length": 32}; a plain string in old versions
            finish_reason=as_text(reason["type"] if isinstance(reason, dict) else reason),
            completion_tokens=_known(meta, "completion_tokens"),
            prompt_tokens=_known(meta, "prompt_tokens"),
            latency_s=latency,
            meta=_counters(meta, version),
            output_ids=as_ids(answer.get("output_ids") if output_ids is None else output_ids),
            cached_tokens=_known(meta, "cached_tokens"),
            top=tuple(_top(each) for each in meta.get("output_top_logprobs") or ()),
            arrivals=tuple(arrivals),
        )
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise faults.malformed(_GENERATE, answer, error) from None


def as_text(value: object) -> str:
    """None is empty. Raises TypeError: it is none."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is no text")
    return value or ""


def as_count(value: object) -> int:
    """Raises TypeError: it is no whole number."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{type(value).__name__} is no whole number")
    return value


def as_ids(value: object) -> tuple[int, ...]:
    """Token ids; None is none. Raises TypeError: it is no list of whole numbers."""
    if value is not None and not isinstance(value, list | tuple):
        raise TypeError(f"{type(value).__name__} is no list of token ids")
    return tuple(as_count(token) for token in value or ())


def _known(meta: Mapping[str, Any], name: str) -> int | None:
    return None if meta.get(name) is None else as_count(meta[name])


def _counters(meta: Mapping[str, Any], version: str | None) -> SpecCounters:
    counters = SpecCounters.from_meta_info(meta, version)
    for value in (counters.accept_len, counters.accept_rate):
        if value is not None and not math.isfinite(value):
            raise ValueError("a counter is not finite")
    return counters


def _top(alternatives: Sequence[Sequence[Any]]) -> Top:
    """SGLang gives [logprob, token id, text or null] for each. One that is not finite would make
    any gap between two a near tie or none."""
    found = tuple((as_count(token), float(logprob)) for logprob, token, *_ in alternatives)
    if not all(math.isfinite(logprob) for _, logprob in found):
        raise ValueError("a logprob is not finite")
    return found
