"""How often a screen may change."""

from __future__ import annotations

import pytest

from opsctl.watch.frame import Line
from opsctl.watch.pace import EVERY, Pace, cost


def lines(*texts: str, style: str = "") -> list[Line]:
    return [((text, style),) for text in texts]  # type: ignore[misc]


def test_what_is_as_it_was_costs_nothing() -> None:
    assert cost(lines("a", "b"), lines("a", "b")) == 0


def test_only_what_lies_between_is_paid_for() -> None:
    before, after = lines("x" * 40 + "1" + "y" * 39), lines("x" * 40 + "2" + "y" * 39)
    assert cost(before, after) < 25
    assert cost(before, lines("z" * 80)) > 80
    assert cost(lines("x" * 80), lines("x" * 10)) < 25, "the rest of a line is cleared"


def test_bytes_are_paid_for_and_not_characters() -> None:
    assert cost(lines(""), lines("█" * 80)) >= 240


def test_another_style_is_paid_for() -> None:
    assert cost(lines("x" * 80), lines("x" * 80, style="bold")) > 80


@pytest.mark.parametrize("frame_bytes", [50, 400, 5000])
def test_over_time_no_more_than_the_rate_and_one_frame(frame_bytes: int) -> None:
    pace, now, sent = Pace(1000.0), 0.0, 0
    while now < 100.0:
        if pace.due(now):
            pace.spend(frame_bytes, now)
            sent += frame_bytes
        now += 0.2
    assert sent <= 100 * 1000 + frame_bytes
    assert sent >= min(100 / (EVERY + 0.2) * frame_bytes, 90 * 1000), "and not much less"


def test_a_frame_out_of_turn_is_paid_off_later() -> None:
    pace = Pace(1000.0)
    for key in range(5):
        pace.spend(2000, float(key) / 10)
    assert not pace.due(9.0)
    assert pace.due(10.5)
