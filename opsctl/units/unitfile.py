"""A unit's files read as systemd reads them: sections, continued lines, drop-ins one after another.

Sources: systemd.syntax(7), systemd.unit(5) ("drop-in"), systemd.time(7) for spans,
systemd.resource-control(5) for sizes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Zµ]*)")
_SECONDS = {
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604800.0),
    **dict.fromkeys(("ms", "msec"), 1e-3),
    **dict.fromkeys(("us", "usec", "µs"), 1e-6),
}
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_WORD = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\S+")
_TRUE = frozenset({"1", "yes", "y", "true", "t", "on"})


@dataclass(frozen=True, slots=True)
class Setting:
    """One assignment, and where it stands; lines count from 1."""

    section: str
    key: str
    value: str
    path: str
    line: int

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class UnitText:
    """The settings of a unit's files in the order in which systemd reads them."""

    settings: tuple[Setting, ...]

    @classmethod
    def of(cls, files: Iterable[tuple[str, str]]) -> UnitText:
        """Of (path, text): the fragment, then each drop-in, as `DropInPaths` has them."""
        return cls(tuple(setting for path, text in files for setting in parse(path, text)))

    def all(self, key: str, section: str = "Service") -> list[Setting]:
        """Those of a setting that is a list: an empty assignment takes back what came before."""
        found: list[Setting] = []
        for setting in self.settings:
            if (setting.section, setting.key) == (section, key):
                found = [*found, setting] if setting.value else []
        return found

    def last(self, *keys: str, section: str = "Service") -> Setting | None:
        """The one that counts of a setting that has one value; `keys` are its names."""
        found = None
        for setting in self.settings:
            if setting.section == section and setting.key in keys:
                found = setting
        return found if found is not None and found.value else None

    def text(self, key: str, default: str = "", section: str = "Service") -> str:
        found = self.last(key, section=section)
        return default if found is None else found.value


def parse(path: str, text: str) -> Iterator[Setting]:
    """The assignments of one file; what is before the first section is none."""
    section, joined, began = "", "", 0
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if line[:1] in {"#", ";"} or (not joined and not line):
            continue
        began = began or number
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        whole, first = joined + line, began
        joined, began = "", 0
        if whole.startswith("[") and whole.endswith("]"):
            section = whole[1:-1]
        elif section and "=" in whole:
            key, _, value = whole.partition("=")
            yield Setting(section, key.strip(), value.strip(), path, first)


def seconds(text: str) -> float | None:
    """A span as a unit file has it, `1min 30` or `infinity`; None where it is none."""
    if text == "infinity":
        return math.inf
    parts = _SPAN.findall(text)
    if not parts or _SPAN.sub("", text).strip() or any(unit not in _SECONDS for _, unit in parts):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def size(text: str, total: int) -> float | None:
    """Bytes of `200G`, `50%` of `total`, or `infinity`; None where it is none of them."""
    if text == "infinity":
        return math.inf
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGT%]?)", text)
    if match is None:
        return None
    if match[2] == "%":
        return total * float(match[1]) / 100 if total else math.inf
    return float(match[1]) * _BYTES[match[2]]


def true(text: str) -> bool:
    return text.lower() in _TRUE


def words(text: str) -> list[str]:
    """The words of a setting, quotes around one of them kept."""
    return _WORD.findall(text)
