"""Unit files read as systemd reads them."""

from __future__ import annotations

import math

import pytest

from opsctl.units.unitfile import UnitText, parse, seconds, size, true, words


def test_sections_comments_and_continued_lines() -> None:
    text = (
        "A=0\n[Unit]\n# no\n; no\nDescription = a b\n[Service]\nExecStart=/x \\\n# no\n  --y \\\n"
    )
    text += "  --z\nUser=me"
    found = [(s.section, s.key, s.value, s.line) for s in parse("/u", text)]
    assert found == [
        ("Unit", "Description", "a b", 5),
        ("Service", "ExecStart", "/x  --y  --z", 7),
        ("Service", "User", "me", 11),
    ]


def test_drop_ins_come_after() -> None:
    unit = UnitText.of(
        [
            ("/u", "[Service]\nExecStart=/a\nRestart=no\nEnvironment=A=1"),
            ("/u.d/1", "[Service]\nExecStart=\nExecStart=/b\nEnvironment=B=2\nRestart=always"),
            ("/u.d/2", "[Service]\nRestart="),
        ]
    )
    assert [s.value for s in unit.all("ExecStart")] == ["/b"]
    assert [s.value for s in unit.all("Environment")] == ["A=1", "B=2"]
    assert unit.last("Restart") is None, "an empty assignment is the default again"
    found = unit.all("ExecStart")[0]
    assert found.where == "/u.d/1:3"
    assert unit.last("ExecStart", section="Unit") is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("90", 90.0),
        ("1min 30s", 90.0),
        ("15m", 900.0),
        ("2h30min", 9000.0),
        ("100ms", 0.1),
        ("infinity", math.inf),
        ("", None),
        ("soon", None),
        ("5 parsecs", None),
    ],
)
def test_spans(text: str, value: float | None) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1024", 1024.0),
        ("2G", float(2 << 30)),
        ("50%", 500.0),
        ("infinity", math.inf),
        ("lots", None),
        ("", None),
    ],
)
def test_sizes(text: str, value: float | None) -> None:
    assert size(text, 1000) == value


def test_a_share_of_an_unknown_whole_is_no_limit() -> None:
    assert size("50%", 0) == math.inf


def test_words_and_booleans() -> None:
    assert words('A=1 "B=two words" \'C="x"\'') == ["A=1", '"B=two words"', "'C=\"x\"'"]
    assert [true(text) for text in ("yes", "On", "1", "no", "")] == [True, True, True, False, False]
