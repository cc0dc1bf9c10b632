"""A request that is not answered, and answers that do not look like any."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from smoke_samples import (
    FAR,
    NEAR,
    RIGHT,
    answer,
    baseline,
    changed,
    job,
    lost,
    prompt,
    ran,
    sample,
    sha,
)

from opsctl.baseline import Baseline, Prompt
from opsctl.smoke import Ran
from opsctl.smoke.answered import checks
from opsctl.smoke.model import Check

LOOP = (*RIGHT[:4], *(7, 8) * 18)


def judged(
    *stages: Ran,
    prompts: tuple[Prompt, ...] = (),
    known: Baseline | None = None,
    healthy: bool | None = None,
) -> dict[str, Check]:
    return {c.name: c for c in checks(stages, prompts, known, healthy=healthy)}


def test_a_sound_server() -> None:
    found = judged(
        ran("alone", answer()),
        ran("rung-2", answer(), answer()),
        ran("streamed", answer(arrivals=(0.1, 0.2, 0.3))),
        ran("hang-up", sample(answer(RIGHT[:5]), job(hang_up_after=4)), answer()),
        ran("limit", sample(answer(RIGHT[:8]), job(tokens=8))),
        known=baseline(),
    )
    bad = {name for name, check in found.items() if check.verdict != "pass"}
    assert bad == {"short_answers"}
    assert found["short_answers"].verdict == "skipped"


@pytest.mark.parametrize(
    ("stage", "healthy", "kind"),
    [
        (ran("alone", lost("reset")), False, "crash"),
        (ran("rung-2", lost("reset"), lost("reset")), False, "crash_at_concurrency"),
        (ran("rung-2", lost("refused"), lost("reset")), False, "crash_at_concurrency"),
        (ran("rung-2", answer(), lost("reset")), False, "crash_on_shrinking_batch"),
        (ran("rung-2", lost("status", 500), lost("status", 500)), None, "crash_at_concurrency"),
        (ran("alone", lost("timeout")), False, "hang"),
        (ran("rung-2", lost("timeout"), lost("timeout")), False, "hang"),
        (ran("rung-2", lost("timeout"), lost("timeout")), True, "false_healthy"),
    ],
)
def test_unanswered(stage: Ran, healthy: bool | None, kind: str) -> None:
    found = judged(ran("alone", answer()), stage, healthy=healthy)["answered"]
    assert (found.verdict, found.kind) == ("fail", kind)
    assert found.evidence["stage"] == stage.stage.name


@pytest.mark.parametrize(
    ("pulse", "healthy", "kind"),
    [
        (answer(RIGHT[:1]), True, "hang"),  # a request was lost, the server is well
        (lost("timeout"), True, "false_healthy"),
        (lost("timeout"), False, "hang"),
    ],
)
def test_a_pulse_tells_a_lost_request_from_a_stuck_server(
    pulse: Any, healthy: bool, kind: str
) -> None:
    stage = ran("rung-2", answer(), lost("timeout"))
    found = judged(stage, ran("pulse", sample(pulse, job(tokens=1))), healthy=healthy)["answered"]
    assert (found.verdict, found.kind) == ("fail", kind)
    assert found.evidence["stage"] == "rung-2"


def test_a_refusal_is_ours() -> None:
    found = judged(ran("alone", lost("status", 400)))["answered"]
    assert (found.verdict, found.kind) == ("inconclusive", "")


@pytest.mark.parametrize(
    "stages",
    [
        (ran("alone", lost("status", 400)), ran("rung-2", lost(), lost())),
        (ran("alone", answer()), ran("rung-2", lost("status", 400), lost())),
    ],
)
def test_a_refusal_hides_no_crash(stages: tuple[Ran, ...]) -> None:
    found = judged(*stages)["answered"]
    assert (found.verdict, found.kind) == ("fail", "crash_at_concurrency")
    assert found.evidence["stage"] == "rung-2"
    assert found.evidence["causes"] == ["reset"]


def test_who_is_refused_beside_a_client_that_goes_away_is_not_taken_along() -> None:
    gone = sample(lost("status", 400), job(hang_up_after=4))
    assert judged(ran("hang-up", gone, answer()))["hang_up"].verdict == "inconclusive"
    both = judged(ran("hang-up", gone, lost()))["hang_up"]
    assert (both.verdict, both.kind) == ("fail", "crash_on_hang_up")


def test_nothing_asked_is_nothing_proved() -> None:
    found = judged()
    assert found["answered"].verdict == found["finish"].verdict == "inconclusive"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"finish_reason": "abort"}, "bad_finish"),
        ({"finish_reason": ""}, "bad_finish"),
        ({"completion_tokens": 39}, "truncated_output"),
        ({"text": " \n"}, "empty_output"),
        ({"completion_tokens": 39, "finish_reason": "stop"}, ""),
        ({"completion_tokens": 44}, ""),  # the last step may overshoot
    ],
)
def test_finish(changes: dict[str, Any], kind: str) -> None:
    found = judged(ran("alone", answer(), answer(**changes)))["finish"]
    assert found.kind == kind
    assert found.verdict == ("fail" if kind else "pass")


def test_one_token_may_be_a_line_break() -> None:
    single = sample(answer(RIGHT[:1], text="\n"), job(tokens=1))
    assert judged(ran("alone", single))["finish"].verdict == "pass"


def test_a_loop_that_the_baseline_lacks() -> None:
    looped = ran("alone", answer(LOOP))
    assert judged(looped, known=baseline())["text"].kind == "degenerate_output"
    assert judged(looped)["text"].verdict == "inconclusive"
    same = judged(looped, known=baseline(ids=LOOP))["text"]
    assert same.verdict == "pass"
    assert "1 loops that the baseline has" in same.reason


@pytest.mark.parametrize(
    ("ids", "given", "kind"),
    [
        ((*RIGHT[:3], NEAR, *(7, 8) * 18), 0, ""),
        ((*RIGHT[:3], FAR, *(7, 8) * 18), 0, "degenerate_output"),
        ((NEAR, *(7, 8) * 17), 5, ""),  # a tie at the first token after those given
        (((7, 8) * 17), 6, "degenerate_output"),
    ],
)
def test_a_loop_after_a_near_tie_is_nobodys_fault(
    ids: tuple[int, ...], given: int, kind: str
) -> None:
    of = replace(job(tokens=len(RIGHT) - given), given=given)
    stage = ran("resumed" if given else "alone", sample(answer(ids), of))
    assert judged(stage, known=baseline())["text"].kind == kind


def test_a_loop_that_the_baseline_left_at_a_near_tie() -> None:
    known = (*RIGHT[:4], *(NEAR,) * 24, *range(200, 212))
    looped = (*RIGHT[:4], *(NEAR,) * 36)
    assert judged(ran("alone", answer(looped)), known=baseline(ids=known))["text"].kind == ""


def test_a_resumed_loop_is_beside_the_rest_of_the_baselines() -> None:
    known = (*range(200, 230), *(7, 8) * 18)
    of = replace(job(tokens=36), given=30)
    stage = ran("resumed", sample(answer(known[30:]), of))
    assert judged(stage, known=baseline(ids=known))["text"].verdict == "pass"


@pytest.mark.parametrize(
    ("ids", "stage", "kind"),
    [
        (RIGHT, "alone", "text_divergence"),
        (RIGHT, "rung-2", "text_divergence"),
        (RIGHT[:20], "rung-2", ""),  # the baseline's text is longer
        (changed(5, NEAR), "alone", ""),
        (RIGHT, "limit", ""),
    ],
)
def test_the_right_tokens_have_the_right_text(ids: tuple[int, ...], stage: str, kind: str) -> None:
    garbled = sample(answer(ids, text="\N{REPLACEMENT CHARACTER}"), job(tokens=len(ids)))
    found = judged(ran(stage, garbled), known=baseline())["text"]
    assert (found.verdict, found.kind) == ("fail" if kind else "pass", kind)


def test_an_empty_text_that_the_baseline_has_too() -> None:
    blank = ran("alone", answer(text="\n\n"))
    assert judged(blank, known=baseline(text="\n\n"))["finish"].verdict == "pass"
    other = baseline(ids=changed(5, NEAR), text="\n\n")
    assert judged(blank, known=other)["finish"].kind == "empty_output"
    rest = ran("continued", sample(answer(RIGHT[20:], text="\n"), job(tokens=20)))
    assert judged(rest, known=baseline(text="first\nsecond"))["finish"].verdict == "pass"


def test_an_empty_text_of_tokens_that_have_one() -> None:
    """Of a rung, whose answers are shorter than the baseline's text."""
    lost_text = ran("rung-1", sample(answer(RIGHT[:20], text=""), job(tokens=20)))
    assert judged(lost_text, known=baseline())["finish"].kind == "empty_output"


