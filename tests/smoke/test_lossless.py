"""Which differences are faults, and what they are called by where they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from smoke_samples import FAR, NEAR, RIGHT, answer, baseline, changed, job, lost, ran, sample

from opsctl.sglang import GenerateAnswer, SpecCounters
from opsctl.smoke import Ran
from opsctl.smoke.lossless import checks
from opsctl.smoke.model import Check

CAPTURED = (1, 2, 4)
WRONG = changed(5, FAR)
TIED = changed(5, NEAR)


def judged(*stages: Ran, captured: tuple[int, ...] = CAPTURED) -> dict[str, Check]:
    return {check.name: check for check in checks(stages, baseline(), captured)}


def good(count: int = 1) -> list[GenerateAnswer]:
    return [answer() for _ in range(count)]


def bad(count: int = 1) -> list[GenerateAnswer]:
    return [answer(WRONG) for _ in range(count)]


def test_equal_answers_pass() -> None:
    found = judged(ran("alone", answer()), ran("rung-2", *good(2)), ran("canary", answer()))
    assert {check.verdict for check in found.values()} == {"pass"}
    assert found["lossless"].evidence["counts"] == {"equal": 4}
    assert found["lossless"].evidence["divergences"] == []


def test_a_near_tie_passes_and_is_counted() -> None:
    found = judged(ran("alone", answer(TIED)), ran("canary", answer()))
    assert found["lossless"].verdict == "pass"
    assert "1 different at a near tie" in found["lossless"].reason
    assert found["canary"].verdict == "pass"
    assert "near tie" in found["canary"].reason


@pytest.mark.parametrize(
    ("stages", "kind"),
    [
        ([ran("alone", *bad())], "verify_divergence"),
        ([ran("alone", *bad()), ran("rung-2", *bad(2))], "verify_divergence"),
        ([ran("alone", *good(), at_once=1), ran("rung-2", *bad(2))], "batch_divergence"),
        (
            [ran("alone", *good()), ran("rung-3", *bad(3)), ran("rung-4", *good(4))],
            "graph_divergence",  # a padded size alone
        ),
        (
            [
                *(ran("alone", *good()), ran("rung-2", *good(2)), ran("rung-4", *good(3), *bad())),
                *(ran("rung-5", *good(3), *bad(2)), ran("padded-3", *bad(3))),
            ],
            "graph_divergence",  # and wider ones, which come through it as they empty
        ),
        (
            [ran("alone", *good()), ran("rung-2", *bad(2)), ran("padded-3", *bad(3))],
            "batch_divergence",  # two are never padded
        ),
        ([ran("alone", *good()), ran("rung-5", *bad(5))], "batch_divergence"),
        (
            [ran("alone", *good()), ran("rung-2", *bad(2)), ran("rung-5", *good(5))],
            "graph_divergence",  # every size with a graph, none without
        ),
        (
            [
                ran("alone", answer(cached_tokens=0)),
                ran("rung-1", answer(WRONG, cached_tokens=8)),
                ran("canary", answer(WRONG, cached_tokens=8)),
            ],
            "cache_divergence",
        ),
        (
            [
                ran("alone", answer(cached_tokens=0), answer(WRONG, cached_tokens=1), at_once=1),
                ran("canary", answer(WRONG, cached_tokens=8)),
            ],
            "verify_divergence",  # a first token from the cache is every prompt's
        ),
    ],
)
def test_the_kind_says_where(stages: list[Ran], kind: str) -> None:
    found = judged(*stages)
    assert (found["lossless"].verdict, found["lossless"].kind) == ("fail", kind)
    shown = found["lossless"].evidence["divergences"][0]
    assert (shown["index"], shown["expected"], shown["got"]) == (5, RIGHT[5], FAR)
    assert shown["expected_ids"][shown["index"] - shown["from"]] == RIGHT[5]
    assert shown["got_ids"][shown["index"] - shown["from"]] == FAR


@pytest.mark.parametrize(
    ("histogram", "kind"),
    [
        ((1, 20, 40), "implausible_acceptance"),  # but for the last step, which is cut short
        ((2, 60, 40), "implausible_acceptance"),
        ((8, 20, 40), "verify_divergence"),
        ((1, 4, 4), "verify_divergence"),  # too few steps to say so
        ((), "verify_divergence"),  # DFLASH does not tell
    ],
)
def test_wrong_text_of_drafts_that_are_all_believed(histogram: tuple[int, ...], kind: str) -> None:
    counters = SpecCounters(verify_steps=sum(histogram), histogram=histogram)
    assert judged(ran("alone", answer(WRONG, meta=counters)))["lossless"].kind == kind
    assert judged(ran("alone", answer(meta=counters)))["lossless"].verdict == "pass"


def test_without_graphs_batches_are_batches() -> None:
    found = judged(ran("alone", *good()), ran("rung-3", *bad(3)), captured=())
    assert found["lossless"].kind == "batch_divergence"


def test_without_alternatives_a_difference_is_told_not_judged() -> None:
    trusted = baseline(top=())
    found = {c.name: c for c in checks([ran("alone", *bad())], trusted, CAPTURED)}
    assert found["lossless"].verdict == "inconclusive"
    assert "cannot tell" in found["lossless"].reason


def test_without_a_baseline_the_reason_is_told() -> None:
    found = {c.name: c for c in checks([ran("alone", answer())], None, CAPTURED, "none fits")}
    assert (found["lossless"].verdict, found["lossless"].reason) == ("inconclusive", "none fits")


def test_what_the_baseline_does_not_know_is_not_compared() -> None:
    other = sample(answer(WRONG), job("other"))
    assert judged(ran("alone", other))["lossless"].verdict == "inconclusive"


@pytest.mark.parametrize(
    ("known", "unknown", "verdict"),
    [
        (3, 0, "pass"),
        (3, 1, "pass"),
        (2, 1, "pass"),
        (3, 2, "inconclusive"),
        (1, 3, "inconclusive"),
    ],
)
def test_a_baseline_of_other_prompts_vouches_for_nothing(
    known: int, unknown: int, verdict: str
) -> None:
    theirs, ours = [f"k{n}" for n in range(known)], [f"u{n}" for n in range(unknown)]
    stage = ran("alone", *(sample(answer(), job(name)) for name in (*theirs, *ours)))
    found = {check.name: check for check in checks([stage], baseline(*theirs), CAPTURED)}[
        "lossless"
    ]
    assert found.verdict == verdict
    assert found.evidence["not_in_baseline"] == ours
    assert all(name in found.reason for name in ours)


def test_what_is_wrong_is_wrong_whatever_the_baseline_lacks() -> None:
    others = [sample(answer(), job(f"u{n}")) for n in range(5)]
    assert judged(ran("alone", *bad(), *others))["lossless"].verdict == "fail"


@pytest.mark.parametrize(
    ("resumed", "continued", "kind"),
    [
        (WRONG, RIGHT, "verify_divergence"),  # the prefix cache has answers right
        (WRONG, WRONG, "cache_divergence"),
        (RIGHT, WRONG, "cache_divergence"),
        (WRONG, None, "cache_divergence"),  # nothing speaks for the cache
    ],
)
def test_a_fault_after_near_ties_alone_need_not_be_the_caches(
    resumed: tuple[int, ...], continued: tuple[int, ...] | None, kind: str
) -> None:
    rest = replace(job(tokens=36), given=4)
    stages = [ran("alone", answer(TIED)), ran("resumed", sample(answer(resumed[4:]), rest))]
    if continued is not None:
        begun = answer(continued[4:], prompt_tokens=13)
        stages.insert(0, ran("alone", answer()))
        stages[1:2] = []
        stages.append(ran("continued", sample(begun, job(tokens=36))))
    assert judged(*stages)["lossless"].kind == kind


@pytest.mark.parametrize(
    ("stages", "tokens"),
    [
        ([ran("alone", answer())], 40),
        ([ran("alone", answer()), ran("rung-2", answer(TIED), answer(WRONG))], 52),
        ([ran("rung-1", sample(answer((*RIGHT, 7, 7)), job(tokens=60)))], 40),  # beyond its end
        ([ran("alone", sample(answer(RIGHT[:20]), job(tokens=30)))], 20),  # an end too early
        ([ran("resumed", sample(answer(RIGHT[30:]), replace(job(tokens=10), given=30)))], 10),
        ([ran("alone", sample(answer(()), job(tokens=30)))], 0),
    ],
)
def test_the_tokens_that_were_judged_are_counted(stages: list[Ran], tokens: int) -> None:
    assert judged(*stages)["lossless"].evidence["tokens_judged"] == tokens


def test_a_step_that_overruns_the_stop_is_wrong() -> None:
    stopped = baseline(finish_reason="stop")
    over = sample(answer((*RIGHT, 7)), job(tokens=60))
    found = {check.name: check for check in checks([ran("alone", over)], stopped, CAPTURED)}
    assert found["lossless"].kind == "verify_divergence"
    assert "goes on with token 7 after 40 tokens" in found["lossless"].reason


def test_a_shorter_answer_by_request_is_compared_to_its_end() -> None:
    short = sample(answer(RIGHT[:20]), job(tokens=20))
    assert judged(ran("rung-2", short, short))["lossless"].verdict == "pass"
    cut = sample(answer(RIGHT[:20]), job(tokens=30))
    found = judged(ran("alone", cut))["lossless"]
    assert (found.verdict, found.kind) == ("fail", "verify_divergence")
    assert "ends after 20 tokens" in found.reason


def test_a_client_that_went_away_has_what_came_until_then() -> None:
    gone = sample(answer(RIGHT[:6]), job(tokens=160, hang_up_after=4))
    assert judged(ran("hang-up", gone, answer()))["lossless"].verdict == "pass"


@pytest.mark.parametrize(
    ("rest", "prompt_tokens", "compared", "kind"),
    [
        (RIGHT[10:], 19, 2, ""),
        ((*RIGHT[10:20], FAR, *RIGHT[21:]), 19, 2, "cache_divergence"),
        ((*RIGHT[10:20], NEAR, *RIGHT[21:]), 19, 2, ""),
        ((FAR,) * 30, 18, 1, ""),  # the text became other tokens in the prompt
    ],
)
def test_an_answer_continued_is_the_rest_of_it(
    rest: tuple[int, ...], prompt_tokens: int, compared: int, kind: str
) -> None:
    went_on = answer(rest, prompt_tokens=prompt_tokens, cached_tokens=18)
    found = judged(ran("alone", answer()), ran("continued", sample(went_on, job(tokens=30))))
    lossless = found["lossless"]
    assert sum(lossless.evidence["counts"].values()) == compared
    assert lossless.kind == kind
    if kind:
        (shown,) = lossless.evidence["divergences"]
        assert (shown["index"], shown["got"]) == (20, FAR)
        assert shown["got_ids"][20 - shown["from"]] == FAR


@pytest.mark.parametrize(
    ("last", "verdict", "kind"),
    [(WRONG, "fail", "cache_divergence"), (TIED, "pass", ""), (RIGHT, "pass", "")],
)
def test_canary(last: tuple[int, ...], verdict: str, kind: str) -> None:
    found = judged(ran("alone", answer()), ran("canary", answer(last)))["canary"]
    assert (found.verdict, found.kind) == (verdict, kind)


def test_a_canary_that_was_not_reached() -> None:
    found = judged(ran("alone", answer()), ran("rung-2", lost(), lost()))
    assert found["canary"].verdict == "inconclusive"
