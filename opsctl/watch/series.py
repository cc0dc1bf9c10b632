"""A figure over time in bounded memory: fine for the last minutes, coarse for the last days."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

# Width of a bin in seconds, and how many are kept: 15 minutes, 3 hours, 2 days. Round-robin
# archives, as RRDtool calls them; 4,860 bins a figure at most.
TIERS: Final = ((1.0, 900), (10.0, 1080), (60.0, 2880))
LONGEST: Final = TIERS[-1][0] * TIERS[-1][1]


@dataclass(slots=True)
class Bin:
    """The values of one start within one span of time; `index` times the width is its begin."""

    index: int
    start: int
    total: float = 0.0
    weight: float = 0.0

    @property
    def mean(self) -> float:
        return self.total / self.weight


def _archives() -> tuple[deque[Bin], ...]:
    return tuple(deque(maxlen=count) for _, count in TIERS)


@dataclass(slots=True)
class Series:
    """Values as they come. Times are Unix seconds by one clock."""

    _archives: tuple[deque[Bin], ...] = field(default_factory=_archives)

    def add(self, at: float, value: float, *, start: int, weight: float = 1.0) -> None:
        """Take in a value of the start numbered `start`; no bin has values of two starts.

        A clock that was set back does not take a value back in time: it counts for the bin that
        is the last.
        """
        for (width, _), bins in zip(TIERS, self._archives, strict=True):
            index = int(at // width)
            if bins:
                index = max(index, bins[-1].index)
            if not bins or bins[-1].index != index or bins[-1].start != start:
                bins.append(Bin(index, start))
            bins[-1].total += value * weight
            bins[-1].weight += weight

    def columns(self, until: float, span: float, count: int) -> list[float | None]:
        """The means of `count` columns that end with the one that holds `until`; None where
        nothing came. Where a column holds two starts, it is the later one's.

        Columns stand at multiples of their width, so that a plot stands still between two.
        """
        width = span / count
        fine = next(
            (place for place, (bin_, kept) in enumerate(TIERS) if bin_ * kept >= span),
            len(TIERS) - 1,
        )
        last = int(until // width)
        found: dict[int, Bin] = {}
        for each in reversed(self._archives[fine]):
            column = int(each.index * TIERS[fine][0] // width) - last + count - 1
            if column < 0:
                break
            there = found.get(column)
            if there is None:
                found[column] = Bin(0, each.start, each.total, each.weight)
            elif there.start == each.start:
                there.total += each.total
                there.weight += each.weight
        return [found[place].mean if place in found else None for place in range(count)]


def columns_of(times: list[float], until: float, span: float, count: int) -> set[int]:
    """In which of `Series.columns`' columns these moments are."""
    width = span / count
    last = int(until // width)
    found = {int(at // width) - last + count - 1 for at in times}
    return {column for column in found if 0 <= column < count}
