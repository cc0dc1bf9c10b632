"""Degenerate text: an answer that has become a short loop."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# A loop must be this short (in tokens or words), cover this share of the answer and be this
# long before it condemns. Healthy greedy text of a small or random model does fall into longer
# loops (periods of 6 and 14 tokens on the lab's pair), and code repeats itself; a broken
# kernel repeats a token or two from early on and never leaves.
MAX_PERIOD: Final = 4
MIN_SHARE: Final = 0.75
MIN_LENGTH: Final = 24
_WORD: Final = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Loop:
    """The answer's end repeats its last `period` items over `covered` items."""

    period: int
    covered: int
    total: int

    @property
    def degenerate(self) -> bool:
        return (
            self.period <= MAX_PERIOD
            and self.covered >= MIN_LENGTH
            and self.covered >= MIN_SHARE * self.total
        )


def words(text: str) -> list[str]:
    """Words and single punctuation marks: what stands in for tokens where there are none."""
    return _WORD.findall(text)


def tail_loop(items: Sequence[object], longest: int = 32) -> Loop | None:
    """The shortest period that the end of `items` repeats at least three times over."""
    total = len(items)
    for period in range(1, min(longest, total // 3) + 1):
        same = 0
        while same < total - period and items[-1 - same] == items[-1 - same - period]:
            same += 1
        if same >= 2 * period:
            return Loop(period=period, covered=same + period, total=total)
    return None
