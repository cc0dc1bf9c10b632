"""The deep level's own prompts: asked alone, judged with the rest, and missed where they lack."""

from __future__ import annotations

from dataclasses import replace

import pytest
from smoke_samples import FAR, RIGHT, answer, baseline, changed, prompt, ran, sample

from opsctl.baseline import Baseline, Prompt
from opsctl.sglang import GenerateAnswer
from opsctl.smoke import Check, Exam, Level, Ran, Seen, ServerFacts, judge_exam, stages
from opsctl.smoke.stages import Stage
from opsctl.traffic import Sample

FACTS = ServerFacts(algorithm="DDTREE", draft_tokens=8, captured=(1, 2, 4))
COMMAND = "opsctl baseline capture alpha --restart --deep"
DEEP = tuple(prompt(f"words-{number}", kind="words") for number in range(25))
ALL = ("first", *(each.id for each in DEEP))


def exam(known: Baseline | None, deep: tuple[Prompt, ...] = DEEP, level: Level = "deep") -> Exam:
    return Exam(level, (prompt(quick=True),), FACTS, known, deep=deep, recapture=COMMAND)


def planned(of: Exam) -> list[Stage]:
    return stages(of.prompts, of.facts, of.level, of.deep_asked)


def answered(of: Exam, wrong: str = "") -> list[Ran]:
    """A server that is right, but for one prompt."""

    def said(stage: Stage) -> tuple[Sample, ...]:
        ids = [RIGHT if each.prompt != wrong else changed(30, FAR) for each in stage.jobs]
        got: list[GenerateAnswer] = [
            answer(each[: job.request.max_new_tokens])
            for each, job in zip(ids, stage.jobs, strict=True)
        ]
        return tuple(sample(each, job) for each, job in zip(got, stage.jobs, strict=True))

    return [ran(stage.name, *said(stage), at_once=stage.at_once) for stage in planned(of)]


def judged(of: Exam, wrong: str = "") -> Check:
    found = judge_exam(of, Seen(ran=tuple(answered(of, wrong))))
    return next(check for check in found if check.name == "lossless")


def names(of: Exam) -> list[str]:
    return [stage.name for stage in planned(of)]


def test_each_is_asked_once_alone_and_whole_before_the_canary() -> None:
    mine = [stage for stage in planned(exam(baseline(*ALL))) if stage.name.startswith("deep-")]
    assert [len(stage.jobs) for stage in mine] == [10, 10, 5]  # who waits hears of each
    assert {stage.at_once for stage in mine} == {1}
    jobs = [job for stage in mine for job in stage.jobs]
    assert [job.sha256 for job in jobs] == [each.sha256 for each in DEEP]
    assert all(job.request.max_new_tokens == len(RIGHT) for job in jobs)
    assert names(exam(baseline(*ALL)))[-1] == "canary"


def test_their_tokens_are_judged_beside_the_others() -> None:
    without, found = (judged(exam(baseline(*ALL), each)) for each in ((), DEEP))
    tokens = [each.evidence["tokens_judged"] for each in (without, found)]
    assert tokens[1] - tokens[0] == len(DEEP) * len(RIGHT)
    assert found.verdict == without.verdict == "pass"


def test_one_wrong_token_in_all_of_them_fails_as_what_is_wrong_alone() -> None:
    found = judged(exam(baseline(*ALL)), wrong="words-17")
    assert (found.verdict, found.kind) == ("fail", "verify_divergence")
    assert "1 answer of" in found.reason
    assert "words-17 (deep-2), token 30" in found.reason


@pytest.mark.parametrize(
    ("known", "verdict"), [(25, "pass"), (17, "pass"), (16, "inconclusive"), (0, "inconclusive")]
)
def test_those_that_the_baseline_lacks_are_not_asked_and_a_command_mends_it(
    known: int, verdict: str
) -> None:
    lacking = exam(baseline(*ALL[: 1 + known]))
    jobs = [job for stage in planned(lacking) for job in stage.jobs]
    assert sum(job.prompt.startswith("words-") for job in jobs) == known
    found = judged(lacking)
    assert found.verdict == verdict
    told = f"{25 - known} of 25 prompts of the deep level are not in the baseline: {COMMAND}"
    assert (told in found.reason) is (known < 25)
    assert found.evidence["not_in_baseline"] == [each.id for each in DEEP[known:]]


def test_what_is_wrong_is_wrong_whatever_lacks() -> None:
    found = judged(exam(baseline()), wrong="first")
    assert (found.verdict, found.kind) == ("fail", "verify_divergence")


def test_a_deep_baseline_vouches_for_no_other_prompts() -> None:
    """Each level goes by its own prompts: many of one kind do not stand for the other's."""
    of = exam(baseline(*ALL[1:]))
    others = replace(of, prompts=(prompt("unknown"), prompt("words-0", kind="words")))
    assert judged(of).verdict == judged(others).verdict == "inconclusive"


def test_a_deep_baseline_serves_the_standard_level() -> None:
    standard = exam(baseline(*ALL), deep=(), level="standard")
    assert not [name for name in names(standard) if name.startswith("deep")]
    assert judged(standard).verdict == "pass"


def test_without_a_baseline_nothing_can_judge_them() -> None:
    assert exam(None).deep_asked == ()
    assert judged(exam(None)).verdict == "inconclusive"
