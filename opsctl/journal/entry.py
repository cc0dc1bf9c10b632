"""One journal entry, from any form that `journalctl -o json` gives a field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from opsctl.journal.text import clean

# What stands where journald left a field out: without --all it replaces fields of
# 4096 bytes or more by null.
TOO_LONG: Final = "(field too long for the journal's JSON)"
# The fields that an entry is made of, and the stamps that a reader looks at.
READ: Final = {
    "MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "SYSLOG_PID", "UNIT", "INVOCATION_ID",
    "OBJECT_SYSTEMD_INVOCATION_ID", "_SYSTEMD_INVOCATION_ID", "_PID", "_COMM", "__CURSOR",
    "_SOURCE_REALTIME_TIMESTAMP", "__REALTIME_TIMESTAMP", "__MONOTONIC_TIMESTAMP", "_BOOT_ID",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the journal.

    `realtime` is Unix time in seconds on the host, as the sender stamped it where it did.
    `message` is cleaned (see `clean`) and may hold several lines. `from_manager` marks
    systemd's own words about the unit, which carry INVOCATION_ID in place of
    _SYSTEMD_INVOCATION_ID.
    """

    realtime: float
    message: str
    pid: int | None = None
    priority: int | None = None  # syslog: 0 emerg to 7 debug
    identifier: str = ""
    invocation: str = ""
    cursor: str = ""
    from_manager: bool = False

    @classmethod
    def from_json(cls, fields: Mapping[str, object]) -> Entry:
        """An entry from one object of `journalctl -o json`; never raises for odd values."""
        pid = _number(fields.get("_PID")) or _number(fields.get("SYSLOG_PID"))
        own = field_text(fields.get("_SYSTEMD_INVOCATION_ID"))
        about = field_text(fields.get("INVOCATION_ID")) or field_text(
            fields.get("OBJECT_SYSTEMD_INVOCATION_ID")
        )
        micros = _number(fields.get("_SOURCE_REALTIME_TIMESTAMP")) or _number(
            fields.get("__REALTIME_TIMESTAMP")
        )
        manager = pid == 1 and bool(about or field_text(fields.get("UNIT")))
        return cls(
            realtime=(micros or 0) / 1e6,
            message=_message(fields),
            pid=pid,
            priority=_number(fields.get("PRIORITY")),
            identifier=clean(
                field_text(fields.get("SYSLOG_IDENTIFIER")) or field_text(fields.get("_COMM"))
            ),
            invocation=(about or own) if manager else (own or about),
            cursor=field_text(fields.get("__CURSOR")),
            from_manager=manager,
        )


def _message(fields: Mapping[str, object]) -> str:
    if "MESSAGE" in fields and fields["MESSAGE"] is None:
        return TOO_LONG
    return clean(field_text(fields.get("MESSAGE")))


def field_text(value: object) -> str:
    """A field as text: a string, bytes as a list of numbers, null, or a list of those.

    A field that was sent more than once is joined by newlines.
    """
    match value:
        case str():
            return value
        case None:
            return ""
        case list() if value and all(isinstance(item, int) for item in value):
            try:
                return bytes(value).decode("utf-8", "replace")
            except ValueError:  # not bytes after all
                return " ".join(map(str, value))
        case list():
            return "\n".join(TOO_LONG if item is None else field_text(item) for item in value)
        case _:
            return str(value)


def _number(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, list):  # repeated: the first was there first
        value = value[0] if value else None
    try:
        return int(str(value))
    except ValueError:
        return None
