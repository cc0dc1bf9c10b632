"""Every form of input, by data: what comes in, which entries come out, which gaps are told."""

from __future__ import annotations

import base64
import io
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsctl.errors import UsageError
from opsctl.journal import Entry, Reader, entry_from_text, source
from opsctl.journal.gaps import Clock, of_host

DATA = Path(__file__).parent / "data"
INPUTS = [json.loads(line) for line in (DATA / "inputs.jsonl").read_text("utf-8").splitlines()]


def data_of(case: dict[str, Any]) -> bytes:
    return base64.b64decode(case["base64"]) if "base64" in case else case["text"].encode()


def entries(reader: Reader) -> list[tuple[int, Entry]]:
    return [(line, item) for line, item in reader if isinstance(item, Entry)]


@pytest.mark.parametrize("case", INPUTS, ids=lambda case: case["about"])
def test_input(case: dict[str, Any]) -> None:
    reader = Reader(io.BytesIO(data_of(case)))
    found = entries(reader)
    assert [gap.kind for gap in reader.gaps] == case["gaps"]
    assert all(gap.remedy and gap.text and gap.line < max(reader.lines, 1) for gap in reader.gaps)
    if case["expect"] is None:
        return
    assert [line for line, _ in found] == [line for line, _ in case["expect"]]
    for (_, entry), (_, expected) in zip(found, case["expect"], strict=True):
        assert {name: getattr(entry, name) for name in expected} == expected


class Pipe(io.RawIOBase):
    """Hands out a byte or two at a time, as a slow pipe does."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._data.read(min(2, len(buffer)))
        buffer[: len(part)] = part
        return len(part)


@pytest.mark.parametrize("case", INPUTS, ids=lambda case: case["about"])
def test_a_slow_pipe_and_small_blocks_say_the_same(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Reader(io.BytesIO(data_of(case)))
    expected = entries(whole)
    monkeypatch.setattr(source, "BLOCK", 16)
    parts = Reader(io.BufferedReader(Pipe(data_of(case))))
    assert entries(parts) == expected
    assert (parts.lines, parts.size) == (whole.lines, whole.size)
    assert [gap.kind for gap in parts.gaps] == [gap.kind for gap in whole.gaps]


@pytest.mark.parametrize(
    ("data", "message", "remedy"),
    [
        (b"LPKSHHRH\0\0\0\0", "journald's own file", "--file=FILE"),
        (b"\x28\xb5\x2f\xfd\0\0", "zstd", "zstd -dc"),
        (b"__CURSOR=s=1\n__REALTIME_TIMESTAMP=1\nMESSAGE=a\n", "export format", "--output=json"),
        (b'{\n\t"MESSAGE" : "a"\n}\n', "several lines", "--output=json"),
        (b"Thu 2026-07-09 06:41:41 UTC [s=ab;i=1]\n    MESSAGE=a\n", "several", "--output=json"),
    ],
)
def test_what_is_not_read_is_said(data: bytes, message: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        entries(Reader(io.BytesIO(data)))
    assert remedy in caught.value.remedy


def test_a_packed_file_keeps_what_came_before_the_break() -> None:
    import gzip

    text = b"".join(b"%d %s\n" % (n, os.urandom(20).hex().encode()) for n in range(20_000))
    packed = gzip.compress(text)
    reader = Reader(io.BytesIO(packed[: len(packed) // 2]))
    found = [entry.message for _, entry in entries(reader)]
    assert 5_000 < len(found) < 20_000
    assert found[:-1] == text.decode().split("\n")[: len(found) - 1]
    assert [gap.kind for gap in reader.gaps] == ["cut"]


def test_a_line_without_an_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "BLOCK", 1000)
    monkeypatch.setattr(source, "LONGEST_LINE", 5000)
    reader = Reader(io.BytesIO(b"a\n" + b"x" * 50_000 + b"\nnext\n"))
    assert [len(entry.message) for _, entry in entries(reader)] == [1, 5000, 4]
    assert [(gap.kind, gap.line) for gap in reader.gaps] == [("cut", 1)]


def test_a_clock_that_was_set() -> None:
    clock = Clock()
    assert clock.see(0, "boot", 1_000_000_000, 1_000_000) is None
    assert clock.see(1, "boot", 1_002_500_000, 2_000_000) is None, "slewed"
    gap = clock.see(2, "boot", 1_064_000_000, 3_000_000)
    assert gap is not None
    assert (gap.kind, gap.line) == ("clock", 2)
    assert "forwards by 60.5 s" in gap.text
    assert clock.see(3, "other", 1_000_000_000, 0) is None, "another boot"


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"started": 100.0, "begins": 99.5, "suppressed": []}, []),
        ({"started": 100.0, "begins": 101.5, "suppressed": []}, []),
        ({"started": None, "begins": 500.0, "suppressed": []}, []),
        ({"started": 100.0, "begins": 400.0, "suppressed": []}, [("rotated", "first 300 s", None)]),
        ({"started": 100.0, "begins": None, "suppressed": []}, [("rotated", "no line", None)]),
        (
            {"started": None, "begins": 1.0, "suppressed": [{"time": 5.0, "count": 12}]},
            [("suppressed", "12 lines", 12)],
        ),
    ],
)
def test_what_a_host_knows_is_missing(facts: dict[str, Any], expected: list[Any]) -> None:
    found = list(of_host(facts))
    assert [(gap.kind, gap.count) for gap in found] == [(kind, n) for kind, _, n in expected]
    assert all(text in gap.text for gap, (_, text, _) in zip(found, expected, strict=True))


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="no zones here")
def test_a_zone_by_its_name_is_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        winter = entry_from_text("Thu 2026-01-08 07:41:41 CET gpu-a sglang[1]: y")
        summer = entry_from_text("Thu 2026-07-09 08:41:41 CEST gpu-a sglang[1]: y")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert winter.realtime == 1767854501.0
    assert summer.realtime == 1783579301.0


@given(st.lists(st.binary(max_size=80), max_size=8))
def test_no_bytes_are_too_odd(parts: list[bytes]) -> None:
    text = b"\n".join(parts)
    if text.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5")):
        return
    reader = Reader(io.BytesIO(b"x\n" + text))
    for _, entry in entries(reader):
        entry.message.encode("utf-8")
