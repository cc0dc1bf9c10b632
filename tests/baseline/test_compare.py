"""Where two answers part, and whether that is a fault."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsctl.baseline import EQUAL, compare, tolerance
from opsctl.baseline.compare import Outcome
from opsctl.sglang import Top

tokens = st.integers(0, 30)
answers = st.lists(tokens, min_size=1, max_size=40)
gaps = st.floats(0.0, 20.0)
RANK: dict[Outcome, int] = {"wrong": 0, "unknown": 1, "near_tie": 2, "equal": 3}


def tops(ids: list[int], *others: tuple[int, float]) -> list[Top]:
    """At each place the reference's token, and others so much less likely."""
    return [((token, -0.5), *((o, -0.5 - gap) for o, gap in others if o != token)) for token in ids]


@settings(deadline=None)
@given(answers, gaps)
def test_the_same_is_equal(ids: list[int], near: float) -> None:
    assert compare(ids, tops(ids), ids, near) == EQUAL
    assert compare(ids, [], ids, near) == EQUAL


@settings(deadline=None)
@given(answers, answers, gaps)
def test_what_comes_after_the_reference_is_not_judged(
    ids: list[int], more: list[int], near: float
) -> None:
    assert compare(ids, tops(ids), [*ids, *more], near) == EQUAL


@settings(deadline=None)
@given(answers, answers, gaps)
def test_nothing_comes_after_a_reference_that_stopped(
    ids: list[int], more: list[int], near: float
) -> None:
    found = compare(ids, tops(ids), [*ids, *more], near, stopped=True)
    assert (found.outcome, found.index, found.got) == ("wrong", len(ids), more[0])
    assert found.text.startswith(f"goes on with token {more[0]} after {len(ids)} tokens")
    assert compare(ids, tops(ids), ids, near, stopped=True) == EQUAL


@settings(deadline=None)
@given(answers, answers, gaps)
def test_the_index_is_the_first_difference(ids: list[int], got: list[int], near: float) -> None:
    found = compare(ids, tops(ids), got, near)
    if found.outcome == "equal":
        assert got[: len(ids)] == ids
        return
    at = found.index
    assert at is not None
    assert got[:at] == ids[:at]
    assert found.expected == ids[at]
    assert found.got == (got[at] if at < len(got) else None)
    assert found.got != found.expected


@settings(deadline=None)
@given(answers, st.data())
def test_an_answer_that_ends_too_early_is_wrong(ids: list[int], data: st.DataObject) -> None:
    length = data.draw(st.integers(0, len(ids) - 1))
    found = compare(ids, tops(ids), ids[:length], 1e9)
    assert (found.outcome, found.index, found.got) == ("wrong", length, None)
    assert found.text.startswith(f"ends after {length} tokens")


@settings(deadline=None)
@given(answers, answers, st.lists(st.tuples(tokens, gaps), max_size=4), gaps, gaps)
def test_a_wider_tolerance_forgives_no_less(
    ids: list[int], got: list[int], others: list[tuple[int, float]], one: float, two: float
) -> None:
    narrow, wide = sorted((one, two))
    top = tops(ids, *others)
    strict, lenient = compare(ids, top, got, narrow), compare(ids, top, got, wide)
    assert RANK[strict.outcome] <= RANK[lenient.outcome]
    assert (strict.index, strict.gap) == (lenient.index, lenient.gap)


@settings(deadline=None)
@given(answers, st.data(), gaps, gaps)
def test_the_gap_decides(ids: list[int], data: st.DataObject, gap: float, near: float) -> None:
    at = data.draw(st.integers(0, len(ids) - 1))
    other = data.draw(tokens.filter(lambda token: token != ids[at]))
    found = compare(ids, tops(ids, (other, gap)), [*ids[:at], other, *ids[at + 1 :]], near)
    assert found.gap == pytest.approx(gap)
    if abs(gap - near) > 1e-9:
        assert found.outcome == ("near_tie" if gap < near else "wrong")


@pytest.mark.parametrize(
    ("top", "outcome", "at_least"),
    [
        ((), "unknown", False),
        (((1, -0.5), (2, -0.6)), "near_tie", False),
        (((1, -0.5), (2, -0.9)), "wrong", False),
        (((1, -5.0), (2, -0.1)), "wrong", False),  # the reference's own is far from the best
        (((1, -0.2), (2, -0.1)), "near_tie", False),
        (((1, -0.5), (9, -0.9)), "wrong", True),  # 2 is not even among them
        (((1, -0.5), (9, -0.6)), "unknown", True),  # nor so far away as to be sure
        (((9, -0.5), (2, -0.6)), "near_tie", False),  # the reference's own is not listed
    ],
)
def test_alternatives(top: Top, outcome: str, at_least: bool) -> None:
    found = compare([1], [top] if top else [], [2], 0.25)
    assert (found.outcome, found.at_least) == (outcome, at_least)


def test_alternatives_that_end_before_the_answer() -> None:
    assert compare([1, 2], tops([1]), [1, 3], 0.25).outcome == "unknown"


def test_tolerances_follow_the_precision() -> None:
    assert tolerance("float32") < tolerance("float16") < tolerance("bfloat16")
    assert tolerance("float8_of_tomorrow") == tolerance("bfloat16")


def test_in_words() -> None:
    found = compare([1], tops([1], (2, 3.0)), [2], 0.25)
    assert found.text == "token 0 is 2 instead of 1, 3 nats less likely"
    assert compare([1], [((1, -0.5), (9, -4.5))], [2], 0.25).text.endswith(
        "at least 4 nats less likely"
    )
    assert compare([1], [], [2], 0.25).text == "token 0 is 2 instead of 1"
    assert EQUAL.text == "equal"
