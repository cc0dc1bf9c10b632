"""Python tracebacks in a journal, put together a process at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from opsctl.sglang.grammar import split_prefix

_HEAD: Final = "Traceback (most recent call last):"
# The last line of a traceback: a class, dotted or not, that is named like an exception.
EXCEPTION: Final = re.compile(
    r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Warning|Timeout|Refused)"
    r"(?:: .*|:)?$|(?:[a-z_]\w*\.)+[A-Z]\w*: "
)
_FATAL_OPENERS: Final = re.compile(r"hit an exception|warmup error|Fatal Python error")
_CHAIN: Final = ("During handling of the above exception", "The above exception was the direct")
_SHOWN: Final = 60  # lines of one traceback that `text` shows
_KEPT: Final = 1000  # … and that are kept at all


@dataclass(slots=True)
class Traceback:
    """`fatal`: announced by a process that then ends itself, not by a request's handler."""

    start: int  # entry index of its head
    fatal: bool
    handled: bool  # a web framework reports it and goes on
    lines: list[str] = field(default_factory=list)
    exception: str = ""  # the first of a chain: the one that began it
    exception_at: int = -1
    end: int = -1  # entry index of its last line

    def covers(self, index: int) -> bool:
        """Whether the entry stands between its first and last line."""
        return self.start <= index <= max(self.end, self.start)

    @property
    def text(self) -> str:
        """Its lines; of a long one the head and, with the exception, the end."""
        if len(self.lines) <= _SHOWN:
            return "\n".join(self.lines)
        return "\n".join([*self.lines[:5], "  [...]", *self.lines[6 - _SHOWN :]])


class Collector:
    """Fed line by line; lines of different processes may interleave."""

    def __init__(self) -> None:
        self.found: list[Traceback] = []
        self._open: dict[int | None, Traceback] = {}
        self._previous: dict[int | None, str] = {}

    def feed(self, index: int, pid: int | None, line: str) -> bool:
        """Take in one line. True if it is source code or a frame inside a traceback."""
        _, text = split_prefix(line)
        current = self._open.get(pid)
        if _HEAD in text:
            if current is None or not self._chained(current):
                current = self._begin(index, pid, text)
            current.lines.append(line)
            return False
        self._previous[pid] = text
        if current is None:
            return text.startswith(("    ", '  File "'))
        if text != line:  # a new record ends it
            del self._open[pid]
            return False
        current.end = index
        if len(current.lines) < _KEPT:
            current.lines.append(line)
        if line.startswith(("  ", "\t")):
            return line.startswith(("    ", '  File "', "  ["))
        if not current.exception and EXCEPTION.match(text):
            current.exception, current.exception_at = text, index
        return False

    def _begin(self, index: int, pid: int | None, text: str) -> Traceback:
        handled = "ASGI application" in self._previous.get(pid, "")
        new = Traceback(start=index, fatal=bool(_FATAL_OPENERS.search(text)), handled=handled)
        self.found.append(new)
        self._open[pid] = new
        return new

    @staticmethod
    def _chained(current: Traceback) -> bool:
        return any(line.startswith(_CHAIN) for line in current.lines[-4:])
