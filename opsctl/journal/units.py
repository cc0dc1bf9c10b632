"""Whose end a service manager's line tells: a host's journal holds other units than the server's.

A unit may have any name, so that its lines count unless something speaks against it: the server
goes on after its end without another start, or the server's lines bear another unit's name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

# systemd's `NAME.service: …` and `Stopping NAME.service…`, docker compose's `NAME exited with …`.
_ABOUT: Final = re.compile(
    r"(?:(?:Start|Stopp)(?:ed|ing) )?(?P<unit>[\w@.\\:-]+\.service)\b"
    r"|(?P<container>[\w.-]+) exited with code \d"
)
# Identifiers that a unit has from what it runs, whatever its own name is.
_GENERIC: Final = re.compile(
    r"(?:python|pypy)[\d.]*|(?:ba|da|z)?sh|env|docker\w*|podman|conmon|uv|torchrun|numactl|systemd"
)
# Seconds between a unit's end and a decode line that cannot have been on its way to the journal.
_GOES_ON: Final = 5.0
_MOST: Final = 64


def unit_of(text: str) -> str:
    """The unit or container that a manager's message is about, empty if none."""
    found = _ABOUT.match(text)
    return (found["unit"] or found["container"]) if found else ""


@dataclass(slots=True)
class _End:
    line: int
    at: float  # Unix seconds, 0.0 while no time is known


@dataclass(slots=True)
class Units:
    """Fed with what the manager says and with the server's own lines, in their order."""

    _names: set[str] = field(default_factory=set)  # under which the server's lines come
    _stems: set[str] = field(default_factory=set)  # of the units that the manager named
    _others: set[str] = field(default_factory=set)
    _ends: dict[str, _End] = field(default_factory=dict)  # the last one of each unit
    _stop: _End | None = None  # of a unit that may be another
    _decoded_at: float = 0.0

    def speaks(self, identifier: str) -> None:
        """The server said something under this syslog identifier."""
        if identifier in self._names or not identifier or len(self._names) >= _MOST:
            return
        if not _GENERIC.fullmatch(identifier):
            self._names.add(identifier)

    def mentioned(self, unit: str) -> None:
        """The manager said something of a unit."""
        if len(self._stems) < _MOST:
            self._stems.add(_stem(unit))

    def ended(self, unit: str, line: int, at: float) -> None:
        """The manager said that it failed."""
        if unit in self._ends or len(self._ends) < _MOST:
            self._ends[unit] = _End(line, at or self._decoded_at)

    def stopping(self, unit: str, line: int, at: float) -> None:
        """The manager stops a unit, as far as that is known the server's."""
        self._stop = None if self._alike(unit) else _End(line, at or self._decoded_at)

    def stopped(self) -> None:
        """The server says itself that it is to stop."""
        self._stop = None

    def decoded(self, at: float, progress_at: int) -> bool:
        """A decode line; `progress_at` is the line at which a start last made progress. True if
        it shows that the stop was another unit's: the server drains after saying so."""
        for unit, end in list(self._ends.items()):
            if not self._alike(unit) and _goes_on(end, at, progress_at):
                del self._ends[unit]
                self._others.add(unit)
        others = self._stop is not None and _goes_on(self._stop, at, progress_at)
        if others:
            self._stop = None
        self._decoded_at = at or self._decoded_at
        return others

    def is_other(self, unit: str) -> bool:
        """Whether it is known not to be the server's."""
        named = bool(unit) and not self._names.isdisjoint(self._stems)
        return unit in self._others or (named and not self._alike(unit))

    @property
    def died_at(self) -> int:
        """The last line that tells the end of a unit that may be the server's, or -1."""
        return max(
            (e.line for unit, e in self._ends.items() if not self.is_other(unit)), default=-1
        )

    def _alike(self, unit: str) -> bool:
        stem = _stem(unit)
        return bool(stem) and any(name in stem or stem in name for name in self._names)


def _goes_on(end: _End, at: float, progress_at: int) -> bool:
    """Whether a decode line is none that was under way, nor of a start since `end`."""
    if progress_at > end.line:
        return False
    end.at = end.at or at
    return at - end.at >= _GOES_ON


def _stem(unit: str) -> str:
    return unit.removesuffix(".service").partition("@")[0]
