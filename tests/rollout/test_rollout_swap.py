"""A unit that somebody starts while a rollout swaps its files."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from opsctl.errors import Refused
from opsctl.events import Event
from opsctl.rollout import steps
from opsctl.rollout.run import Options, Run
from opsctl.rollout.session import Session

SWAPPED = {"changed": ["a.py"], "verified": 1, "starting": []}


class Host:
    """Answers `swap` by `answers`, one a call, and says whether the unit is down."""

    def __init__(self, *answers: Callable[[], dict[str, Any]], down: bool = True) -> None:
        self.answers, self.down = list(answers), down
        self.told: list[Event] = []
        self.emit = self.told.append

    def call(self, name: str, **arguments: object) -> dict[str, Any]:
        assert name == "swap"
        return self.answers.pop(0)()

    def control(self, verb: str) -> None:
        self.told.append(Event("control", "ok", verb))

    def unit(self) -> Any:
        return SimpleNamespace(down=self.down, invocation_id="i")


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []
    monkeypatch.setattr(steps, "stop", lambda run: done.append("stop"))
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
    with pytest.raises(Refused, match="a swap needs it stopped"):
        steps.swap(run_on(host))
    assert stopped == ["stop", "stop"]


def test_one_that_runs_already_may_have_imported_the_old_files(stopped: list[str]) -> None:
    run = run_on(Host(down=False))
    run.swapped = True
    steps.start(run)
    assert stopped == ["stop"]
    run.swapped = False
    steps.start(run)
    assert stopped == ["stop"], "nothing changed under it"
