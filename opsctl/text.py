"""Words for a person."""

from __future__ import annotations

import time


def counted(number: int, noun: str) -> str:
    """`1 file`, `2 files`: for nouns whose plural is an s."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def clock(seconds: float) -> str:
    """A moment (Unix seconds) in this machine's time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
