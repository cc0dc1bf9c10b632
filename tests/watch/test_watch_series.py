"""Figures over time in bounded memory."""

from __future__ import annotations

import pytest

from opsctl.watch.series import LONGEST, TIERS, Series, columns_of

T = 1_800_000_000.0


def test_columns_are_means_that_end_now() -> None:
    series = Series()
    for second in range(60):
        series.add(T + second, float(second), start=0)
    columns = series.columns(T + 59, 60.0, 6)
    assert columns == [4.5, 14.5, 24.5, 34.5, 44.5, 54.5]


def test_a_weight_counts() -> None:
    series = Series()
    series.add(T, 1.0, start=0, weight=3.0)
    series.add(T + 0.1, 5.0, start=0, weight=1.0)
    assert series.columns(T, 10.0, 1) == [2.0]


def test_where_nothing_came_is_nothing() -> None:
    series = Series()
    series.add(T, 3.0, start=0)
    series.add(T + 30, 4.0, start=0)
    assert series.columns(T + 39, 40.0, 4) == [3.0, None, None, 4.0]


def test_columns_stand_still_until_the_next_one_begins() -> None:
    series = Series()
    series.add(T, 3.0, start=0)
    assert T % 10 == 0
    shown = [series.columns(T + late, 40.0, 4) for late in (0, 3, 9.9)]
    assert shown == [[None, None, None, 3.0]] * 3
    assert series.columns(T + 10, 40.0, 4) == [None, None, 3.0, None]


def test_no_column_has_two_starts() -> None:
    series = Series()
    for second in range(10):
        series.add(T + second, 8.0, start=0)
    series.add(T + 9, 1.0, start=1)
    assert series.columns(T + 9, 10.0, 1) == [1.0], "the later one's alone"
    assert series.columns(T + 9, 86400.0, 10)[-1] == 1.0, "in the coarse bins as well"


def test_a_clock_that_was_set_back() -> None:
    series = Series()
    series.add(T + 100, 2.0, start=0)
    series.add(T + 10, 4.0, start=0)
    assert series.columns(T + 100, 10.0, 1) == [3.0]


@pytest.mark.parametrize("span", [60.0, 3600.0, 86400.0, LONGEST])
def test_days_fit_into_bounded_memory(span: float) -> None:
    series = Series()
    step = 20.0
    count = int(LONGEST * 1.5 / step)
    for place in range(count):
        series.add(T + place * step, 7.0, start=place // 5000)
    assert sum(len(bins) for bins in series._archives) <= sum(kept for _, kept in TIERS)
    columns = series.columns(T + (count - 1) * step, span, 3)
    assert columns == [7.0, 7.0, 7.0], "far back it is there, coarser"


def test_in_which_column_a_moment_is() -> None:
    assert columns_of([T, T + 25, T - 100, T + 100], T + 39, 40.0, 4) == {0, 2}
