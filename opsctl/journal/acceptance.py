"""Acceptance and throughput over a span of decode lines."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from opsctl.sglang.lines import DecodeBatch

_DP_RANK: Final = re.compile(r"DP\d+")


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
    def of(cls, values: Sequence[float]) -> Spread | None:
        if not values:
            return None
        tenths = statistics.quantiles(values, n=10, method="inclusive") if len(values) > 1 else []
        return cls(
            mean=statistics.fmean(values),
            p10=tenths[0] if tenths else values[0],
            p50=statistics.median(values),
            p90=tenths[8] if tenths else values[0],
            min=min(values),
            max=max(values),
        )


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What decode lines say of speculation and speed.

    `accept_len` is in tokens a verify step and counts the bonus token: 1.00 means that nothing
    drafted was accepted, and the draft block's size means that everything was. Each line
    averages the decode steps since the line before (`--decode-log-interval`, 40 by default),
    so the lines weigh alike; the first after a start or a pause may average fewer steps.
    None means that the lines do not say.
    """

    count: int  # decode lines
    accept_len: Spread | None = None
    cuda_graph_share: float | None = None  # of the lines that have the field, 0 to 1
    gen_throughput: float | None = None  # median, tokens per second

    @classmethod
    def from_lines(cls, lines: Iterable[DecodeBatch]) -> Acceptance:
        """Every line once: where all ranks print the same batch, the first rank's stand."""
        speaker: dict[str, str] = {}  # by data-parallel rank, whose batches do differ
        lengths: list[float] = []
        graphs: list[bool] = []
        speeds: list[float] = []
        count = 0
        for line in lines:
            group = found[0] if (found := _DP_RANK.search(line.rank)) else ""
            if speaker.setdefault(group, line.rank) != line.rank:
                continue
            count += 1
            if line.accept_len is not None:
                lengths.append(line.accept_len)
            if line.cuda_graph is not None:
                graphs.append(line.cuda_graph)
            if line.gen_throughput is not None:
                speeds.append(line.gen_throughput)
        return cls(
            count=count,
            accept_len=Spread.of(lengths),
            cuda_graph_share=sum(graphs) / len(graphs) if graphs else None,
            gen_throughput=statistics.median(speeds) if speeds else None,
        )

    def to_json(self) -> dict[str, object]:
        return asdict(self)
