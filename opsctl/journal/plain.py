"""Entries from plain text: journalctl's own outputs, kubectl, docker, podman, collectors.

Each line says by itself what it is, so that files of several origins can be read. Only the
continuation lines that journalctl indents need the line before (`TextLines`).
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from opsctl.journal.entry import Entry
from opsctl.journal.text import clean

_DATE: Final = r"\d{4}-\d\d-\d\d"
_TIME: Final = r"\d\d:\d\d:\d\d(?:\.\d+)?"
_ISO: Final = rf"{_DATE}T{_TIME}(?:Z|[+-]\d\d:?\d\d)?"
# systemd 252, src/shared/logs-show.c: short, short-precise, -iso, -full, with-unit, -unix,
# -monotonic and -delta.
_SHORT_HEAD: Final = (
    rf"(?:[A-Z][a-z]{{2}} [ \d]\d {_TIME}|(?P<iso>{_ISO})"
    rf"|[A-Z][a-z]{{2}} (?P<full>{_DATE} {_TIME} [A-Z+][\w+-]*)"
    rf"|(?P<unix>\d{{9,11}}\.\d{{6}})|\[ *\d+\.\d{{6}}(?: <[ \d.]+>)?\]) "
    r"[^\s]+ (?P<identifier>[^\s\[\]:]+)(?:\[(?P<pid>\d+)\])?: "
)
_SHORT: Final = re.compile(_SHORT_HEAD + r"(?P<message>.*)", re.DOTALL)
# "sglang-1  | ", "[pod/sglang-0/server] ", and the collectors' "1779264164797<tab>".
_SENDER_HEAD: Final = r"[A-Za-z][\w.-]*[ \t]+\| ?|\[pod/[^\]\s]+\] |\d{10,13}\t"
_SENDER: Final = re.compile(_SENDER_HEAD)
# kubectl, docker and podman with time stamps; "stdout F " is the container runtimes' own.
_STAMP_HEAD: Final = rf"(?P<at>{_ISO})[ \t](?:std(?:out|err) [FP] )?"
_STAMP: Final = re.compile(_STAMP_HEAD)
# All that may stand before a message.
PREFIX: Final = f"{_SHORT_HEAD}|(?:{_SENDER_HEAD})?(?:{_STAMP_HEAD})?"
_UNIT: Final = re.compile(r"^[\w@.\\:-]+\.service: ")
_TAG: Final = re.compile(rf"\[({_DATE} \d\d:\d\d:\d\d)[ \]]")
# journalctl's own words between the entries.
_BANNER: Final = re.compile(
    r"-- (?:No entries|Boot [0-9a-f]+|Reboot|(?:Journal|Logs) begins? at .*|cursor: .*) *-*$"
)


def entry_from_text(line: str) -> Entry:
    """One line of text as an entry; `realtime` is 0.0 where the line has no complete time.

    A clock without a year is not complete. The time in SGLang's own tag, which has no zone,
    counts as UTC where the line has no other: differences between such times are right.
    """
    line = line.rstrip("\r\n")
    if (short := _SHORT.match(line)) is not None:
        message = clean(short["message"])
        manager = short["identifier"] == "systemd" and bool(_UNIT.match(message))
        return Entry(
            realtime=_realtime(short) or _tag_time(message),
            message=message,
            pid=int(short["pid"]) if short["pid"] else None,
            identifier=short["identifier"],
            from_manager=manager,
        )
    text = clean(line)
    if (sender := _SENDER.match(text)) is not None:
        text = text[sender.end() :]
    at = 0.0
    if (stamp := _STAMP.match(text)) is not None:
        at, text = iso_time(stamp["at"]), text[stamp.end() :]
    return Entry(realtime=at or _tag_time(text), message=text)


def is_banner(line: str) -> bool:
    """Whether journalctl says this about its output; it is no entry."""
    return line.startswith("-- ") and _BANNER.match(line.rstrip()) is not None


@dataclass(slots=True)
class TextLines:
    """Lines in their order: those that journalctl indents belong to the entry before."""

    _head: Entry | None = None
    _indent: str = ""

    def feed(self, line: str) -> Entry:
        """The next line's entry: a continuation has the message's head's time and sender."""
        if self._head is not None and line.startswith(self._indent):
            message = clean(line[len(self._indent) :].rstrip("\r\n"))
            return replace(self._head, message=message)
        entry = entry_from_text(line)
        if entry.identifier:
            self._head = entry
            short = _SHORT.match(line)
            self._indent = " " * (short.start("message") if short else 0)
        elif not line.startswith(" "):
            self._head = None
        return entry


@lru_cache(maxsize=256)  # many lines a second have the same one
def iso_time(text: str) -> float:
    """Unix seconds of an ISO 8601 time, UTC where it names no zone; 0.0 if it is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _realtime(short: re.Match[str]) -> float:
    if short["iso"]:
        return iso_time(short["iso"])
    if short["unix"]:
        return float(short["unix"])
    return _full_time(short["full"]) if short["full"] else 0.0


def _full_time(text: str) -> float:
    """`2026-11-29 20:53:09.123456 CET`: zones by name are this machine's, or UTC."""
    stamp, _, zone = text.rpartition(" ")
    if zone[0] in "+-":
        return iso_time(stamp + zone)
    at = iso_time(stamp)
    if zone not in {"UTC", "GMT"} and zone in time.tzname:
        summer = time.tzname.index(zone)
        return at + (time.altzone if summer else time.timezone)
    return at if zone in {"UTC", "GMT"} else 0.0


def _tag_time(message: str) -> float:
    tag = _TAG.match(message)
    return 0.0 if tag is None else iso_time(tag[1])
