"""What to do next, as a command that can be pasted; and what a misspelt word was meant to be."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_tools import invoker

from opsctl import errors
from opsctl.cli import remedies
from opsctl.cli.app import app
from opsctl.cli.remedies import addressed, of_report
from opsctl.errors import HostKeyUnknown, OpsctlError, Refused, Unreachable
from opsctl.report import Report, of_error
from opsctl.rollout import observe

PACKAGE = Path(errors.__file__).parent


@pytest.fixture
def opsctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    return invoker(tmp_path, monkeypatch)


# -- the host in a remedy --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("opsctl status", "opsctl status ct200"),
        ("run `opsctl doctor` there", "run `opsctl doctor ct200` there"),
        ("opsctl history has them", "opsctl history ct200 has them"),
        ("opsctl status ct200 says how", "opsctl status ct200 says how"),
        ("see opsctl logs HOST.", "see opsctl logs ct200."),
        ("(opsctl verify).", "(opsctl verify ct200)."),
        ("opsctl rollback ct200 5", "opsctl rollback ct200 5"),
        ("opsctl deploy --adopt", "opsctl deploy ct200 --adopt"),
        ("opsctl baseline list", "opsctl baseline list ct200"),
        ("opsctl lock show, then opsctl plan", "opsctl lock show ct200, then opsctl plan ct200"),
        ("opsctl patches list", "opsctl patches list"),
        ("opsctl lab status", "opsctl lab status"),
        ("opsctl-guard-x.service of opsctl", "opsctl-guard-x.service of opsctl"),
        ("opsctl status ct200-lab", "opsctl status ct200 ct200-lab"),
        ("", ""),
    ],
)
def test_commands_name_the_host(text: str, said: str) -> None:
    assert addressed(text, "ct200") == said
    assert addressed(said, "ct200") == said or "ct200-lab" in said, "once is enough"


def test_one_of_several_services_is_named() -> None:
    assert addressed("opsctl status ct200 says", "ct200", "b") == (
        "opsctl status ct200 --service b says"
    )
    twice = addressed(addressed("opsctl rollback 5", "ct200", "b"), "ct200", "b")
    assert twice == "opsctl rollback ct200 --service b 5"


def _takes_a_host(group: Any, above: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _takes_a_host(command, f"{above}{name} ")
        elif "--host" in {option for p in command.params for option in p.opts}:
            yield f"{above}{name}"


def test_every_command_that_takes_a_host_is_known() -> None:
    assert set(_takes_a_host(typer.main.get_command(app))) == remedies.ON_HOST


def test_findings_are_addressed_too() -> None:
    found = [{"name": "a", "remedy": "opsctl restart"}, {"name": "b", "remedy": ""}]
    report = Report(command="x", verdict="pass", exit_code=0, summary="", data={"findings": found})
    assert [each["remedy"] for each in of_report(report, "h").data["findings"]] == [
        "opsctl restart h",
        "",
    ]


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (Refused("no"), "opsctl doctor alpha says what is in the way"),
        (Refused("no", remedy="mend it"), "mend it"),
        (Unreachable("gone", remedy="look at it"), "look at it; then: opsctl doctor alpha"),
        (Unreachable("gone", remedy="run `opsctl status`"), "run `opsctl status alpha`"),
        (HostKeyUnknown("new", remedy="scan"), "scan"),
    ],
)
def test_what_a_host_says_is_addressed_on_the_way_out(
    error: OpsctlError, remedy: str, opsctl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(session: Any) -> Report:
        raise error

    monkeypatch.setattr(observe, "status", fail)
    report = json.loads(opsctl("status", "--json").stdout)
    assert report["reasons"][0]["remedy"] == remedy
    assert remedy in opsctl("status").stderr.replace("\n", " ")


def test_without_a_host_nothing_is_made_up() -> None:
    report = of_error("x", Unreachable("gone", remedy="look"))
    assert report.reasons[0].remedy == "look"


# -- misspelt --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "close", "remedy"),
    [
        (("deplyo",), "'deploy'", "see opsctl --help"),
        (("lock", "shwo"), "'show'", "see opsctl lock --help"),
        (("deploy", "--budgt", "3m"), "--budget", "see opsctl deploy --help"),
        (("deploy", "--smoke", "standrd"), "standard", "see opsctl deploy --help"),
        (("status", "alhpa"), "'alpha'", "--host alpha, or add it: opsctl init alhpa --add"),
        (("status", "alpha", "-s", "serv"), "'serve'", "--service serve"),
        (("patches", "show", "ddtre"), "'ddtree'", "opsctl patches list"),
        (("diagnose", "alhpa"), "'alpha'", "name a host"),
        (("lab", "reset", "ct200-lba"), "'ct200-lab'", "opsctl lab up"),
    ],
)
def test_a_misspelt_word_proposes_the_nearest(
    argv: tuple[str, ...], close: str, remedy: str, tmp_path: Path
) -> None:
    text = "version: 1\nhosts:\n  alpha:\n    ssh: {address: 192.0.2.1}\n    services:\n"
    text += "      serve: {unit: s.service, python: /p, port: 1, "
    text += "model: {path: /m, served_name: m}}\n"
    text += "  ct200-lab:\n    lab: ct200-lab\n    services:\n"
    text += "      serve: {unit: s.service, python: /p, port: 1, "
    text += "model: {path: /m, served_name: m}}\n"
    (tmp_path / "inventory.yaml").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "opsctl.cli", *argv, "--json"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(PACKAGE.parent), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout)
    assert (done.returncode, report["exit_code"]) == (2, 2)
    assert close in report["summary"]
    assert remedy in report["reasons"][0]["remedy"]


# -- every error has a remedy ----------------------------------------------------------------

_KINDS = {name for name, value in vars(errors).items() if isinstance(value, type)}


def _without_remedy(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        remedy = given.get("remedy")
        empty = remedy is None or (isinstance(remedy, ast.Constant) and not remedy.value)
        declined = isinstance(given.get("code"), ast.Name)
        if name in _KINDS and node.args and empty and not declined:
            yield f"{path.name}:{node.lineno}"


@pytest.mark.parametrize("room", ["cli", "inventory", "transport", "discovery", "rollout"])
def test_an_error_has_a_remedy(room: str) -> None:
    found = [at for path in (PACKAGE / room).glob("*.py") for at in _without_remedy(path)]
    assert found == []


def test_an_error_without_a_remedy_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("raise UsageError('a')\nraise errors.Refused('b', remedy='')\n")
    assert list(_without_remedy(path)) == ["x.py:1", "x.py:2"]
