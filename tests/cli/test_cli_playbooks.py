"""opsctl playbook and runbook without a host: lists, faults with their lines, and questions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from opsctl.cli import playbooks
from opsctl.cli.app import app
from opsctl.errors import Refused
from opsctl.playbook import use

RUNBOOKS = 12


def opsctl(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.output


def test_lists_and_shows_what_there_is() -> None:
    status, text = opsctl("runbook", "list", "--json")
    assert status == 0
    assert len(json.loads(text)["data"]["found"]) == RUNBOOKS
    status, text = opsctl("runbook", "show", "hung")
    assert status == 0
    for part in ("When ", "Never ", "* changes the service", "*stop", "unless unit_down"):
        assert part in text
    status, text = opsctl("playbook", "steps")
    assert status == 0
    assert "start" in text
    assert "(with: plain)" in text


def test_a_huge_file_in_the_folder_is_told_of_in_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "playbooks").mkdir()
    huge = tmp_path / "playbooks" / "huge.yaml"
    huge.write_text("steps:\n" + "  - {step: stacks}\n" * 500_000)
    (tmp_path / "inventory.yaml").write_text("version: 1\nhosts: {}\n")
    monkeypatch.chdir(tmp_path)
    status, text = opsctl("playbook", "list")
    assert status == 0
    (line,) = (line for line in text.splitlines() if line.startswith("huge"))
    assert line.endswith(f"not usable: {huge}: it has more than 32,768 characters")
    assert opsctl("playbook", "show", "huge")[0] == 2


def test_a_misspelt_name_proposes_the_nearest() -> None:
    status, text = opsctl("runbook", "show", "hug")
    assert status == 2
    assert "did you mean 'hung'?" in text


def test_check_names_every_fault_and_keeps_the_good_ones_out(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("version: 1\nname: bad\nsummary: s\nsteps:\n  - lokc\n")
    odd = tmp_path / "odd.yaml"
    odd.write_text("version: 1\nname: odd\nsummary: s\nsteps: [preflight, guard]\n")
    status, text = opsctl("playbook", "check", str(bad), str(odd))
    assert status == 2
    assert f"{bad}:5: steps.0: there is no step 'lokc'; did you mean 'lock'?" in text
    assert f"{odd}:4: steps.1: guard needs lock before it" in text
    assert opsctl("playbook", "check")[0] == 0


@pytest.mark.parametrize(
    ("answers", "asked"),
    [(["y", "y", "y"], 3), (["a"], 1), (["y", "all"], 2)],
)
def test_yes_and_all_the_rest(
    monkeypatch: pytest.MonkeyPatch, answers: list[str], asked: int
) -> None:
    told: list[str] = []

    def prompt(question: str, **how: object) -> str:
        told.append(question)
        return answers.pop(0)

    monkeypatch.setattr(typer, "prompt", prompt)
    ask = playbooks._asker("x.service", yes=False)
    for step in ("stop", "swap", "start"):
        ask(use(step))
    assert len(told) == asked


def test_anything_else_is_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typer, "prompt", lambda *_, **__: "hm")
    with pytest.raises(Refused, match="stop was declined"):
        playbooks._asker("x.service", yes=False)(use("stop"))
    playbooks._asker("x.service", yes=True)(use("stop"))


def test_the_end_of_input_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a rollout that has a way of its own; a plain abort would be a bug there."""

    def prompt(*_: object, **__: object) -> str:
        raise typer.Abort

    monkeypatch.setattr(typer, "prompt", prompt)
    with pytest.raises(KeyboardInterrupt):
        playbooks._asker("x.service", yes=False)(use("stop"))


def test_where_nobody_can_answer_it_says_so_before_anything() -> None:
    status, text = opsctl("runbook", "run", "hung", "ct200")
    assert status == 2
    assert "give --yes" in text
