"""A baseline in one go: whatever the capture comes to, the service speculates again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rollout_tools import SERVICE, facts

from opsctl.errors import Refused, Unreachable, UsageError
from opsctl.events import Event
from opsctl.playbook import Shelf
from opsctl.report import Reason, Report
from opsctl.rollout import baselining, capturing, commands, steps
from opsctl.rollout.run import Options, Run
from opsctl.rollout.session import Session
from opsctl.units.properties import Unit

DOWN = {"ActiveState": "inactive", "SubState": "dead"}
PLAIN = {"DropInPaths": "/run/systemd/system/serve.service.d/zz-opsctl-plain.conf"}


def report(command: str, exit_code: int = 0, code: str = "some_code") -> Report:
    verdict = {0: "pass", 12: "inconclusive"}.get(exit_code, "fail")
    text = f"{command} said"
    return Report(
        command=command,
        verdict=cast(Any, verdict),
        exit_code=exit_code,
        summary=text,
        reasons=(Reason(code=code, message=text),) if exit_code else (),
        data={"id": "0123456789ab"} if command == "baseline capture" else {},
    )


class Host:
    """A unit with speculation, whose restarts come to what they are told to."""

    host = SimpleNamespace(name="alpha")
    service = SERVICE
    outcomes: tuple[Report | BaseException, ...] = ()
    take: Report | BaseException = report("baseline capture")
    lost = False

    def __init__(self) -> None:
        self.shown = facts()["unit"]
        self.starts: list[bool] = []  # True without speculation
        self.locked = False
        self.told: list[Event] = []
        self.calls: list[str] = []
        self.remote = SimpleNamespace(call=self.call)

    def emit(self, event: Event) -> None:
        self.told.append(event)

    def unit(self) -> Unit:
        self._reachable()
        return Unit.from_show(self.shown)

    def call(self, op: str, **_: Any) -> None:
        self._reachable()
        self.calls.append(op)
        assert op in {"unlock", "disarm_guard"}
        if op == "disarm_guard" and not self.locked:
            raise Refused("this needs the lock of the service, which is not held")
        self.locked = self.locked and op != "unlock"

    def lock(self, why: str, wait: float) -> None:
        assert wait >= 9.0, "the guard may be at work"
        self._reachable()
        self.locked = True

    def reconnect(self) -> None:
        self.lost = False

    def _reachable(self) -> None:
        if self.lost:
            raise Unreachable("no route to host")

    def restart(self, _: Any, patches: Path, options: Options) -> Report:
        assert not self.locked, "the lock of the restart before is in the way"
        self._reachable()
        outcome = dict(enumerate(self.outcomes)).get(len(self.starts), report("restart"))
        if isinstance(outcome, Refused):
            raise outcome
        self.locked = True
        self.starts.append(options.plain)
        self.shown |= {"InvocationID": f"start{len(self.starts)}", "DropInPaths": ""}
        self.shown |= PLAIN if options.plain else {}
        if isinstance(outcome, BaseException):
            raise outcome
        if outcome.exit_code == 11:
            self.shown |= DOWN
        return outcome

    def taken(self, *_: Any, **__: Any) -> Report:
        if isinstance(self.take, BaseException):
            raise self.take
        return self.take


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host()
    monkeypatch.setattr(commands, "restart", made.restart)
    monkeypatch.setattr(baselining, "take", made.taken)
    return made


def capture(host: Host) -> Report:
    return capturing.capture(cast(Session, host), Shelf(()), None, Options(budget=9.0))


def test_prompts_that_cannot_be_asked_are_refused_before_a_restart(
    host: Host, tmp_path: Path
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("version: 1\nprompts:\n  - {id: mine, kind: chat, text: Hello}\n")
    for prompts, says in ((tmp_path / "none.yaml", "none.yaml"), (path, "deep level")):
        with pytest.raises(UsageError, match=says):
            capturing.capture(cast(Session, host), Shelf(()), prompts, Options(), deep=True)
    assert host.starts == []


def test_there_and_back(host: Host) -> None:
    found = capture(host)
    assert (found.command, found.verdict, found.exit_code) == ("baseline capture", "pass", 0)
    assert host.starts == [True, False]


def test_a_server_that_is_plain_already(host: Host) -> None:
    host.shown |= PLAIN
    assert capture(host).exit_code == 0
    assert host.starts == [False]
    host.locked = False  # another session
    host.shown |= PLAIN | DOWN
    assert capture(host).exit_code == 0
    assert host.starts == [False, True, False], "one that is down has to be started"


def test_a_first_restart_that_is_refused_changes_nothing(host: Host) -> None:
    host.outcomes = (Refused("no", code="not_speculative"),)
    with pytest.raises(Refused, match="no"):
        capture(host)
    assert host.starts == []


@pytest.mark.parametrize(
    ("outcome", "exit_code", "says"),
    [
        (report("restart", 11), 10, "restart said; no baseline is kept"),
        (report("restart", 12), 10, "restart said; no baseline is kept"),
        (report("restart", 11, "interrupted"), 130, "restart said; no baseline is kept"),
        (KeyboardInterrupt(), 130, "interrupted by the operator; no baseline is kept"),
        (ValueError("x"), 10, "a bug in opsctl: ValueError: x; no baseline is kept"),
    ],
)
def test_a_plain_start_that_is_not_proven(
    host: Host, outcome: Report | BaseException, exit_code: int, says: str
) -> None:
    host.outcomes = (outcome,)
    found = capture(host)
    assert host.starts == [True, False]
    assert (found.verdict, found.exit_code) == ("fail", exit_code)
    assert found.summary == f"{says}; it is started as before"


@pytest.mark.parametrize(
    ("error", "exit_code", "code"),
    [
        (Refused("two answers", code="capture_failed"), 10, "capture_failed"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ValueError("of pydantic"), 10, "bug"),
        (SystemExit(3), 10, "bug"),
    ],
)
def test_it_goes_back_whatever_the_capture_came_to(
    host: Host, error: BaseException, exit_code: int, code: str
) -> None:
    host.take = error
    found = capture(host)
    assert host.starts == [True, False]
    assert (found.verdict, found.exit_code, found.reasons[0].code) == ("fail", exit_code, code)
    assert "started as before" in found.summary
    assert ("traceback" in str(found.data)) == (code == "bug")


def test_a_connection_that_is_lost_in_the_capture(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(*_: Any, **__: Any) -> Report:
        host.lost = True
        raise Unreachable("it is gone")

    monkeypatch.setattr(baselining, "take", take)
    found = capture(host)
    assert host.starts == [True, False]
    assert host.calls == ["disarm_guard", "unlock"]
    assert (found.exit_code, found.reasons[0].message) == (10, "it is gone")


@pytest.mark.parametrize(
    ("back", "says"),
    [
        (report("restart", 11), "serve.service is down: restart said"),
        (Refused("locked"), "serve.service runs without speculation: locked"),
        (KeyboardInterrupt(), "serve.service is active (running), and not proven: interrupted"),
    ],
)
@pytest.mark.parametrize("kept", [True, False])
def test_a_way_back_that_fails_comes_first(
    host: Host, back: Report | BaseException, says: str, kept: bool
) -> None:
    host.outcomes = (report("restart"), back)
    if not kept:
        host.take = Refused("two answers")
    found = capture(host)
    assert (found.command, found.verdict, found.exit_code) == ("baseline capture", "fail", 11)
    assert found.summary.startswith(says)
    assert ("no baseline is kept" in found.summary) != kept
    assert ("two answers" in found.summary) != kept
    assert found.data.get("id") == ("0123456789ab" if kept else None)
    assert found.reasons[0].remedy == "opsctl restart alpha"


def test_a_host_that_is_gone_for_good(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def take(*_: Any, **__: Any) -> Report:
        host.lost = True
        raise Unreachable("it is gone")

    def reconnect() -> None:
        raise Unreachable("still gone")

    monkeypatch.setattr(baselining, "take", take)
    monkeypatch.setattr(host, "reconnect", reconnect)
    found = capture(host)
    assert found.exit_code == 11
    assert "may run without speculation, or be down: still gone; it is gone" in found.summary


def test_a_way_back_that_is_not_proven_is_said(host: Host) -> None:
    host.outcomes = (report("restart"), report("restart", 12))
    found = capture(host)
    assert (found.verdict, found.exit_code) == ("pass", 0)
    assert "its health is unproved" in found.summary
    assert found.reasons[0].message == "restart said"


def test_a_start_that_could_not_be_made_is_refused_before_the_stop() -> None:
    def call(op: str, **_: Any) -> None:
        assert op == "check_plain"
        raise Refused("no option to leave out", code="not_speculative")

    session = SimpleNamespace(
        inspect=facts, service=SERVICE, host=SimpleNamespace(name="alpha"), call=call
    )
    run = Run("restart", cast(Session, session), Options(plain=True))
    with pytest.raises(Refused, match="no option to leave out"):
        steps.preflight(run)
    run = Run("restart", cast(Session, session), Options())
    assert "active" in steps.preflight(run), "with speculation nobody asks"
