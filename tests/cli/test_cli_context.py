"""From a report or an exception to stdout, stderr and the exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from cli_tools import INVENTORY, invoker
from typer.testing import CliRunner

from opsctl import errors, inventory, lab
from opsctl.cli import context
from opsctl.cli.app import app
from opsctl.errors import HostProgramError, LockHeld, OpsctlError, Refused, Unreachable
from opsctl.events import Event
from opsctl.report import Reason, Report
from opsctl.rollout import commands, locking, observe
from opsctl.rollout.session import Session


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    return invoker(tmp_path, monkeypatch)


def fail_with(error: BaseException) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise error

    return function


def one_object(text: str) -> dict[str, Any]:
    """The one JSON object that stdout is."""
    assert text.count("\n") == 1
    assert text.endswith("\n")
    found: dict[str, Any] = json.loads(text)
    assert found["schema"] == "opsctl.report/1"
    return found


ENDINGS: list[tuple[BaseException, int, str, str]] = [
    (errors.UsageError("what", remedy="do this"), 2, "error", "usage"),
    (Refused("what", remedy="do this", code="drift"), 3, "refused", "drift"),
    (LockHeld("what", remedy="do this"), 4, "refused", "lock_held"),
    (Unreachable("what", remedy="do this"), 5, "error", "unreachable"),
    (HostProgramError("what", remedy="do this"), 5, "error", "host_program"),
    (KeyError("what"), 1, "error", "bug"),
]


@pytest.mark.parametrize(("error", "exit_code", "verdict", "code"), ENDINGS)
def test_an_exception_is_a_report(
    invoke: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    exit_code: int,
    verdict: str,
    code: str,
) -> None:
    monkeypatch.setattr(observe, "doctor", fail_with(error))
    done = invoke("doctor", "--json")
    report = one_object(done.stdout)
    assert done.exit_code == report["exit_code"] == exit_code
    assert (report["verdict"], report["reasons"][0]["code"]) == (verdict, code)
    assert (report["command"], report["host"], report["service"]) == ("doctor", "alpha", "serve")
    plain = invoke("doctor")
    assert (plain.exit_code, plain.stdout) == (exit_code, "")
    first, second = plain.stderr.splitlines()
    assert first.startswith("error: ")
    assert "what" in first
    assert second.startswith("  remedy: ")


@pytest.mark.parametrize("error", [KeyError("what"), HostProgramError("w", remote_traceback="far")])
def test_a_traceback_is_shown_to_who_asks_for_it(
    invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(observe, "doctor", fail_with(error))
    assert "Traceback" not in invoke("doctor").stderr
    done = invoke("--debug", "doctor")
    assert "Traceback (most recent call last)" in done.stderr
    assert isinstance(error, KeyError) or "far" in done.stderr
    assert done.stdout == ""
    assert done.exit_code == (5 if isinstance(error, OpsctlError) else 1)
    assert one_object(invoke("--debug", "doctor", "--json").stdout)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), typer.Abort()])
def test_an_interrupt_exits_130(
    invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(observe, "doctor", fail_with(error))
    done = invoke("doctor")
    assert done.exit_code == 130
    assert done.stderr == "error: interrupted; nothing was changed on the host\n"
    report = one_object(invoke("doctor", "--json").stdout)
    assert (report["exit_code"], report["verdict"]) == (130, "error")


VERDICTS = [("pass", 0), ("fail", 10), ("fail", 11), ("inconclusive", 12)]


@pytest.mark.parametrize(("verdict", "exit_code"), VERDICTS)
def test_a_report_is_printed_and_its_exit_taken(
    invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, verdict: Any, exit_code: int
) -> None:
    def smoke(session: Any, wanted: Any) -> Report:
        assert wanted.level == "quick"
        session.emit(Event("smoke", "start"))
        session.emit(Event("smoke", "progress", "half", {"elapsed_s": 1, "budget_s": 2}))
        session.emit(Event("smoke", "ok", "[bold] :key: done"))
        return Report(
            command="smoke",
            verdict=verdict,
            exit_code=exit_code,
            summary="a [b] :key: of it",
            reasons=(Reason(code="c", message="why", remedy="do"),),
        )

    monkeypatch.setattr(observe, "smoke", smoke)
    done = invoke("smoke")
    assert done.exit_code == exit_code
    assert done.stdout == f"{verdict}  a [b] :key: of it\n"
    assert "ok   smoke: [bold] :key: done\n" in done.stderr
    assert done.stderr.endswith("c: why\n  remedy: do\n")
    report = one_object(invoke("smoke", "--json").stdout)
    assert [event["state"] for event in report["events"]] == ["start", "ok"]
    quiet = invoke("--quiet", "smoke")
    assert "done" not in quiet.stderr
    assert "remedy: do" in quiet.stderr


@pytest.mark.parametrize(
    ("argv", "host"),
    [(("doctor", "alpha"), "alpha"), (("doctor", "--host", "alpha"), "alpha"), (("doctor",), None)],
)
def test_the_host_can_be_an_argument_or_an_option(
    invoke: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    argv: tuple[str, ...],
    host: str | None,
) -> None:
    asked: list[tuple[Any, Any]] = []
    real = inventory.select

    def select(book: Any, host: Any = None, service: Any = None) -> Any:
        asked.append((host, service))
        return real(book, host, service)

    monkeypatch.setattr(inventory, "select", select)
    monkeypatch.setattr(observe, "doctor", fail_with(Refused("x")))
    assert invoke(*argv, "-s", "serve").exit_code == 3
    assert asked == [(host, "serve")]


def test_the_options_of_all_stand_before_or_after_the_command(
    invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []
    real = inventory.find

    def find(explicit: Any = None) -> Path:
        asked.append(explicit)
        return real(explicit)

    monkeypatch.setattr(inventory, "find", find)
    monkeypatch.setattr(observe, "doctor", fail_with(KeyError("what")))
    own = tmp_path / "own.yaml"
    own.write_text(INVENTORY.replace("alpha", "beta"))
    for argv in (
        ("-i", str(own), "doctor", "beta"),
        ("doctor", "beta", "-i", str(own)),
        ("-i", "/nonexistent", "doctor", f"--inventory={own}", "beta"),
    ):
        asked.clear()
        done = invoke(*argv)
        assert (done.exit_code, set(asked)) == (1, {own}), done.stderr
        assert "Traceback" not in done.stderr
    assert invoke("doctor").exit_code == 1, "OPSCTL_INVENTORY"
    assert asked[-1] is None
    assert "Traceback" in invoke("doctor", "--debug").stderr
    assert "Traceback" in invoke("--debug", "doctor").stderr


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (("--", "backup.sh", "--fast"), "backup.sh --fast"),
        (("--why", "x", "--", "backup.sh"), "backup.sh"),
        (("--host", "alpha", "--", "true"), "true"),
    ],
)
def test_a_command_is_not_taken_for_the_host(
    invoke: Callable[..., Any], argv: tuple[str, ...], named: str
) -> None:
    refused = invoke("lock", "take", *argv)
    assert refused.exit_code == 2
    text = " ".join(refused.stderr.replace("\u2502", "").split())
    assert f"name the host before --: opsctl lock take HOST -- {named}" in text


def test_a_command_after_the_host_is_the_command(
    invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []

    def take(session: Any, options: Any, argv: Any, *, quiet: bool) -> Report:
        taken.append((session.host.name, *argv))
        return Report(command="lock take", verdict="pass", exit_code=0, summary="")

    monkeypatch.setattr(locking, "take", take)
    assert invoke("lock", "take", "alpha", "--", "sh", "-c", "--", "-q").exit_code == 0
    assert invoke("lock", "take", "alpha").exit_code == 0
    assert invoke("lock", "take").exit_code == 0
    assert taken == [("alpha", "sh", "-c", "--", "-q"), ("alpha",), ("alpha",)]


def labs(monkeypatch: pytest.MonkeyPatch, **running: bool) -> None:
    """The labs of this machine, and whether each runs."""
    found = {name: SimpleNamespace(name=name, running=runs) for name, runs in running.items()}
    monkeypatch.setattr(lab, "all_labs", lambda: list(found.values()))
    monkeypatch.setattr(lab, "status", found.get)


def test_a_host_that_there_is_not(
    invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    labs(monkeypatch, betas=True, dead=False)
    done = invoke("status", "beta", "--json")
    assert done.exit_code == 2
    report = one_object(done.stdout)
    assert report["reasons"][0]["code"] == "unknown_name"
    assert report["host"] is None
    assert report["summary"].endswith(
        "there are alpha, and running without an entry: betas; did you mean 'betas'?"
    )


@pytest.mark.parametrize("entry", [True, False])
def test_a_running_lab_needs_no_entry_as_the_default_either(
    invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, entry: bool
) -> None:
    """Its service is that of the inventory's own lab, without which there is none."""
    labs(monkeypatch, mine=True)
    path = tmp_path / "own.yaml"
    way_in = "lab: alpha" if entry else "ssh: {address: 192.0.2.1}"
    text = INVENTORY.replace("ssh: {address: 192.0.2.1}", way_in)
    path.write_text(text.replace("hosts:", "defaults: {host: mine}\nhosts:"))
    asked: list[str] = []

    def doctor(session: Any, *_: Any) -> Report:
        asked.append(session.host.name)
        return Report(
            command="doctor", verdict="pass", exit_code=0, summary="", data={"findings": []}
        )

    monkeypatch.setattr(observe, "doctor", doctor)
    done = invoke("doctor", "-i", str(path))
    assert (done.exit_code, asked) == ((0, ["mine"]) if entry else (2, [])), done.stderr
    if not entry:
        assert "the lab mine runs, but" in done.stderr
    labs(monkeypatch, mine=False)
    done = invoke("doctor", "-i", str(path))
    assert done.exit_code == 2
    assert "no host is called 'mine', and no lab of that name runs" in done.stderr


