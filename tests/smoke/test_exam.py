"""All checks of a level together: a sound server, a dead one, and what the whole is called."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from smoke_samples import FAR, RIGHT, answer, baseline, changed, job, lost, prompt, ran, sample

from opsctl.sglang import DecodeBatch, Load
from opsctl.smoke import Check, Exam, Probes, Ran, Seen, ServerFacts, SmokeResult, judge_exam
from opsctl.smoke.model import KINDS

EXAM = Exam(
    level="standard",
    prompts=(prompt(),),
    facts=ServerFacts(algorithm="DDTREE", draft_tokens=8, captured=(1, 2, 4)),
    baseline=baseline(),
)
SOUND = (
    ran("alone", answer()),
    ran("rung-2", answer(), answer()),
    ran("rung-1", answer()),
    ran("streamed", answer(arrivals=(0.1, 0.2))),
    ran("hang-up", sample(answer(RIGHT[:5]), job(hang_up_after=4)), answer()),
    ran("canary", answer()),
)
LINES = (DecodeBatch(running=1, accept_len=4.0, cuda_graph=True),)


def judged(
    *stages: Ran,
    loads: tuple[Load, ...] | None = (Load(0, 0),),
    before: tuple[Load, ...] | None = None,
) -> dict[str, Check]:
    found = judge_exam(EXAM, Seen(ran=stages, lines=LINES, loads=loads, before=before))
    return {check.name: check for check in found}


def result(checks: dict[str, Check]) -> SmokeResult:
    probes = Probes(lost(), lost(), "x", 16)
    return SmokeResult(checks=tuple(checks.values()), probes=probes, level="standard")


def test_a_sound_server_passes() -> None:
    found = judged(*SOUND)
    assert result(found).verdict == "pass"
    assert result(found).kind == ""
    skipped = {name for name, check in found.items() if check.verdict == "skipped"}
    assert skipped == {"short_answers", "context_limit", "acceptance_before"}


@pytest.mark.parametrize(
    ("loads", "verdict"),
    [
        ((Load(0, 0),), "pass"),
        ((Load(0, 0), Load(0, 33)), "fail"),
        ((Load(0, -33), Load(0, 33)), "fail"),  # one gave back what the other lacks
        ((Load(1, 33),), "skipped"),  # somebody else's request
        (None, "skipped"),
        ((), "skipped"),
    ],
)
def test_kv_pool(loads: tuple[Load, ...] | None, verdict: str) -> None:
    found = judged(*SOUND, loads=loads)["kv_pool"]
    assert found.verdict == verdict
    assert found.kind == ("kv_pool_leak" if verdict == "fail" else "")


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        ((0, 0), (0, 1), "inconclusive"),  # one of ours that never ends, perhaps
        ((2, 0), (2, 0), "skipped"),
        ((2, 0), (0, 2), "skipped"),  # others have moved to another rank
        ((2, 0), (1, 0), "skipped"),
        ((2, 0), (2, 1), "inconclusive"),
        ((2, 0), (0, 0), "pass"),
    ],
)
def test_a_request_that_never_ends_is_not_called_anothers(
    before: tuple[int, ...], now: tuple[int, ...], verdict: str
) -> None:
    def loads(counts: tuple[int, ...]) -> tuple[Load, ...]:
        return tuple(Load(count, 33 * count) for count in counts)

    assert judged(*SOUND, loads=loads(now), before=loads(before))["kv_pool"].verdict == verdict


def test_a_dead_server_is_not_called_wrong() -> None:
    found = judged(ran("alone", answer(changed(5, FAR))), ran("rung-2", lost(), lost()))
    assert found["lossless"].kind == "verify_divergence"
    assert result(found).kind == "crash_at_concurrency"
    assert result(found).verdict == "fail"


def test_a_context_that_holds_no_prompt_proves_nothing() -> None:
    found = judged(ran("limit", sample(lost("status", 400), replace(job(tokens=8), sha256=""))))
    assert found["lossless"].verdict == "inconclusive"
    assert "no prompt fits the context" in found["lossless"].reason
    assert result(found).verdict == "inconclusive"


def test_every_kind_that_is_named_has_a_rank() -> None:
    wrong = changed(5, FAR)
    for stages in (
        (ran("alone", answer(wrong)),),
        (ran("alone", lost("timeout")),),
        (ran("alone", answer(steps=40)),),
        (ran("alone", answer(steps=5)),),
        (ran("alone", answer(text="garbled")),),
    ):
        kinds = {check.kind for check in judged(*stages).values()} - {""}
        assert kinds
        assert kinds <= set(KINDS)


def test_stages_as_json() -> None:
    seen = Seen(ran=SOUND)
    shown = json.loads(json.dumps(seen.to_json()))
    assert seen.accept_len == 4.0
    assert [stage["name"] for stage in shown["stages"]][:2] == ["alone", "rung-2"]
    assert shown["stages"][1] == {
        "name": "rung-2",
        "why": "for a test",
        "at_once": 2,
        "requests": 2,
        "answered": 2,
        "seconds": 1.0,
        "tokens": 80,
    }
