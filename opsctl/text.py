"""Words for a person."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # who only counts needs no pydantic
    from pydantic import ValidationError


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 file`, `2 files`; `plural` is for nouns whose plural is more than an s."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def ranges(numbers: Iterable[int]) -> str:
    """`1-4, 7` for 1, 2, 3, 4 and 7; they rise."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in runs)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'ct200'?`, or nothing where no known name is like it."""
    close = close_to(name, known)
    return f"; did you mean {close[0]!r}?" if close else ""


def close_to(name: str, known: Iterable[str]) -> list[str]:
    """The known name that is most like it, if any is."""
    return difflib.get_close_matches(name, list(known), n=1)


def duration(seconds: float) -> str:
    """`45s` or `10m45s`."""
    whole = round(seconds)
    return f"{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{whole}s"


def moment(seconds: float, now: float | None = None) -> str:
    """The same as `clock`, without the date where that is today's (or `now`'s, Unix seconds)."""
    text = clock(seconds)
    date, _, time_of_day = text.partition(" ")
    today = clock(time.time() if now is None else now).partition(" ")[0]
    return time_of_day if date == today else text


def clock(seconds: float) -> str:
    """A moment (Unix seconds) in this machine's time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def first_fault(error: ValidationError) -> str:
    """Of what pydantic finds wrong with a file the first: the key and why."""
    fault = error.errors()[0]
    where = ".".join(str(part) for part in fault["loc"]) or "the file"
    return f"{where}: {fault['msg'].removeprefix('Value error, ')}"