@pytest.mark.parametrize(
    ("known", "said", "verdict"),
    [
        ("It is Paris.", " Paris", "pass"),
        ("It is Paris.", " paris, of course", "pass"),
        ("It is Paris.", " London", "fail"),
        ("Who knows?", " London", "skipped"),  # the trusted server does not know either
    ],
)
def test_short_answers(known: str, said: str, verdict: str) -> None:
    asked = prompt("capital", kind="short", answer="Paris")
    stage = ran("alone", sample(answer(text=said), job("capital")))
    found = judged(stage, prompts=(asked,), known=baseline("capital", text=known))["short_answers"]
    assert found.verdict == verdict
    assert found.kind == ("wrong_answer" if verdict == "fail" else "")
    assert asked.sha256 == sha("capital")


@pytest.mark.parametrize(
    ("stage", "ids", "changes"),
    [
        ("resumed", RIGHT[20:], {"given": 20, "tokens": 20}),  # its text is only the rest
        ("continued", RIGHT[20:], {"tokens": 20}),
        ("hang-up", RIGHT[:5], {"hang_up_after": 4}),
        ("rung-2", RIGHT[:20], {"tokens": 20}),
        ("alone", RIGHT[:20], {"tokens": 20}),  # fewer than the baseline was asked for
        ("alone", changed(5, NEAR), {}),
        ("resumed", RIGHT[20:], {"given": 20, "tokens": 40}),
    ],
)
def test_a_short_answer_is_judged_only_where_it_is_whole(
    stage: str, ids: tuple[int, ...], changes: dict[str, Any]
) -> None:
    asked = prompt("capital", kind="short", answer="Paris")
    given = {key: value for key, value in changes.items() if key != "given"}
    of = replace(job("capital", **given), given=changes.get("given", 0))
    found = judged(
        ran(stage, sample(answer(ids, text=" London"), of)),
        prompts=(asked,),
        known=baseline("capital", text="It is Paris."),
    )["short_answers"]
    assert found.verdict == "skipped"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"arrivals": (0.1,)}, "not_streamed"),
        ({"arrivals": (0.1, 0.2), "completion_tokens": 44}, "stream_divergence"),
        ({"arrivals": (0.1, 0.2), "text": "another"}, "stream_divergence"),
        ({"arrivals": (0.1, 0.2)}, ""),
    ],
)
def test_streaming(changes: dict[str, Any], kind: str) -> None:
    found = judged(ran("alone", answer()), ran("streamed", answer(**changes)))["streaming"]
    assert found.kind == kind
    assert found.verdict == ("fail" if kind else "pass")


