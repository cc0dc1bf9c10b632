"""Which generation was in place when."""

from __future__ import annotations

from typing import Any

from opsctl.acceptance import Placement, before, latest, placements


def swap(number: int, at: float) -> dict[str, Any]:
    return {"event": "swap", "number": number, "time": at}


def test_stays() -> None:
    log = [
        {"event": "lock", "time": 1.0},
        swap(1, 10.0),
        {"event": "unit.start", "time": 11.0},
        swap(2, 20.0),
        swap(1, 30.0),
        swap(1, 31.0),  # put in place again: the stay goes on
        {"event": "swap", "time": 32.0},  # torn
    ]
    stays = placements(log, found=0)
    assert stays == [
        Placement(0, None, 10.0),
        Placement(1, 10.0, 20.0),
        Placement(2, 20.0, 30.0),
        Placement(1, 30.0, None),
    ]
    assert latest(stays, 1) == stays[3]
    assert latest(stays, 7) is None


def test_the_guard_puts_back_too() -> None:
    log = [swap(1, 10.0), {"event": "guard.done", "from": 1, "to": 0, "time": 15.0}]
    assert placements(log, found=0)[-1] == Placement(0, 15.0, None)


def test_the_one_before_is_another_that_proved_itself() -> None:
    stays = placements([swap(1, 10.0), swap(2, 20.0), swap(1, 30.0)], found=0)
    assert before(stays, stays[3], {0, 1}) == stays[0]  # 2 did not stay, and 1 is itself
    assert before(stays, stays[3], {0, 1, 2}) == stays[2]
    assert before(stays, stays[0], {0, 1, 2}) is None
    assert placements([]) == []
