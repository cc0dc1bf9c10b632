from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsctl.journal import Entry, clean, entry_from_text, redact

DATA = Path(__file__).parent / "data"


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("case", rows("entries.jsonl"), ids=lambda case: case["about"])
def test_entry(case: dict[str, Any]) -> None:
    entry = Entry.from_json(case["json"])
    for name, expected in case["expect"].items():
        assert getattr(entry, name) == expected, name


@pytest.mark.parametrize("case", rows("clean.jsonl"), ids=lambda case: case["clean"][:20])
def test_clean(case: dict[str, str]) -> None:
    assert clean(case["raw"]) == case["clean"]


@given(st.text(st.characters(codec=None)))
def test_clean_is_safe_and_settles(text: str) -> None:
    once = clean(text)
    once.encode("utf-8")
    assert clean(once) == once
    assert "\r" not in once
    assert "\x1b" not in once


FIELD = st.recursive(st.none() | st.text() | st.integers() | st.booleans(), st.lists, max_leaves=5)


@given(st.dictionaries(st.sampled_from(["MESSAGE", "_PID", "PRIORITY", "__CURSOR", "UNIT"]), FIELD))
def test_no_field_is_too_odd(fields: dict[str, object]) -> None:
    Entry.from_json(fields).message.encode("utf-8")


@pytest.mark.parametrize("case", rows("redact.jsonl"), ids=lambda case: case["kept"])
def test_redact(case: dict[str, str]) -> None:
    shown = redact(case["line"])
    assert case["hidden"] not in shown
    assert case["kept"] in shown


@pytest.mark.parametrize(
    ("line", "message", "pid"),
    [
        ("Jul 09 06:41:41 gpu-a sglang[4130]: [x] y", "[x] y", 4130),
        ("2026-07-09T06:41:41+0000 gpu-a sglang[4130]: y", "y", 4130),
        ("sglang-1  | [2025-10-29 11:25:58 TP3] y", "[2025-10-29 11:25:58 TP3] y", None),
        ("1779264164797\t2026-05-20T08:02:44.797Z\t  File", "  File", None),
        ("2026-09-22T06:57:47.362239015Z RuntimeError: x", "RuntimeError: x", None),
        ("RuntimeError: x", "RuntimeError: x", None),
    ],
)
def test_plain_text(line: str, message: str, pid: int | None) -> None:
    entry = entry_from_text(line)
    assert (entry.message, entry.pid) == (message, pid)
