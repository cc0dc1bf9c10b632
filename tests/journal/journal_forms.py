"""Lines as bytes, in the forms that a journal comes in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from opsctl.journal import Entry
from opsctl.journal.lines import Lines

Form = Callable[[Iterable[str]], bytes]


def plain(lines: Iterable[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


def as_json(lines: Iterable[str]) -> bytes:
    """As `journalctl --output=json` has them; a line that is none stays one, and empty."""
    return _json(lines, lambda message: message)


def as_byte_lists(lines: Iterable[str]) -> bytes:
    """As journalctl has messages with colours or carriage returns."""
    return _json(lines, lambda message: list(message.encode()))


def _json(lines: Iterable[str], message: Callable[[str], object]) -> bytes:
    parser = Lines()
    read = (parser.feed(line.encode()) or Entry(realtime=0.0, message="") for line in lines)
    return b"".join(json.dumps(_fields(entry, message)).encode() + b"\n" for entry in read)


def _fields(entry: Entry, message: Callable[[str], object]) -> dict[str, object]:
    fields: dict[str, object] = {"MESSAGE": message(entry.message)}
    if entry.realtime:
        fields["__REALTIME_TIMESTAMP"] = str(round(entry.realtime * 1e6))
    if entry.pid is not None:
        fields["_PID"] = str(entry.pid)
    if entry.identifier:
        fields["SYSLOG_IDENTIFIER"] = entry.identifier
    if entry.from_manager:
        fields |= {"_PID": "1", "UNIT": "sglang.service"}
    return fields


FORMS: tuple[Form, ...] = (plain, as_json, as_byte_lists)
