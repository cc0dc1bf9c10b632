"""The validation's statistics and judgements; what they are applied to needs a GPU host."""

from __future__ import annotations

import importlib
import math
import random
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "validation"))
compare = importlib.import_module("compare")
record = importlib.import_module("record")
stats = importlib.import_module("stats")


@pytest.mark.parametrize(
    ("statistic", "freedom", "p"),
    [(3.841, 1, 0.05), (18.307, 10, 0.05), (124.342, 100, 0.05), (149.449, 100, 0.001), (0, 5, 1)],
)
def test_p_values_are_those_of_the_printed_tables(statistic: float, freedom: int, p: float) -> None:
    assert stats.chi_square_p(statistic, freedom) == pytest.approx(p, rel=0.01)


def test_p_value_of_two_degrees_is_an_exponential() -> None:
    for x in (0.1, 1.0, 4.0, 30.0, 200.0):
        assert stats.chi_square_p(x, 2) == pytest.approx(math.exp(-x / 2), rel=1e-9)


def test_equal_distributions_pass_and_another_is_rejected() -> None:
    draw = random.Random(3)
    weights = [2.0**-k for k in range(12)]
    one, two = (draw.choices(range(12), weights, k=2000) for _ in range(2))
    other = draw.choices(range(12), [w**0.8 for w in weights], k=2000)
    assert stats.two_samples(one, two)["p"] > 0.01
    assert stats.two_samples(one, other)["p"] < 1e-6


def test_p_values_of_equal_samples_are_uniform() -> None:
    draw = random.Random(5)
    found = []
    for _ in range(400):
        one, two = (draw.choices(range(8), [8, 7, 6, 5, 4, 3, 0.2, 0.1], k=n) for n in (500, 200))
        found.append(stats.two_samples(one, two)["p"])
    assert 0.02 < sum(p < 0.05 for p in found) / 400 < 0.09
    assert 0.4 < sum(p < 0.5 for p in found) / 400 < 0.6


def test_rare_outcomes_are_pooled() -> None:
    one = ["a"] * 95 + [f"x{i}" for i in range(5)]
    two = ["a"] * 95 + [f"y{i}" for i in range(5)]
    test = stats.two_samples(one, two)
    assert (test["outcomes"], test["freedom"], test["pooled"]) == (11, 1, 0.05)
    assert test["p"] == 1.0


def test_a_single_outcome_cannot_be_told_apart() -> None:
    assert stats.two_samples(["a"] * 50, ["a"] * 40)["p"] == 1.0


def answer(ids: list[int], tops: list[list[tuple[float, int]]] | None = None) -> dict[str, Any]:
    meta: dict[str, Any] = {"completion_tokens": len(ids), "spec_verify_ct": 2}
    if tops is not None:
        meta["output_top_logprobs"] = [[(lp, t, None) for lp, t in place] for place in tops]
    return {"output_ids": ids, "meta_info": meta}


TOPS = [[(-0.1, 1), (-3.0, 9)], [(-0.5, 2), (-0.625, 3), (-2.5, 4)], [(-0.2, 5), (-1.0, 6)]]
PLAIN = answer([1, 2, 5], TOPS)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([1, 2, 5], None),
        ([1, 3, 7], {"at": 1, "rank": 2, "gap": 0.125}),
        ([1, 8, 5], {"at": 1, "rank": None, "gap": 2.0}),
        ([1, 2], {"at": 2, "rank": None, "gap": None}),
    ],
)
def test_the_token_taken_is_judged_by_its_own_logprob(
    ids: list[int], expected: dict[str, Any] | None
) -> None:
    assert compare.judge(PLAIN, answer(ids)) == expected


def test_two_answers_are_judged_only_where_the_text_before_is_the_reference() -> None:
    assert compare.judge_two(PLAIN, answer([1, 3, 7]), answer([1, 3, 7])) is None
    one = compare.judge_two(PLAIN, answer([1, 2, 5]), answer([1, 3, 5]))
    assert one == {"at": 1, "gap": 0.125}
    off = compare.judge_two(PLAIN, answer([1, 3, 5]), answer([1, 3, 6]))
    assert off == {"at": 2, "gap": None}


def test_a_tally_counts_tokens_and_steps_by_kind() -> None:
    tally = compare.Tally()
    tally.add("code", 0, PLAIN, answer([1, 2, 5]))
    tally.add("code", 1, PLAIN, answer([1, 3, 5]))
    assert tally.to_json() == {
        "equal": 1,
        "diverged": [{"prompt": 1, "at": 1, "rank": 2, "gap": 0.125}],
        "kinds": {"code": {"tokens": 6, "steps": 4}},
    }


def test_steps_without_a_drafter_are_the_tokens_after_prefill() -> None:
    plain = {"meta_info": {"completion_tokens": 9}}
    assert compare.steps_of(plain) == 8


def test_a_result_survives_writing(tmp_path: Path) -> None:
    result = {"stages": {"text": {"a": [1, 2], "b": {"c": [[1], {"d": None}]}, "e": "x{[y"}}}
    record.save(tmp_path / "r.json", result)
    assert record.load(tmp_path / "r.json") == result
    assert '"a": [1, 2]' in (tmp_path / "r.json").read_text(encoding="utf-8")


def test_a_failed_stage_does_not_displace_one_that_ran() -> None:
    good = {"machine": 1, "stages": {"text": {"result": 1}, "mla": {"error": "x"}}}
    bad = {"machine": 2, "stages": {"text": {"error": "y"}, "mla": {"result": 2}}}
    assert record.merge([good, bad]) == {
        "machine": 2,
        "stages": {"text": {"result": 1}, "mla": {"result": 2}},
    }
