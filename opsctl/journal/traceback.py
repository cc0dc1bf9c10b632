"""Python tracebacks in a journal, put together a process at a time, in bounded memory."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from opsctl.sglang.grammar import split_prefix

# Lines of one that are kept.
_KEPT: Final = 400

_HEAD: Final = "Traceback (most recent call last):"
# The last line of a traceback: a class, dotted or not, that is named like an exception.
EXCEPTION: Final = re.compile(
    r"(?:(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Warning|Timeout"
    r"|Refused|Failure|Incomplete))(?:: .*|:)?$|(?:(?:[a-z_]\w*\.)+[A-Z]\w*): "
    r"|socket\.(?:timeout|gaierror)\b"
)
_FRAME: Final = re.compile(r'\s*File "(?P<file>[^"]+)", line \d+,? in (?P<function>\S+)')
# Source code under a frame, where the frame itself is not in the input.
_CODE: Final = re.compile(
    r" {4,}(?:(?:raise|return|assert|await|yield|if|for|with|from|import|del|self|super)\b"
    r"|[\^~]+\s*$|[\w.\[\]]+ = |[\w.]+\()"
)
_FATAL_OPENERS: Final = re.compile(r"hit an exception|warmup error|Fatal Python error")
_HANDLED_OPENERS: Final = re.compile(
    r"ASGI application|Task exception was never retrieved|Exception ignored in"
)
_CHAIN: Final = ("During handling of the above exception", "The above exception was the direct")
_SHOWN: Final = 60  # lines of one traceback that `text` shows
_MOST: Final = 64  # tracebacks kept: the first half of them and the last


@dataclass(slots=True)
class Traceback:
    """`fatal`: announced by a process that then ends itself, not by a request's handler."""

    start: int  # line of its head
    fatal: bool
    handled: bool  # a web framework reports it and goes on
    lines: list[str] = field(default_factory=list)
    exception: str = ""  # the first of a chain: the one that began it
    exception_at: int = -1
    end: int = -1  # its last line
    phase: str = ""  # in which the start was then, empty if unknown
    explained: bool = False  # a rule knows its exception

    def covers(self, line: int) -> bool:
        """Whether `line` stands between its first and last line."""
        return self.start <= line <= max(self.end, self.start)

    @property
    def exception_name(self) -> str:
        """The exception's class without its module."""
        return self.exception.partition(":")[0].rpartition(".")[2]

    @property
    def frames(self) -> list[tuple[str, str]]:
        """(file, function), outermost first."""
        found = (_FRAME.match(line) for line in self.lines)
        return [(frame["file"], frame["function"]) for frame in found if frame]

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

    def open(self, pid: int | None) -> Traceback | None:
        """The traceback that the process's last line belongs to."""
        return self._open.get(pid)

    def close(self, pid: int | None) -> None:
        """No line of the process belongs to one any more."""
        self._open.pop(pid, None)
        self._previous.pop(pid, None)

    def feed(self, number: int, pid: int | None, line: str) -> bool:
        """Take in one line. True if it is source code or a frame inside a traceback."""
        _, text = split_prefix(line)
        current = self._open.get(pid)
        if _HEAD in text:
            if current is None or not self._chained(current):
                current = self._begin(number, pid, text)
            current.lines.append(line)
            return False
        self._previous[pid] = text
        if current is None:
            if text.startswith('  File "') and _FRAME.match(text):
                current = self._begin(number, pid, text)  # its head is not in this input
                current.lines.append(line)
                return True
            return _CODE.match(text) is not None or text.startswith('  File "')
        if text != line or number > current.start + 4 * _KEPT:  # a new record ends it
            del self._open[pid]
            return False
        return self._continue(current, number, line)

    def _continue(self, current: Traceback, number: int, line: str) -> bool:
        current.end = number
        if len(current.lines) < _KEPT:
            current.lines.append(line)
        if line.startswith(("  ", "\t")):
            return line.startswith(("    ", '  File "', "  ["))
        if not current.exception and EXCEPTION.match(line):
            current.exception, current.exception_at = line, number
        return False

    def _begin(self, number: int, pid: int | None, text: str) -> Traceback:
        handled = bool(_HANDLED_OPENERS.search(self._previous.get(pid, "") + text))
        new = Traceback(start=number, fatal=bool(_FATAL_OPENERS.search(text)), handled=handled)
        if len(self.found) >= _MOST:
            del self.found[_MOST // 2]
        self.found.append(new)
        if len(self._open) > _MOST and pid not in self._open:
            self._open.pop(next(iter(self._open)))
        if len(self._previous) > _MOST:
            self._previous.clear()
        self._open[pid] = new
        return new

    @staticmethod
    def _chained(current: Traceback) -> bool:
        return any(line.startswith(_CHAIN) for line in current.lines[-4:])
