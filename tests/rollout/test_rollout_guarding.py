"""What the guard on the host is told to end a lost rollout in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from rollout_tools import SERVICE, facts

from opsctl.errors import LockHeld
from opsctl.rollout import guard_text, guarding, steps
from opsctl.rollout.run import Options, Run
from opsctl.rollout.session import Session
from opsctl.units.properties import Unit


def armed(command: str, **changes: Any) -> dict[str, Any]:
    """The terms of a rollout from generation 3, confirmed, to generation 2."""
    told: list[dict[str, Any]] = []

    def call(op: str, *, given: dict[str, Any], program: str, notices: None) -> None:
        told.append(given)

    session = SimpleNamespace(service=SERVICE, token="t", call=call)
    run = Run(command, cast(Session, session), Options())
    run.origin, run.target, run.target_status = 3, 2, "confirmed"
    run.facts = {"generation": {"number": 3, "status": changes.pop("origin_status", "confirmed")}}
    for name, value in changes.items():
        setattr(run, name, value)
    guarding.arm(run, stop_bound=10.0)
    return told[0]


def terms(command: str, **changes: Any) -> tuple[int | None, int | None]:
    """(to, fallback) of `armed`."""
    found = armed(command, **changes)
    return found["to"], found["fallback"]


@pytest.mark.parametrize(
    ("command", "changes", "expected"),
    [
        ("deploy", {}, (3, None)),
        ("restart", {"origin": None, "target": None}, (None, None)),
        ("rollback", {}, (2, 3)),
        ("rollback", {"origin_status": "staged"}, (2, None)),
        ("rollback", {"target_status": "rolled_back"}, (3, None)),
        # Once it failed it is being undone, whoever goes on with that.
        ("rollback", {"undoing": "it failed"}, (3, 2)),
        ("rollback", {"undoing": "it failed", "target_status": "rolled_back"}, (3, None)),
    ],
)
def test_where_a_lost_rollout_ends(
    command: str, changes: dict[str, Any], expected: tuple[int | None, int | None]
) -> None:
    assert terms(command, **changes) == expected


@pytest.mark.parametrize(
    ("command", "state", "changes", "serving"),
    [
        ("deploy", "active", {}, True),
        ("deploy", "activating", {}, True),  # systemd goes on starting what crashes
        ("deploy", "inactive", {}, False),
        # To start it is what was wanted, and the guard goes on with that.
        ("restart", "inactive", {}, True),
        ("rollback", "failed", {}, True),
        # To where it was, and as it was.
        ("rollback", "failed", {"target_status": "rolled_back"}, False),
        ("rollback", "failed", {"undoing": "it failed"}, False),
    ],
)
def test_whether_a_lost_rollout_ends_with_a_start(
    command: str, state: str, changes: dict[str, Any], serving: bool
) -> None:
    before = Unit.from_show(facts({"unit.ActiveState": state})["unit"])
    assert armed(command, unit_before=before, **changes)["serving"] is serving


def test_a_generation_that_was_given_up_is_told() -> None:
    report = {
        "at": 0.0,
        "why": "its client was lost",
        "who": "ann",
        "command": "rollback",
        "to": 3,
        "gave_up": 2,
        "serving": True,
        "healthy": True,
        "seconds": 9.0,
    }
    text = guard_text.describe(report)
    assert "made sure of generation 3 after generation 2 had not come up" in text


@pytest.mark.parametrize("command", ["deploy", "restart", "rollback"])
def test_a_rollout_that_was_lost_while_one_waited_for_its_lock(command: str) -> None:
    """It has the lock then, and the guard of the lost one does not."""
    lost = {"command": "deploy", "who": "ann@laptop", "armed": 0.0, "to": 3, "token": "a"}
    session = SimpleNamespace(
        host=SimpleNamespace(name="alpha"),
        lock=lambda why, wait: None,
        inspect=lambda: facts({"guard.terms": lost, "lock": {"token": "t"}}),
    )
    target = 2 if command == "rollback" else None
    run = Run(command, cast(Session, session), Options(lock_wait=60.0), target=target)
    if command == "rollback":
        steps.lock(run)
        return
    with pytest.raises(LockHeld) as caught:
        steps.lock(run)
    assert caught.value.code == "guard_pending"
