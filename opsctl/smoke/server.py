"""What a server says of itself that decides which requests can show something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

# SGLang's default where it says nothing (server_args.py: decode_log_interval).
_CHUNK: Final = 8192


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Of /server_info. Sizes of batches are requests; `context` and `chunk` are tokens.

    `captured` are the batch sizes with a CUDA graph, ascending; none where graphs are off.
    """

    algorithm: str = ""
    version: str = ""
    draft_tokens: int | None = None  # the most tokens that a verify step can yield
    captured: tuple[int, ...] = ()
    most_running: int | None = None
    context: int | None = None
    chunk: int = _CHUNK
    capacity: int | None = None  # tokens that the KV pool holds

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> ServerFacts:
        states = info.get("internal_states")
        first = states[0] if isinstance(states, list) and states else None
        state: Mapping[str, Any] = first if isinstance(first, Mapping) else {}
        graphs = not info.get("disable_cuda_graph")
        most = state.get("effective_max_running_requests_per_dp") or info.get(
            "max_running_requests"
        )
        algorithm = str(info.get("speculative_algorithm") or "")
        width = info.get("speculative_num_draft_tokens") if algorithm else None
        return cls(
            algorithm=algorithm,
            version=str(info.get("version") or ""),
            draft_tokens=_whole(width),
            captured=_sizes(info.get("cuda_graph_bs")) if graphs else (),
            most_running=_whole(most),
            context=_whole(info.get("max_req_input_len")),
            chunk=_whole(info.get("chunked_prefill_size")) or _CHUNK,
            capacity=_whole(info.get("max_total_num_tokens")),
        )


@dataclass(frozen=True, slots=True)
class Rung:
    """So many requests at once, and why that many. Of a size that is padded, `spare` is how many
    rows its graph has left over."""

    at_once: int
    why: str
    spare: int = 0


def ladder(facts: ServerFacts, most: int) -> list[Rung]:
    """Batch sizes at which speculative decoding has broken, up to `most` at once.

    A captured size runs its own graph; one above the largest runs without; one between two is
    padded to the next. Each rung empties as its requests end, so every smaller batch is seen on the
    way down.
    """
    limit = min(most, facts.most_running or most)
    sizes = [size for size in facts.captured if size <= limit]
    wanted = {2: "the second request at once"}
    if sizes:
        wanted[sizes[-1]] = "the largest captured size"
        wanted[sizes[-1] + 1] = "above the largest captured size"
    else:
        wanted[min(4, limit)] = "a batch"
    rungs = [Rung(size, wanted[size]) for size in sorted(wanted) if 1 < size <= limit]
    gaps = [(low + 1, high) for low, high in pairwise(sizes) if high - low > 1]
    rungs += [
        Rung(size, "between captured sizes", spare=graph - size)
        for size, graph in sorted({*gaps[:1], *gaps[-1:]})
    ]
    return [*rungs, Rung(1, "down again")]


def padded(size: int, captured: Sequence[int]) -> bool:
    """Whether a batch of that size runs in the graph of a larger one."""
    return bool(captured) and size not in captured and size < max(captured)


def _sizes(value: object) -> tuple[int, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    return tuple(sorted(size for each in value if (size := _whole(each)) is not None))


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
