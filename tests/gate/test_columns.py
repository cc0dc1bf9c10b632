"""Figures over time, thinned for a plot of the terminal or the page."""

from __future__ import annotations

import pytest

from opsctl.columns import Column, runs


def test_a_point_a_column() -> None:
    (run,) = runs([(float(place), float(place % 2)) for place in range(1000)], 64)
    assert 60 <= len(run) <= 65
    assert run[0].mean == pytest.approx(0.5, abs=0.05)
    assert (run[0].low, run[0].high) == (0.0, 1.0)
    assert run[-1].at == 999.0
    assert runs([], 64) == []
    assert runs([(5.0, 2.0)], 64) == [[Column(5.0, 2.0, 2.0, 2.0)]]


def test_what_a_pause_parts_is_not_joined() -> None:
    former, later = runs([(float(at), 2.0) for at in (*range(100), *range(500, 600))], 64)
    assert former[-1].at == 99.0
    assert 500.0 <= later[0].at < 510.0
