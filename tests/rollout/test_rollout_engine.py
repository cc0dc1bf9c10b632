"""The steps in order, and the way back from whatever goes wrong: with steps that are scripted."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rollout_tools import SERVICE, facts

from opsctl import errors
from opsctl.errors import LockHeld, Refused, Unreachable
from opsctl.events import Event
from opsctl.playbook import Playbook
from opsctl.report import Report
from opsctl.rollout import engine, registry, steps, waiting
from opsctl.rollout.run import Options, Run, StepFailed
from opsctl.rollout.session import Session
from opsctl.units.properties import Unit

NAMES = ("preflight", "lock", "stage", "guard", "stop", "swap", "start", "wait", "smoke", "confirm")


CONFIRM = steps.confirm  # before any test replaces it


class FakeSession:
    """Reachable unless told otherwise; remembers what it was asked."""

    host = SimpleNamespace(name="alpha")
    service = SERVICE

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.events: list[Event] = []
        self.lost = False
        self.lock_held_for = 0
        self.can_reconnect = True
        self.token = "t"
        self.guard_report: dict[str, Any] | None = None

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def call(self, op: str, **params: Any) -> None:
        self.calls.append((op, params))
        if op == "lock" and self.lock_held_for:
            self.lock_held_for -= 1
            raise LockHeld("ann holds the lock")

    def lock(self, why: str) -> None:
        self.call("lock", why=why)

    def lock_state(self) -> dict[str, Any]:
        return {"terms": None, "report": self.guard_report}

    def unit(self) -> Unit:
        if self.lost:
            raise Unreachable("the connection to the host was lost")
        return Unit.from_show(facts()["unit"])

    def reconnect(self) -> None:
        if not self.can_reconnect:
            raise Unreachable("no route to host")
        self.lost = False


class Script:
    """A rollout whose steps do what they are told at their n-th turn, else what a good one does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, before: str = "active") -> None:
        self.session = FakeSession()
        self.done: list[str] = []
        self.faults: dict[str, list[Callable[[], None] | None]] = {}
        self.verdicts = ["pass"]
        self.run = Run("deploy", cast(Session, self.session), Options(budget=5.0))
        self.before = before
        for name in (*NAMES, "choose", "record"):
            function = self._step(name)
            monkeypatch.setitem(registry.ACTS, name, function)
            monkeypatch.setattr(steps, name, function, raising=False)
        monkeypatch.setattr(time, "sleep", lambda seconds: None)  # tenacity's

    def _step(self, name: str) -> Callable[[Run], str]:
        def step(run: Run) -> str:
            target = f" {run.target}" if name == "swap" else ""
            self.done.append(name + target)
            if name == "preflight":
                shown = facts({"unit.ActiveState": self.before})
                run.unit_before = Unit.from_show(shown["unit"])
                run.origin = 3
            if name == "stage":
                run.target = 4
            if name in {"stop", "swap", "start"}:
                run.touched = True
            if name == "swap":
                run.swapped = True
            faults = self.faults.get(name, [])
            fault = faults.pop(0) if faults else None
            if fault is not None:
                fault()
            if name == "smoke":
                verdict = self.verdicts.pop(0) if self.verdicts else "pass"
                run.smoke = cast(
                    Any,
                    SimpleNamespace(
                        verdict=verdict,
                        reasons=("unproved",),
                        accept_len=4.0,
                        level="quick",
                        exam=None,
                        verify_steps=31,
                        to_json=dict,
                    ),
                )
            return name

        return step

    def fail(self, name: str, error: BaseException, *, at: int = 1) -> None:
        def fault() -> None:
            raise error

        self.faults.setdefault(name, []).extend([*[None] * (at - 1), fault])

    def execute(self, on_failure: str = "restore") -> Report:
        other = {} if self.run.command == "deploy" else {"stage": "choose"}
        names = [other.get(name, name) for name in NAMES]
        if on_failure == "report":  # of a restart, which puts nothing in place
            names = [*(name for name in NAMES[:-1] if name not in {"stage", "swap"}), "record"]
        playbook = Playbook.model_validate(
            {
                "version": 1,
                "name": "x",
                "summary": "y",
                "steps": names,
                "on_failure": [] if on_failure == "report" else [on_failure],
            }
        )
        return engine.execute(self.run, playbook)

    def roll_back(self, target: int = 2) -> None:
        """What is executed is a rollback from 3 to `target`."""
        self.run.command, self.run.target, self.run.target_status = "rollback", target, "confirmed"

    def lose_to_the_guard(self, name: str, **report: Any) -> None:
        """The connection is lost in step `name`; the guard has acted when it is there again."""

        def lose() -> None:
            self.session.lost = True
            self.session.guard_report = GUARD_DONE | report
            raise Unreachable("the connection to the host was lost")

        self.faults.setdefault(name, []).append(lose)

    def concluded(self) -> list[tuple[int, str]]:
        return [
            (params["number"], params["status"])
            for op, params in self.session.calls
            if op == "conclude"
        ]


