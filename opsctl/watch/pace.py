"""How often a screen may change, so that a slow line keeps up with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from opsctl.watch.frame import Line, text_of

# To go to a place on the screen, and to set and unset a style: bytes, of an xterm's sequences.
_MOVE: Final = 8
_STYLE: Final = 12
# Nothing here is so urgent that it could not wait for this, seconds.
EVERY: Final = 1.0


def cost(before: Sequence[Line], after: Sequence[Line]) -> int:
    """About how many bytes it takes to make one frame into the other: of each line what lies
    between what both begin and end with. Curses needs at most that, and a few bytes a style."""
    return sum(_cost(old, new) for old, new in zip_longest(before, after, fillvalue=()))


def _cost(old: Line, new: Line) -> int:
    if old == new:
        return 0
    was, is_ = text_of(old), text_of(new)
    styles = _STYLE * max(sum(bool(style) for _, style in new), 1)
    if [style for _, style in old] != [style for _, style in new]:
        return _MOVE + styles + len(is_.encode())
    shortest = min(len(was), len(is_))
    begin = next((i for i in range(shortest) if was[i] != is_[i]), shortest)
    rest = shortest - begin
    end = next((i for i in range(rest) if was[-1 - i] != is_[-1 - i]), rest)
    same_length = len(was) == len(is_)
    changed = is_[begin : len(is_) - (end if same_length else 0)]
    return _MOVE + styles + len(changed.encode())


@dataclass(slots=True)
class Pace:
    """A bucket that may be emptied below its bottom: a frame is drawn whole, and paid off before
    the next. So over any time T no more than `rate` * T bytes and one frame are sent, and one
    more for each key that asks for one."""

    rate: float  # bytes a second
    _free_at: float = 0.0

    def due(self, now: float) -> bool:
        return now >= self._free_at

    def spend(self, bytes_: int, now: float) -> None:
        """A frame of so many bytes was drawn at `now` (monotonic seconds)."""
        self._free_at = max(max(self._free_at, now) + bytes_ / self.rate, now + EVERY)
