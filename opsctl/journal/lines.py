"""One line of input to one entry, whatever wrote it; nothing is refused and nothing raises."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any, Final

from opsctl.journal.entry import Entry
from opsctl.journal.plain import TextLines, entry_from_text, is_banner, iso_time

# JSON-seq's record separator and the event prefix of --output=json-sse.
_FRAMING: Final = (b"\x1e", b"data: ")
# Of a line that was cut: the message as far as it goes, and other whole fields.
_CUT_MESSAGE: Final = re.compile(rb'"(?:MESSAGE|log)" ?: ?"((?:[^"\\]|\\.)*)')
_CUT_BYTES: Final = re.compile(rb'"MESSAGE" ?: ?\[([\d, ]*)')
_FIELD: Final = re.compile(rb'"([A-Z_]+)" ?: ?("(?:[^"\\]|\\.)*")')


@dataclass(slots=True)
class Lines:
    """Lines in their order. `cut` counts those that end before their JSON does."""

    cut: int = 0
    _text: TextLines = field(default_factory=TextLines)

    def feed(self, raw: bytes) -> Entry | None:
        """The entry of the next line, without its newline; None where it is none."""
        if raw.startswith(_FRAMING):
            raw = unframed(raw)
        if raw[:1] == b"{":
            entry = self._from_json(raw)
            if entry is not None:
                return entry
        text = raw.decode("utf-8", "replace")
        return None if is_banner(text) or not text.strip("\r\x00") else self._text.feed(text)

    def _from_json(self, raw: bytes) -> Entry | None:
        fields = _object(raw)
        if fields is not None:
            return _known(fields)
        entry = _salvaged(raw)
        if entry is not None:
            self.cut += 1
        return entry


def entry_from_line(raw: bytes) -> Entry:
    """A line by itself, as `Lines` would read it first."""
    return Lines().feed(raw) or Entry(realtime=0.0, message="")


def unframed(raw: bytes) -> bytes:
    """Without what json-seq and json-sse put before an object."""
    for mark in _FRAMING:
        if raw.startswith(mark + b"{"):
            return raw[len(mark) :]
    return raw


def _object(raw: bytes) -> dict[str, Any] | None:
    import orjson  # native; only for who reads a journal

    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:  # invalid UTF-8, lone surrogates, control characters
        try:
            found = json.loads(raw.decode("utf-8", "replace"), strict=False)
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def _known(fields: dict[str, Any]) -> Entry | None:
    """An entry from an object of journald's or docker's json-file; None for anybody else's."""
    if "MESSAGE" in fields or "__REALTIME_TIMESTAMP" in fields:
        return Entry.from_json(fields)
    log = fields.get("log")
    if isinstance(log, str) and isinstance(fields.get("time"), str):
        entry = entry_from_text(log)
        return replace(entry, realtime=iso_time(fields["time"]) or entry.realtime)
    return None


def _salvaged(raw: bytes) -> Entry | None:
    """What a cut line of JSON still says."""
    fields: dict[str, Any] = {}
    for name, value in _FIELD.findall(raw):
        fields[name.decode("ascii")] = _string(value)
    if (message := _CUT_MESSAGE.search(raw)) is not None:
        # A backslash or half an escape may be the last of it.
        fields["MESSAGE"] = _string(b'"' + message[1] + b'"')
    elif (numbers := _CUT_BYTES.search(raw)) is not None:
        *whole, _ = numbers[1].split(b",")
        fields["MESSAGE"] = [int(number) for number in whole if number.strip()]
    return Entry.from_json(fields) if "MESSAGE" in fields else None


def _string(quoted: bytes) -> str:
    text = quoted.decode("utf-8", "replace")
    try:
        return str(json.loads(text, strict=False))
    except ValueError:
        return text[1:-1]