GUARD_DONE: dict[str, Any] = {
    "token": "t",
    "at": 0.0,
    "why": "its client was lost",
    "who": "ann",
    "command": "deploy",
    "to": 3,
    "serving": True,
    "healthy": True,
    "seconds": 12.0,
}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    return Script(monkeypatch)


FORWARD = ["preflight", "lock", "stage", "guard", "stop"]
FORWARD += ["swap 4", "start", "wait", "smoke", "confirm"]
BACK = ["stop", "swap 3", "start", "wait", "smoke"]


def test_all_is_well(script: Script) -> None:
    report = script.execute()
    assert script.done == FORWARD
    assert (report.verdict, report.exit_code, report.generation) == ("pass", 0, 4)
    assert (report.data["accept_len"], report.data["verify_steps"]) == (4.0, 31)
    assert [(e.step, e.state) for e in script.session.events[:2]] == [
        ("preflight", "start"),
        ("preflight", "ok"),
    ]


BOOM = StepFailed("boom", "it broke", remedy="mend it", evidence={"line": "x"})


@pytest.mark.parametrize("name", ["stop", "swap", "start", "wait", "smoke", "confirm"])
@pytest.mark.parametrize("error", [BOOM, Refused("it broke", code="boom")])
def test_a_failure_after_the_first_change_is_undone(
    script: Script, name: str, error: Exception
) -> None:
    script.fail(name, error)
    report = script.execute()
    forward = FORWARD[: [step.split()[0] for step in FORWARD].index(name) + 1]
    back = [step for step in BACK if step != "swap 3" or "swap 4" in forward]
    assert script.done == [*forward, *back]
    assert (report.verdict, report.exit_code, report.generation) == ("fail", 10, 3)
    assert report.summary == "it broke; rolled back, the old version serves"
    assert (report.reasons[0].code, report.data["restored"]) == ("boom", True)
    assert script.concluded() == [(4, "rolled_back")]
    assert script.run.budget == SERVICE.load.budget, "the old version has its usual budget"
    assert script.run.strict is False


@pytest.mark.parametrize("name", ["preflight", "lock", "stage"])
@pytest.mark.parametrize(
    "error", [Refused("no", code="drift"), Unreachable("gone"), KeyboardInterrupt(), KeyError("b")]
)
def test_before_any_change_there_is_nothing_to_undo(
    script: Script, name: str, error: BaseException
) -> None:
    script.fail(name, error)
    with pytest.raises(type(error)):
        script.execute()
    assert script.done[-1] == name
    assert "stop" not in script.done
    # The failing stage had recorded its generation: it is not left to look alive.
    assert script.concluded() == ([(4, "abandoned")] if name == "stage" else [])


def test_a_bug_in_the_middle_is_undone_too(script: Script) -> None:
    script.fail("wait", KeyError("site"))
    report = script.execute()
    assert (report.exit_code, report.reasons[0].code) == (10, "bug")
    assert "KeyError: 'site'" in report.summary
    assert "Traceback" in report.data["evidence"]["traceback"]


def test_an_interrupt_in_the_middle_is_undone(script: Script) -> None:
    script.fail("wait", KeyboardInterrupt())
    report = script.execute()
    assert script.done[-5:] == BACK
    assert (report.exit_code, report.reasons[0].code) == (130, "interrupted")
    told = [event for event in script.session.events if event.step == "interrupt"]
    assert [event.state for event in told] == ["warn"]
    assert told[0].message.startswith("interrupted: putting generation 3 back")


