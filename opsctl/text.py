"""Words for a person."""

from __future__ import annotations

import time
from collections.abc import Iterable


def counted(number: int, noun: str) -> str:
    """`1 file`, `2 files`: for nouns whose plural is an s."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def ranges(numbers: Iterable[int]) -> str:
    """`1-4, 7` for 1, 2, 3, 4 and 7; they rise."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in runs)


def clock(seconds: float) -> str:
    """A moment (Unix seconds) in this machine's time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