# -- what changes a host asks first ----------------------------------------------------------


def a_plan(*, noop: bool, active: bool) -> Any:
    target = SimpleNamespace(distribution="sglang", version="0")
    return SimpleNamespace(
        noop=noop,
        facts={
            "unit": {"ActiveState": "active" if active else "inactive", "SubState": "running"},
            "loads": [645.0],
            "generation": None,
            "lock": None,
        },
        patchset=SimpleNamespace(target=target, label="ddtree 1.0.0", patches=["p"]),
        installed=None,
        adopted=(),
        new_patches=("p",),
        changes=[] if noop else [SimpleNamespace(path="a.py", added=2, removed=1)],
        unit=(),
        unit_changes=(),
        with_unit=False,
        to_json=dict,
    )


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that were carried out."""
    carried_out: list[str] = []

    def carry_out(name: str) -> Callable[..., Report]:
        def function(*args: Any, **kwargs: Any) -> Report:
            carried_out.append(name)
            return Report(command=name, verdict="pass", exit_code=0, summary="done")

        return function

    for name in ("deploy", "restart", "rollback"):
        monkeypatch.setattr(commands, name, carry_out(name))
    question = "Roll back serve on alpha from generation 2 (a 2) to generation 1 (a 1)?"
    monkeypatch.setattr(commands, "rollback_question", lambda *_: question)
    monkeypatch.setattr(commands, "plan", lambda *args, **_: a_plan(noop=False, active=True))
    return carried_out


@pytest.mark.parametrize("name", ["deploy", "restart", "rollback"])
def test_without_a_terminal_and_yes_nothing_is_changed(
    invoke: Callable[..., Any], done: list[str], name: str
) -> None:
    refused = invoke(name)
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert one_object(invoke(name, "--json").stdout)["exit_code"] == 2
    assert done == []
    assert invoke(name, "--yes").exit_code == 0
    assert done == [name]


class SysWithATerminal:
    """`sys`, whose stdin says that somebody is there to answer."""

    stdin = SimpleNamespace(isatty=lambda: True)

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)


@pytest.mark.parametrize(
    ("answer", "exit_code"), [("y\n", 0), ("yes\n", 0), ("n\n", 3), ("\n", 3), ("", 130)]
)
@pytest.mark.parametrize("name", ["deploy", "restart", "rollback"])
def test_a_terminal_is_asked(
    invoke: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    done: list[str],
    name: str,
    answer: str,
    exit_code: int,
) -> None:
    assert invoke is not None
    monkeypatch.setattr(context, "sys", SysWithATerminal())
    asked = CliRunner().invoke(app, [name], input=answer)
    assert asked.exit_code == exit_code
    assert "[y/N]" in asked.stderr
    assert ("from generation 2 (a 2) to generation 1" in asked.stderr) == (name == "rollback")
    assert done == ([name] if exit_code == 0 else [])
    if exit_code == 3:  # an answer is no error
        assert asked.stderr.endswith("not applied\n")
        assert "error" not in asked.stderr


def test_a_rollback_that_has_nothing_to_do_does_not_ask(
    invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, done: list[str]
) -> None:
    monkeypatch.setattr(context, "sys", SysWithATerminal())
    monkeypatch.setattr(commands, "rollback_question", lambda *_: None)
    assert "[y/N]" not in invoke("rollback").stderr
    assert done == ["rollback"]


def test_a_failed_step_and_the_error_do_not_say_the_same(
    invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, done: list[str]
) -> None:
    def held(session: Any, *_: Any) -> Any:
        session.emit(Event("lock", "fail", "ann holds the lock"))
        raise LockHeld("ann holds the lock", remedy="--lock-wait 10m")

    monkeypatch.setattr(commands, "restart", held)
    refused = invoke("restart", "--yes")
    assert refused.exit_code == 4
    assert refused.stderr.splitlines() == [
        "FAIL lock: ann holds the lock",
        "error: nothing was changed on the host",
        "  remedy: --lock-wait 10m",
    ]
    quiet = invoke("restart", "--yes", "--quiet")
    assert quiet.stderr.splitlines()[0] == "error: ann holds the lock"


def test_whose_lock_would_be_ended_is_said_where_nobody_can_answer(
    invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = {"who": "ann@laptop", "why": "a deploy", "since": None, "pid": 7}
    now = {"holder": holder, "by_guard": False, "terms": None, "report": None}
    monkeypatch.setattr(Session, "lock_state", lambda self: now)
    refused = invoke("lock", "release")
    assert refused.exit_code == 2
    assert "ann@laptop holds the lock" in refused.stderr
    assert "--yes" in refused.stderr


@pytest.mark.parametrize(
    ("noop", "active", "asks"),
    [(True, True, False), (True, False, True), (False, True, True), (False, False, True)],
)
def test_a_deploy_that_changes_nothing_does_not_ask(
    invoke: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    done: list[str],
    noop: bool,
    active: bool,
    asks: bool,
) -> None:
    monkeypatch.setattr(commands, "plan", lambda *args, **_: a_plan(noop=noop, active=active))
    assert invoke("deploy").exit_code == (2 if asks else 0)
    assert done == ([] if asks else ["deploy"])


def test_a_deploy_describes_itself_on_stderr(invoke: Callable[..., Any], done: list[str]) -> None:
    shown = invoke("deploy", "--yes")
    assert done == ["deploy"]
    assert shown.stderr.splitlines() == [
        "alpha  serve  sglang 0  patch set none -> ddtree 1.0.0",
        "  1 of 1 patches new: p",
        "  a.py (+2 -1)",
        "  restart needed; last loads took 10m45s",
    ]
    assert shown.stdout == "pass  done\n"


@pytest.mark.parametrize("option", ["--budget", "--stall", "--lock-wait"])
def test_a_bound_that_is_no_duration(
    invoke: Callable[..., Any], done: list[str], option: str
) -> None:
    refused = invoke("restart", "--yes", option, "soon")
    assert refused.exit_code == 2
    assert f"{option}: expected a duration such as 90s or 15m, not 'soon'" in refused.stderr
    for value, cause in (
        ("0", "a duration must be above zero"),
        ("100h", "a duration must be 24 h at most"),
        ("-5m", "expected a duration such as 90s or 15m, not '-5m'"),
        ("nan", "expected a duration such as 90s or 15m, not 'nan'"),
    ):
        refused = invoke("restart", "--yes", f"{option}={value}")
        assert refused.exit_code == 2
        assert f"{option}: {cause}" in refused.stderr
        assert f"remedy: such as {option} 15m" in refused.stderr
    assert done == []


def test_patches_of_a_folder_that_there_is_not(invoke: Callable[..., Any]) -> None:
    refused = invoke("plan", "--patches", "/nonexistent", "--json")
    assert refused.exit_code == 2
    assert "/nonexistent: no such folder" in one_object(refused.stdout)["summary"]


def test_following_has_no_report(invoke: Callable[..., Any]) -> None:
    refused = invoke("logs", "--follow", "--json")
    assert refused.exit_code == 2
    assert "--follow" in one_object(refused.stdout)["summary"]
