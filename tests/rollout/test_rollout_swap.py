"""A unit that somebody starts while a rollout has it stopped."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rollout_tools import SERVICE, facts

from opsctl.errors import Refused
from opsctl.events import Emit, Event
from opsctl.rollout import steps
from opsctl.rollout.run import Options, Run, StepFailed
from opsctl.rollout.session import Session
from opsctl.units.properties import Unit

SWAPPED = {"changed": ["a.py"], "verified": 1, "starting": []}


class Host:
    """Answers `swap` by `answers`, one a call, and says whether the unit is down."""

    service = SERVICE

    def __init__(self, *answers: Callable[[], dict[str, Any]], down: bool = True) -> None:
        self.answers, self.down = list(answers), down
        self.told: list[Event] = []
        self.emit = self.told.append

    def call(self, name: str, **arguments: object) -> dict[str, Any]:
        assert name == "swap"
        return self.answers.pop(0)()

    def control(self, verb: str, *, speculative: bool) -> None:
        assert speculative
        self.told.append(Event("control", "ok", verb))

    def unit(self) -> Any:
        return SimpleNamespace(down=self.down, invocation_id="i")


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []
    for name in ("stop", "_stop_once"):
        monkeypatch.setattr(steps, name, lambda run: done.append("stop"))
    monkeypatch.setattr(Run, "open_watch", lambda run, ignore: None)
    return done


def running() -> dict[str, Any]:
    raise Refused("serve.service runs: a swap needs it stopped", code="unit_running")


def run_on(host: Host) -> Run:
    run = Run("deploy", cast(Session, host), Options(budget=5.0))
    run.target = 4
    return run


def test_it_is_stopped_again_and_the_swap_goes_on(stopped: list[str]) -> None:
    host = Host(running, lambda: SWAPPED)
    assert steps.swap(run_on(host)) == "1 changed, 1 verified by hash"
    assert stopped == ["stop"]
    assert [event.state for event in host.told] == ["warn"]


def test_one_that_is_started_again_and_again_is_given_up(stopped: list[str]) -> None:
    host = Host(running, running, running)
    run = run_on(host)
    with pytest.raises(StepFailed) as caught:
        steps.swap(run)
    assert caught.value.code == steps.STARTED_AGAIN
    assert stopped == ["stop", "stop"]
    assert not run.swapped, "the host refused it, so nothing has changed"


def test_one_that_runs_already_may_have_imported_the_old_files(stopped: list[str]) -> None:
    run = run_on(Host(down=False))
    run.swapped = True
    steps.start(run)
    assert stopped == ["stop"]
    run.swapped = False
    steps.start(run)
    assert stopped == ["stop"], "nothing changed under it"


# -- one that somebody starts right after it was stopped --------------------------------------


class Watchdog:
    """A host on which the unit runs again, in a new start, after each stop but the `stays`-th."""

    service = SERVICE

    def __init__(self, stays: int) -> None:
        self.stays, self.stops = stays, 0
        self.told: list[Event] = []
        self.emit = self.told.append

    def unit(self) -> Unit:
        down = self.stops == self.stays
        state = {"unit.ActiveState": "inactive" if down else "active"}
        return Unit.from_show(facts({**state, "unit.InvocationID": f"i{self.stops}"})["unit"])

    def control(self, verb: str) -> None:
        assert verb == "stop"
        self.stops += 1


@pytest.mark.parametrize("stays", [1, 3, 0, 9])
def test_one_that_is_started_after_each_stop(monkeypatch: pytest.MonkeyPatch, stays: int) -> None:
    host = Watchdog(stays)
    monkeypatch.setattr(Run, "open_watch", lambda run, ignore: host)

    def wait_down(watch: object, timeout: float, emit: Emit, invocation: str) -> Unit:
        assert invocation == f"i{host.stops - 1}", "of the start that was stopped"
        return host.unit()

    monkeypatch.setattr(steps, "wait_down", wait_down)
    run = run_on(cast(Host, host))
    if stays <= 3:
        steps.stop(run)
        assert host.stops == stays
    else:
        with pytest.raises(StepFailed) as caught:
            steps.stop(run)
        assert (caught.value.code, host.stops) == (steps.STARTED_AGAIN, 3)
        assert "somebody starts serve.service again" in caught.value.message
    assert run.previous_invocation == ("i0" if stays < 3 else "i2")
