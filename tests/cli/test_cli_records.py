"""The tables of history and audit."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.cli.records import _entry, _generation, _move, _print

ROW: dict[str, Any] = {
    "number": 3,
    "created": 0.0,
    "status": "confirmed",
    "set": {"name": "ddtree", "version": "1.1.0"},
    "signed": None,
    "version": "0.5.12.post1",
    "who": "ann@laptop",
    "from": "10.0.0.9",
    "why": "a hotfix",
    "verdict": {"verdict": "pass", "accept_len": 5.567, "ready_s": 641.0},
    "adopted": [],
    "with_unit": False,
    "in_place": True,
    "rollback": False,
    "fault": None,
}


def test_a_generation_is_a_line() -> None:
    line = _generation(ROW)
    assert line[0:2] == ("*", "3")
    assert line[3:] == (
        *("confirmed", "ddtree 1.1.0", "", "0.5.12.post1", "ann@laptop from 10.0.0.9"),
        *("accept 5.57, ready 10m41s", "a hotfix"),
    )
    signed = {"principal": "ann@example.org", "key": "ED25519 SHA256:x"}
    assert _generation({**ROW, "signed": signed})[5] == "ann@example.org"


def test_what_is_odd_about_a_generation() -> None:
    adopted = _generation({**ROW, "adopted": ["a.py"], "in_place": False, "rollback": True})
    assert (adopted[0], adopted[4]) == ("<", "ddtree 1.1.0, changed by hand")
    assert _generation({**ROW, "with_unit": True})[4] == "ddtree 1.1.0, with unit"
    failed = {"verdict": "fail", "code": "smoke_failed"}
    assert _generation({**ROW, "verdict": failed})[8] == "smoke_failed"
    bare = {**ROW, "who": None, "from": None, "why": None, "verdict": None, "set": None}
    assert _generation(bare)[4:] == ("none", "", "0.5.12.post1", "", "", "")
    broken = _generation({**ROW, "fault": "3.json is damaged"})
    assert (broken[3], broken[-1]) == ("unreadable", "3.json is damaged")
    assert len(broken) == len(adopted)


def test_an_entry_of_the_log() -> None:
    entry = {
        "time": 0.0,
        "event": "stage",
        "who": "ann",
        "number": 3,
        "why": "w",
        "set": ROW["set"],
    }
    assert _entry(entry)[1:] == ("stage", "3", "ann", "w, ddtree 1.1.0")
    assert _entry({"event": "swap", "changed": 20})[4] == "changed=20"
    assert _entry({"time": "never"})[0] == ""


def test_a_way_back_is_a_line() -> None:
    move = {"time": 0.0, "what": "rollback", "number": 5, "who": "ann", "why": "w"}
    assert _move(move)[1:] == ("rollback", "5", "ann", "w")
    assert _move({**move, "what": "guard", "number": None})[1:3] == ("guard", "")


def test_columns_without_a_value_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    _print(("a", "b", "c"), [("1", "", "x"), ("22", "", "\x1b[31my")])
    assert capsys.readouterr().out == "a   c\n1   x\n22  y\n"
    _print(("a",), [], above="title\n")
    assert capsys.readouterr().out == ""
    _print(("a",), [("1",)], above="title\n")
    assert capsys.readouterr().out == "title\na\n1\n"
