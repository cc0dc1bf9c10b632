"""The guard's waits, when somebody steps the host's clock. A lab cannot: its clock is ours."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from opsctl.hostside import guard, guardian, probe
from opsctl.hostside import unit as units
from opsctl.hostside.guardian import Guardian
from opsctl.hostside.state import Lock

pytest_plugins = ["hostside_fixtures"]

STEPS = pytest.mark.parametrize("step", [-86400.0, 86400.0], ids=["back a day", "ahead a day"])


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Guardian:
    monkeypatch.setattr(probe, "boot_id", lambda: "this")
    found = Guardian(str(tmp_path / "serve"), lambda text: None)
    monkeypatch.setattr(found, "_differs", lambda *_: True)
    return found


def terms(**changes: Any) -> dict[str, Any]:
    site = {"unit": "serve.service"}
    return {"boot_id": "this", "site": site, "to": 0, "budget": 60.0, "token": "t"} | changes


def stepped(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + step)


@STEPS
def test_a_load_is_neither_cut_short_nor_waited_for_longer(
    guarded: Guardian, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    began = time.monotonic()

    def show(unit: str) -> dict[str, Any]:
        at = str(int(began * 1e6))
        return {
            "ActiveState": "active",
            "SubState": "running",
            "NRestarts": "0",
            "InactiveExitTimestampMonotonic": at,
        }

    monkeypatch.setattr(units, "show", show)
    stepped(monkeypatch, step)
    assert guarded._may_load(terms())
    monkeypatch.setattr(time, "monotonic", lambda: began + 60 + guardian._GRACE + 1)
    assert not guarded._may_load(terms())


@STEPS
def test_a_holder_that_lives_is_not_taken_for_hung(
    guarded: Guardian, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    """It is ended when the deadline is over by the monotonic clock, and only then."""
    holder = Lock()
    holder.take(guarded._state, {"who": "a client", "why": "", "token": "t"})
    given = terms(deadline=time.monotonic() + 3600)
    monkeypatch.setattr(guard, "terms", lambda state: given)
    monkeypatch.setattr(guard, "wanted", lambda state: True)
    ended: list[str] = []

    def end(state: object, token: str) -> None:
        ended.append(token)
        holder.release()

    monkeypatch.setattr(guardian, "end_holder", end)
    stepped(monkeypatch, step)
    looks = 0

    def sleep(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            assert not ended
            given["deadline"] = time.monotonic() - 1

    monkeypatch.setattr(time, "sleep", sleep)
    assert guarded._await_lock() == "its client gave no sign of life"
    assert ended == ["t"]
    guarded._lock.release()
