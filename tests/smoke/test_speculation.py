"""Whether the verify path ran, and whether what it accepts is believable."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from smoke_samples import RIGHT, answer, job, ran, sample

from opsctl.sglang import DecodeBatch, GenerateAnswer, SpecCounters
from opsctl.smoke import Ran, ServerFacts, Thresholds
from opsctl.smoke.model import Check
from opsctl.smoke.speculation import checks, mean_accept_len

FACTS = ServerFacts(algorithm="DDTREE", draft_tokens=8, captured=(1, 2, 4))


def judged(
    *stages: Ran,
    facts: ServerFacts = FACTS,
    lines: tuple[DecodeBatch, ...] = (),
    previous: float | None = None,
) -> dict[str, Check]:
    found = checks(stages, facts, lines, Thresholds(), previous)
    return {check.name: check for check in found}


def accepting(length: float, steps: int = 10) -> GenerateAnswer:
    return answer(steps=steps, accept_len=length)


def line(running: int, *, graph: bool) -> DecodeBatch:
    return DecodeBatch(running=running, accept_len=4.0, cuda_graph=graph)


def test_a_sound_server() -> None:
    found = judged(
        ran("alone", accepting(4.0), accepting(3.0), at_once=1),
        ran("rung-2", accepting(3.9), accepting(3.8)),
        ran("rung-1", accepting(3.7)),
        lines=(line(1, graph=True), line(5, graph=False)),
        previous=3.6,
    )
    assert {check.verdict for check in found.values()} == {"pass"}
    assert found["acceptance"].evidence["accept_len"] == 3.5


def test_without_speculation_only_graphs_are_judged() -> None:
    found = judged(ran("alone", answer(steps=None)), facts=ServerFacts())
    assert {name: check.verdict for name, check in found.items()} == {
        "cuda_graphs": "skipped",
        "verify_steps": "skipped",
    }


@pytest.mark.parametrize(
    ("length", "kind"),
    [
        (1.0, "zero_acceptance"),
        (1.09, "zero_acceptance"),  # chance hits
        (1.2, ""),
        (7.5, ""),
        (7.9, "implausible_acceptance"),
        (8.0, "implausible_acceptance"),
    ],
)
def test_acceptance(length: float, kind: str) -> None:
    found = judged(ran("alone", accepting(length)))["acceptance"]
    assert found.kind == kind
    assert found.verdict == ("fail" if kind else "pass")


def test_acceptance_without_counters() -> None:
    found = judged(ran("alone", answer(steps=None)))
    assert found["acceptance"].verdict == "inconclusive"
    assert found["verify_steps"].verdict == "inconclusive"


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ([accepting(4.0)], "pass"),
        ([answer(steps=0, accept_len=1.0)], "fail"),
        ([answer(steps=None)], "fail"),  # one counts its steps, the other does not
        ([answer(RIGHT[:8], steps=None)], "pass"),  # too short to need one
    ],
)
def test_verify_steps(others: list[GenerateAnswer], verdict: str) -> None:
    found = judged(ran("alone", accepting(4.0), *others, at_once=1))["verify_steps"]
    assert found.verdict == verdict
    assert found.kind == ("verify_path_unused" if verdict == "fail" else "")


def test_a_client_that_went_away_has_no_counters() -> None:
    gone = sample(answer(RIGHT[:20], steps=None), job(hang_up_after=4))
    beside = ran("hang-up", gone, accepting(4.0))
    assert judged(ran("alone", accepting(4.0)), beside)["verify_steps"].verdict == "pass"


@pytest.mark.parametrize(("many", "verdict"), [(2.5, "pass"), (2.3, "fail")])
def test_acceptance_in_batches(many: float, verdict: str) -> None:
    rung = ran("rung-2", accepting(many), accepting(many))
    found = judged(ran("alone", accepting(4.0)), rung, ran("rung-1", accepting(4.0)))
    assert found["acceptance_in_batches"].verdict == verdict
    assert found["acceptance"].verdict == "pass"


def test_acceptance_in_batches_is_of_the_same_prompts() -> None:
    easy, hard = job("easy"), job("hard")
    found = judged(
        ran("rung-2", sample(accepting(2.0), hard), sample(accepting(2.0), hard)),
        ran("rung-1", sample(accepting(8.0), easy), sample(accepting(2.0), hard), at_once=1),
    )["acceptance_in_batches"]
    assert found.evidence["ratios"] == {"rung-2": 1.0}


def test_acceptance_in_batches_is_of_whole_answers_too() -> None:
    """A padded batch asks for as much as the prompts alone do."""
    padded = ran("padded-3-1", accepting(2.0), at_once=3)
    found = judged(ran("alone", accepting(4.0)), padded, ran("rung-1"))
    assert found["acceptance_in_batches"].evidence["ratios"] == {"padded-3-1": 0.5}
    assert found["acceptance_in_batches"].kind == "acceptance_collapse"


def test_acceptance_in_batches_is_of_answers_as_long() -> None:
    """An answer that falls into a loop late is drafted easily there, and only there."""
    long = ran("alone", accepting(8.0))
    rung = ran("rung-2", *(sample(answer(RIGHT[:20], steps=10), job(tokens=20)) for _ in "ab"))
    short = ran("rung-1", sample(answer(RIGHT[:20], steps=10), job(tokens=20)))
    assert judged(long, rung)["acceptance_in_batches"].verdict == "skipped"
    found = judged(long, rung, short)["acceptance_in_batches"]
    assert found.evidence["ratios"] == {"rung-2": 1.0}
    other = ran("rung-1", sample(answer(RIGHT[:20], steps=4), job(tokens=22)))
    ended = ran("rung-1", sample(answer(RIGHT[:12], steps=2), job(tokens=20)))
    for unlike in (other, ended):
        assert judged(long, rung, unlike)["acceptance_in_batches"].verdict == "inconclusive"


def test_a_client_that_went_away_tells_nothing_of_acceptance() -> None:
    gone = ran("hang-up", accepting(1.0), accepting(1.0))
    found = judged(ran("alone", accepting(4.0)), gone, ran("rung-1", accepting(4.0)))
    assert found["acceptance_in_batches"].verdict == "inconclusive"


@pytest.mark.parametrize(
    ("previous", "verdict"), [(None, "skipped"), (4.0, "pass"), (4.6, "pass"), (4.8, "fail")]
)
def test_acceptance_before(previous: float | None, verdict: str) -> None:
    found = judged(ran("alone", accepting(4.0)), previous=previous)["acceptance_before"]
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        ((), "skipped"),
        ((line(5, graph=False),), "skipped"),  # no graph holds so many
        ((line(4, graph=True), line(5, graph=False)), "pass"),
        ((line(4, graph=True), line(3, graph=False)), "fail"),
    ],
)
def test_cuda_graphs(lines: tuple[DecodeBatch, ...], verdict: str) -> None:
    assert judged(ran("alone", accepting(4.0)), lines=lines)["cuda_graphs"].verdict == verdict


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(1.0, 16.0), st.integers(1, 500)), min_size=1, max_size=20))
def test_the_mean_is_weighed_by_steps(answers: list[tuple[float, int]]) -> None:
    mean = mean_accept_len(accepting(length, steps) for length, steps in answers)
    assert mean is not None
    lengths = [length for length, _ in answers]
    assert min(lengths) - 1e-9 <= mean <= max(lengths) + 1e-9
    tokens = sum(length * steps for length, steps in answers)
    assert mean * sum(steps for _, steps in answers) == pytest.approx(tokens)


def test_the_mean_of_nothing() -> None:
    unknown: list[Any] = [answer(steps=None), answer(steps=0, accept_len=1.0)]
    assert mean_accept_len(unknown) is None
    assert mean_accept_len([answer(meta=SpecCounters(verify_steps=4))]) is None