@pytest.mark.parametrize("name", ["stop", "swap", "start", "wait", "smoke"])
@pytest.mark.parametrize(
    "error",
    [StepFailed("worse", "still"), Unreachable("gone"), KeyboardInterrupt(), KeyError("b")],
)
def test_a_way_back_that_fails_is_said_loudly(
    script: Script, name: str, error: BaseException
) -> None:
    script.fail("smoke", BOOM)
    script.fail(name, error, at=1 if name == "smoke" else 2)
    report = script.execute()
    assert (report.verdict, report.exit_code) == ("fail", errors.EXIT_NOT_RESTORED)
    assert report.summary == "it broke; NOT restored, look at the host now"
    assert report.data["restored"] is False
    assert script.concluded() == []
    assert ("restore", "fail") in [(e.step, e.state) for e in script.session.events]


def test_a_unit_that_was_down_stays_down(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, "inactive")
    script.fail("wait", BOOM)
    report = script.execute()
    assert script.done[-2:] == ["stop", "swap 3"]
    assert report.exit_code == 10
    assert report.summary == "it broke; rolled back, the old version is in place"


def test_a_unit_that_systemd_went_on_starting_is_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It crashed at each start, so that there is nothing to prove, and it is not left stopped."""
    script = Script(monkeypatch, "activating")
    script.fail("wait", BOOM)
    report = script.execute()
    assert script.done[-3:] == ["stop", "swap 3", "start"]
    assert report.exit_code == 10
    assert report.summary == "it broke; rolled back, the old version is in place"


@pytest.mark.parametrize("name", ["stop", "swap"])
def test_what_somebody_starts_again_and_again_is_the_old_version(
    script: Script, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Nothing has changed, so it is proven as it runs, and not stopped once more."""

    def fault() -> None:
        script.run.swapped = False  # as `steps.swap` leaves it then
        raise StepFailed(steps.STARTED_AGAIN, "somebody starts it again")

    monkeypatch.setattr(Run, "open_watch", lambda run, ignore: script.done.append("watch"))
    script.faults[name] = [fault]
    report = script.execute()
    assert (report.exit_code, report.generation) == (10, 3)
    assert report.summary == "somebody starts it again; rolled back, the old version serves"
    assert script.done[-4:] == ["watch", "start", "wait", "smoke"]


def test_a_restart_that_fails_has_nothing_to_put_back(script: Script) -> None:
    script.fail("wait", BOOM)
    report = script.execute(on_failure="report")
    assert script.done[-1] == "wait"
    assert (report.exit_code, report.data["restored"]) == (11, None)
    assert report.summary == "it broke"


@pytest.mark.parametrize(("choice", "exit_code"), [("keep", 12), ("restore", 10)])
def test_health_unproved(script: Script, choice: Any, exit_code: int) -> None:
    script.run.options = Options(on_inconclusive=choice)
    script.verdicts = ["inconclusive", "pass"]
    report = script.execute()
    assert report.exit_code == exit_code
    assert ("restore" in [e.step for e in script.session.events]) == (choice == "restore")
    assert report.data["accept_len"] == 4.0
    assert "unproved" in report.reasons[0].message


def test_a_lost_connection_is_made_again_to_restore(script: Script) -> None:
    def lose() -> None:
        script.session.lost = True
        raise Unreachable("the connection to the host was lost")

    script.faults["wait"] = [lose]
    # The host takes a while to notice that the old connection, with its lock, is dead.
    script.session.lock_held_for = 3
    report = script.execute()
    assert report.exit_code == 10
    locks = [params["why"] for op, params in script.session.calls if op == "lock"]
    assert locks == ["restoring after opsctl deploy"] * 4


@pytest.mark.parametrize(
    ("guard_acted", "exit_code"), [(None, 0), ({"token": "t", "seconds": 2.0}, 10)]
)
def test_a_proof_that_the_host_did_not_hear_of_is_told_on_a_new_connection(
    script: Script,
    monkeypatch: pytest.MonkeyPatch,
    guard_acted: dict[str, Any] | None,
    exit_code: int,
) -> None:
    """The guard would undo it, so 'serves, but not recorded' is no end."""
    session, call, lost = script.session, script.session.call, [True]

    def conclude(op: str, **params: Any) -> None:
        if op == "conclude" and lost:
            lost.pop()
            raise Unreachable("the connection to the host was lost")
        call(op, **params)

    monkeypatch.setattr(session, "call", conclude)
    monkeypatch.setitem(registry.ACTS, "confirm", CONFIRM)
    if guard_acted is not None:
        facts = {"to": 3, "at": 0.0, "why": "lost", "serving": True, "healthy": True}
        session.guard_report = facts | guard_acted
    report = script.execute()
    assert report.exit_code == exit_code
    told = [params["status"] for op, params in session.calls if op == "conclude"]
    assert told == (["confirmed"] if guard_acted is None else [])


