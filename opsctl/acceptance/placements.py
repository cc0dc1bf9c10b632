"""Which generation was in place when, from the host's log of what was done."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Placement:
    """One stay of a generation on the disk, Unix seconds by the host's clock.

    None means since before the log began, and still.
    """

    number: int
    since: float | None
    until: float | None


def placements(log: Iterable[Mapping[str, Any]], found: int | None = None) -> list[Placement]:
    """Oldest first, from the entries of the audit log, oldest first.

    `found` is the generation that the first swap replaced: what was there before opsctl came.
    A swap to the generation that is in place already does not end its stay.
    """
    stays: list[Placement] = [] if found is None else [Placement(found, None, None)]
    for entry in log:
        number, at = _placed(entry), entry.get("time")
        if number is None or not isinstance(at, int | float):
            continue
        if stays and stays[-1].number == number:
            continue
        if stays:
            stays[-1] = Placement(stays[-1].number, stays[-1].since, float(at))
        stays.append(Placement(number, float(at), None))
    return stays


def _placed(entry: Mapping[str, Any]) -> int | None:
    """The generation that an entry says was put in place."""
    key = {"swap": "number", "guard.done": "to"}.get(str(entry.get("event")))
    number = entry.get(key) if key else None
    return number if isinstance(number, int) else None


def latest(stays: Sequence[Placement], number: int) -> Placement | None:
    """The last stay of a generation."""
    return next((stay for stay in reversed(stays) if stay.number == number), None)


def before(stays: Sequence[Placement], stay: Placement, good: Collection[int]) -> Placement | None:
    """The last stay before `stay` of another generation, among those that proved themselves."""
    place = stays.index(stay)
    return next(
        (
            other
            for other in reversed(stays[:place])
            if other.number != stay.number and other.number in good
        ),
        None,
    )
