"""Acceptance and throughput over a span of decode lines."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final, TypeVar

from opsctl.sglang.lines import DecodeBatch, LogLine

_DP_RANK: Final = re.compile(r"DP\d+")

_Line = TypeVar("_Line", bound=LogLine)


@dataclass(frozen=True, slots=True)
class Spread:
    """Of one figure a line. Percentiles interpolate between the two nearest lines."""

    mean: float
    p10: float
    p50: float
    p90: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float], weights: Sequence[float] | None = None) -> Spread | None:
        """`weights` are for the mean alone: a percentile is one of lines."""
        if not values:
            return None
        tenths = statistics.quantiles(values, n=10, method="inclusive") if len(values) > 1 else []
        return cls(
            mean=statistics.fmean(values, weights),
            p10=tenths[0] if tenths else values[0],
            p50=statistics.median(values),
            p90=tenths[8] if tenths else values[0],
            min=min(values),
            max=max(values),
        )


def data_parallel_rank(line: LogLine) -> str:
    """`DP0` of `DP0 TP1`; empty without data parallelism."""
    return found[0] if (found := _DP_RANK.search(line.rank)) else ""


def each_batch_once(lines: Iterable[_Line]) -> Iterator[_Line]:
    """The lines of one start, of one kind, without what other ranks repeat of the same batch.

    Data-parallel ranks have batches of their own, and count each.
    """
    speakers = Speakers()
    return (line for line in lines if speakers.first(line))


@dataclass(slots=True)
class Speakers:
    """`each_batch_once` for who gets the lines one by one."""

    _of_rank: dict[str, str] = field(default_factory=dict)  # whoever spoke first

    def first(self, line: LogLine) -> bool:
        """Whether `line`, the next one, is no repetition of another rank's."""
        return self._of_rank.setdefault(data_parallel_rank(line), line.rank) == line.rank


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What decode lines say of speculation and speed.

    `accept_len` is in tokens a verify step, of one request, and counts the bonus token: 1.00
    means that nothing drafted was accepted, and the draft block's size means that everything
    was. Each line averages the decode steps since the line before (`--decode-log-interval`, 40
    by default) over all requests of these, so in the mean a line weighs as many as it has
    requests running, times its steps, which is how SGLang itself counts (`update_spec_metrics`,
    scheduler_metrics_mixin.py:333 in 0.5.12.post1). None means that the lines do not say.
    """

    count: int  # decode lines
    accept_len: Spread | None = None
    cuda_graph_share: float | None = None  # of the lines that have the field, 0 to 1
    gen_throughput: float | None = None  # median, tokens per second, of one data-parallel rank

    @classmethod
    def from_lines(cls, lines: Iterable[DecodeBatch]) -> Acceptance:
        """Of one start. Where all ranks print the same batch, the first rank's line stands."""
        return cls.of(list(each_batch_once(lines)))

    @classmethod
    def of(cls, lines: Sequence[DecodeBatch], steps: Sequence[int] | None = None) -> Acceptance:
        """Of lines that stand for a batch each; `steps` is how many decode steps each covers."""
        lengths: list[float] = []
        weights: list[float] = []
        for line, count in zip(lines, steps or [1] * len(lines), strict=True):
            if line.accept_len is not None:
                lengths.append(line.accept_len)
                weights.append(max(line.running, 1) * count)
        graphs = [line.cuda_graph for line in lines if line.cuda_graph is not None]
        speeds = [line.gen_throughput for line in lines if line.gen_throughput is not None]
        return cls(
            count=len(lines),
            accept_len=Spread.of(lengths, weights),
            cuda_graph_share=sum(graphs) / len(graphs) if graphs else None,
            gen_throughput=statistics.median(speeds) if speeds else None,
        )

    def to_json(self) -> dict[str, object]:
        return asdict(self)