def test_a_host_that_stays_away_cannot_be_restored(script: Script) -> None:
    def lose() -> None:
        script.session.lost = True
        raise Unreachable("the connection to the host was lost")

    script.faults["wait"] = [lose]
    script.session.can_reconnect = False
    assert script.execute().exit_code == errors.EXIT_NOT_RESTORED


def test_what_the_guard_did_meanwhile_is_the_end(script: Script) -> None:
    """The connection was lost with the service stopped; the guard did not wait for this side."""
    script.lose_to_the_guard("swap")
    report = script.execute()
    assert (report.exit_code, report.generation) == (10, 3)
    assert script.done == FORWARD[: FORWARD.index("swap 4") + 1], "nothing is done twice"


@pytest.mark.parametrize("name", ["stop", "wait"])
@pytest.mark.parametrize(("healthy", "exit_code"), [(True, 10), (False, 11)])
def test_a_way_back_that_the_guard_finished_is_done(
    script: Script, monkeypatch: pytest.MonkeyPatch, name: str, healthy: bool, exit_code: int
) -> None:
    """The connection was lost on it, in any step; that of the wait is met in the wait itself."""

    def guard(run: Run) -> str:
        run.guarded = True
        return ""

    monkeypatch.setitem(registry.ACTS, "guard", guard)

    def lose() -> None:
        script.session.guard_report = GUARD_DONE | {"healthy": healthy}
        if name == "wait":
            waiting.go_on(script.run, Unreachable("the connection to the host was lost"))
        script.session.lost = True
        raise Unreachable("the connection to the host was lost")

    script.fail("smoke", BOOM)
    script.faults[name] = [None, lose]
    report = script.execute()
    assert (report.exit_code, report.generation, report.reasons[0].code) == (exit_code, 3, "boom")


# -- a rollback that is lost: the guard takes it on to its target -----------------------------


@pytest.mark.parametrize(("verdict", "exit_code"), [("pass", 0), ("inconclusive", 12)])
def test_a_rollback_that_the_guard_took_to_its_target_is_proven(
    script: Script, verdict: str, exit_code: int
) -> None:
    script.roll_back()
    script.lose_to_the_guard("stop", to=2)
    script.verdicts = [verdict]
    report = script.execute()
    assert (report.exit_code, report.generation) == (exit_code, 2)
    assert report.summary.startswith("rolled back to generation 2")
    assert script.done[-3:] == ["guard", "smoke", "confirm"]
    assert "restore" not in {event.step for event in script.session.events}


def test_a_rollback_that_the_guard_took_to_its_target_and_proves_bad_is_undone(
    script: Script,
) -> None:
    script.roll_back()
    script.lose_to_the_guard("stop", to=2)
    script.fail("smoke", BOOM)
    report = script.execute()
    assert (report.exit_code, report.generation) == (10, 3)


def test_the_guard_of_a_rollback_that_is_undone_knows_it(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    renew = registry.ACTS["guard"]

    def guard(run: Run) -> str:
        run.guarded = True
        seen.append(bool(run.undoing))
        return renew(run)

    monkeypatch.setitem(registry.ACTS, "guard", guard)
    monkeypatch.setattr(steps, "guard", guard)
    script.roll_back()
    script.fail("wait", BOOM)
    assert script.execute().exit_code == 10
    assert seen == [False, True]


@pytest.mark.parametrize(
    ("to", "healthy", "exit_code"), [(3, True, 10), (3, False, 11), (2, False, 11)]
)
def test_a_rollback_says_where_the_guard_ended_it(
    script: Script, to: int, healthy: bool, exit_code: int
) -> None:
    script.roll_back()
    script.lose_to_the_guard("stop", to=to, healthy=healthy)
    report = script.execute()
    assert (report.exit_code, report.generation) == (exit_code, to)
