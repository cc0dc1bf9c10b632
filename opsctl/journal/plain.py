"""Entries from plain text: journalctl's short output, kubectl logs, docker compose."""

from __future__ import annotations

import re
from typing import Final

from opsctl.journal.entry import Entry
from opsctl.journal.text import clean

_SHORT: Final = re.compile(
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*) "
    r"\S+ (?P<identifier>[^\s\[\]:]+)(?:\[(?P<pid>\d+)\])?: (?P<message>.*)",
    re.DOTALL,
)
# "sglang-1  | ", and the collectors' "1779264164797<tab>2026-05-20T08:02:44.797Z<tab>".
_COLLECTOR: Final = re.compile(
    r"[A-Za-z][\w.-]*\s+\| ?|(?:\d{10,13}\t)?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z[ \t]"
)
_UNIT: Final = re.compile(r"^[\w@.\\:-]+\.service: ")


def entry_from_text(line: str) -> Entry:
    """One line of text as an entry; `realtime` is 0.0, since such clocks have no zone or year."""
    line = line.rstrip("\n")
    if (short := _SHORT.match(line)) is not None:
        pid = int(short["pid"]) if short["pid"] else None
        manager = short["identifier"] == "systemd" and bool(_UNIT.match(short["message"]))
        return Entry(
            realtime=0.0,
            message=clean(short["message"]),
            pid=pid,
            identifier=short["identifier"],
            from_manager=manager,
        )
    return Entry(realtime=0.0, message=clean(_strip(line)))


def _strip(line: str) -> str:
    prefix = _COLLECTOR.match(line)
    return line if prefix is None else line[prefix.end() :]
