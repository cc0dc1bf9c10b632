"""A figure over time, thinned to what a plot has room for."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_PAUSE = 8.0  # times the usual distance of two points


@dataclass(frozen=True, slots=True)
class Column:
    """The points of one column: the last one's time, and their mean, least and most."""

    at: float
    mean: float
    low: float
    high: float


def runs(points: Sequence[tuple[float, float]], columns: int) -> list[list[Column]]:
    """`points` (time in seconds, value; times rise) in at most `columns` + 1 columns, apart where
    no point came for long: idle is no figure, and no line should join what it parts."""
    if not points:
        return []
    first, last = points[0][0], points[-1][0]
    width = (last - first) / columns or 1.0
    gaps = [later[0] - former[0] for former, later in itertools.pairwise(points)]
    pause = max(_PAUSE * statistics.median(gaps), 2 * width) if gaps else 0.0
    found: list[list[Column]] = []
    for _, group in itertools.groupby(points, lambda point: int((point[0] - first) / width)):
        inside = list(group)
        values = [value for _, value in inside]
        if not found or inside[0][0] - found[-1][-1].at > pause:
            found.append([])
        column = Column(inside[-1][0], statistics.fmean(values), min(values), max(values))
        found[-1].append(column)
    return found
