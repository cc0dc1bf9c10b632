"""opsctl lab, without a lab: what it makes of the names it is given."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from opsctl import lab
from opsctl.cli.app import app
from opsctl.lab import Lab

INVENTORY = """\
version: 1
hosts:
  beta:
    lab: staging
    services:
      serve: {unit: s.service, python: /p, port: 1, model: {path: /m, served_name: m}}
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The labs that were made anew. The inventory names `staging`, and `mine` runs."""
    path = tmp_path / "inventory.yaml"
    path.write_text(INVENTORY)
    monkeypatch.setenv("OPSCTL_INVENTORY", str(path))
    anew: list[str] = []

    def reset(name: str, service: object, **_: Any) -> Lab:
        anew.append(name)
        return Lab(name, "127.77.0.9", 2222, tmp_path, running=True, tree="t", created=0.0)

    monkeypatch.setattr(lab, "reset", reset)
    monkeypatch.setattr(lab, "all_labs", lambda: [SimpleNamespace(name="mine")])
    return anew


@pytest.mark.parametrize("name", ["staging", "mine", "ct200-lab"])
def test_a_lab_that_there_is_or_that_the_inventory_names_is_reset(
    made: list[str], name: str
) -> None:
    done = CliRunner().invoke(app, ["lab", "reset", name])
    assert done.exit_code == 0, done.output
    assert made == [name]


def test_a_slip_of_the_pen_makes_no_lab(made: list[str]) -> None:
    done = CliRunner().invoke(app, ["lab", "reset", "stagign", "--json"])
    assert (done.exit_code, made) == (2, [])
    (reason,) = json.loads(done.stdout)["reasons"]
    assert reason["code"] == "unknown_name"
    assert "there are ct200-lab, mine, staging" in reason["message"]
    assert "opsctl lab up stagign" in reason["remedy"]


@pytest.fixture
def ended(made: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The labs that were powered off; `mine` runs."""
    off: list[str] = []

    def down(name: str) -> bool:
        off.extend([name] if name == "mine" else [])
        return name == "mine"

    monkeypatch.setattr(lab, "down", down)
    return off


@pytest.mark.parametrize("name", ["mine", "staging", "ct200-lab"])
def test_a_known_lab_is_down_afterwards_whether_it_was_up_or_not(
    ended: list[str], name: str
) -> None:
    done = CliRunner().invoke(app, ["lab", "down", name])
    assert done.exit_code == 0, done.output
    assert ended == ([name] if name == "mine" else [])


def test_a_slip_of_the_pen_powers_nothing_off(ended: list[str]) -> None:
    done = CliRunner().invoke(app, ["lab", "down", "mien", "--json"])
    assert (done.exit_code, ended) == (2, [])
    (reason,) = json.loads(done.stdout)["reasons"]
    assert reason["code"] == "unknown_name"
    assert "no lab 'mien' to power off; there are ct200-lab, mine, staging" in reason["message"]
    assert "opsctl lab status" in reason["remedy"]