def test_a_single_token_is_a_single_piece() -> None:
    single = sample(answer(RIGHT[:1], arrivals=(0.1,)), job(tokens=1))
    found = judged(ran("alone", answer(RIGHT[:1])), ran("streamed", single))["streaming"]
    assert found.verdict == "skipped"


def test_streaming_without_its_answer() -> None:
    assert judged(ran("alone", answer()))["streaming"].verdict == "inconclusive"
    found = judged(ran("alone", answer()), ran("streamed", lost()))["streaming"]
    assert found.verdict == "inconclusive"


def test_a_client_that_takes_others_along() -> None:
    gone = sample(answer(RIGHT[:5]), job(hang_up_after=4))
    found = judged(ran("alone", answer()), ran("hang-up", gone, answer(), lost()))
    assert (found["hang_up"].verdict, found["hang_up"].kind) == ("fail", "crash_on_hang_up")
    assert found["answered"].verdict == "pass"  # two names for one thing would hide the nearer
    silent = judged(ran("hang-up", gone, lost("timeout")))["hang_up"]
    assert (silent.verdict, silent.kind) == ("fail", "hang")
    assert judged(ran("hang-up", gone, answer()))["hang_up"].verdict == "pass"


@pytest.mark.parametrize(
    ("outcome", "verdict", "kind"),
    [
        (lost("status", 400), "pass", ""),
        (lost("timeout"), "fail", "hang"),
        (lost("reset"), "fail", "crash"),
        (answer(RIGHT[:8], finish_reason="abort"), "fail", "bad_finish"),
    ],
)
def test_context_limit(outcome: Any, verdict: str, kind: str) -> None:
    found = judged(ran("limit", sample(outcome, job(tokens=8))))
    assert (found["context_limit"].verdict, found["context_limit"].kind) == (verdict, kind)
    assert found["finish"].verdict == "inconclusive"  # the limit's finish is not its to judge
    assert judged(ran("alone", answer()))["context_limit"].verdict == "skipped"
