"""What a person is told of the guard and of the lock."""

from __future__ import annotations

import time
from typing import Any

import pytest
from rollout_tools import facts

from opsctl.hostside import guardian
from opsctl.rollout import guard_text, lock_text
from opsctl.text import clock, duration, moment
from opsctl.units.properties import Unit

NOW = 1_796_000_000.0
TERMS: dict[str, Any] = {
    "command": "deploy",
    "who": "ann@laptop",
    "armed": NOW - 60,
    "to": 2,
    "budget": 180.0,
}
LOADING = {
    "unit.time": NOW,
    "unit.monotonic_us": 100_000_000,
    "unit.ActiveEnterTimestampMonotonic": "75000000",
    "unit.NRestarts": "0",
}


def unit(**changes: Any) -> Unit:
    given = {**LOADING, **{f"unit.{key}": value for key, value in changes.items()}}
    return Unit.from_show(facts(given)["unit"])


def test_a_lost_load_has_a_deadline() -> None:
    """The load's budget, from when the unit became active, and the guard's grace."""
    text = guard_text.pending(TERMS, unit())
    left = 180 + guardian._GRACE - 25
    begun, end = moment(NOW - 60, NOW), moment(NOW + left, NOW)
    assert text == (
        f"the deploy of ann@laptop, begun {begun}, has lost its client; the guard puts generation "
        f"2 back at {end} (in {duration(left)}) unless it is confirmed"
    )


@pytest.mark.parametrize(
    ("changes", "terms"),
    [
        ({"ActiveState": "inactive", "SubState": "dead"}, {}),
        ({"NRestarts": "1"}, {}),
        ({"monotonic_us": 10**9}, {}),
        ({}, {"to": None, "command": "restart"}),
    ],
)
def test_where_the_guard_waits_for_nothing_it_acts_now(
    changes: dict[str, Any], terms: dict[str, Any]
) -> None:
    text = guard_text.pending({**TERMS, **terms}, unit(**changes))
    goal = "puts generation 2 back" if not terms else "starts the service"
    assert f"; the guard {goal} now" in text


@pytest.mark.parametrize(
    ("given", "terms"),
    [
        (None, TERMS),
        (unit(), {key: value for key, value in TERMS.items() if key != "budget"}),
        (unit(ActiveEnterTimestampMonotonic=""), TERMS),
    ],
)
def test_without_a_deadline_it_says_what_the_guard_waits_for(
    given: Unit | None, terms: dict[str, Any]
) -> None:
    assert "back when the load's budget is over" in guard_text.pending(terms, given)


def test_a_moment_of_another_day_has_its_date() -> None:
    assert moment(NOW, NOW + 1) == clock(NOW).split(" ")[1]
    assert moment(NOW, NOW + 86400) == clock(NOW)
    assert moment(time.time() - 2 * 86400).count("-") == 2


HOLDER = {"who": "bob@ci", "why": "a deploy", "since": NOW, "held_s": 18.2, "pid": 7}


def lock(**changes: Any) -> dict[str, Any]:
    return {"holder": HOLDER, "by_guard": False, "terms": None, "report": None, **changes}


def test_a_held_lock_names_its_holder_since_when_and_what_to_do() -> None:
    error = lock_text.held(lock(), "alpha")
    assert error.exit_code == 4
    assert error.message == (
        f"bob@ci holds the lock, since {moment(NOW)} (18s ago), as pid 7 on the host: a deploy"
    )
    assert error.remedy.startswith("--lock-wait 10m waits for it; opsctl lock show alpha")


def test_who_waited_is_told_so() -> None:
    error = lock_text.held(lock(), "alpha", waited=600)
    assert error.message.endswith("; waited 10m00s for it and gave up")
    assert "a longer --lock-wait" in error.remedy


@pytest.mark.parametrize(("to", "goal"), [(2, "putting generation 2 back"), (None, "starting")])
def test_the_guard_is_to_be_waited_for(to: int | None, goal: str) -> None:
    error = lock_text.held(lock(by_guard=True, terms={**TERMS, "to": to}), "alpha")
    assert f"the guard is {goal}" in error.message
    assert error.remedy.startswith("wait: --lock-wait 10m")


def test_a_holder_that_let_go_meanwhile_is_told_by_the_hosts_word() -> None:
    error = lock_text.held(lock(holder=None), "alpha", said="bob had it a moment ago")
    assert error.message == "bob had it a moment ago"
