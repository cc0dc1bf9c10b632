"""Figures of a soak, and the metrics made of them."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsctl.baseline import Answer, Baseline, Identity
from opsctl.gate.figures import Soaked, divergences, metrics, quantiles
from opsctl.gate.policy import METRICS
from opsctl.sglang import GenerateAnswer, Generation, ServerError, SpecCounters
from opsctl.smoke import Check, Probes, SmokeResult
from opsctl.traffic import Job, Sample

REFUSED = ServerError("gone", cause="refused")


def sample(ended: float, ids: tuple[int, ...] = (1, 2, 3, 4), steps: int = 2) -> Sample:
    job = Job("p", "sha", Generation("p", 4, stream=True))
    counters = SpecCounters(verify_steps=steps, accept_len=len(ids) / steps)
    answer = GenerateAnswer("text", "length", len(ids), 1, 0.5, counters, ids, arrivals=(0.1, 0.5))
    return Sample(job, ended - 0.5, ended, answer)


def lost(ended: float) -> Sample:
    return Sample(Job("p", "sha", Generation("p", 4)), 0.0, ended, REFUSED)


def soaked(*samples: Sample) -> Soaked:
    return Soaked(2, 7, 1.8e9, samples)


def baseline(*ids: int) -> Baseline:
    answer = Answer(prompt="p", sha256="sha", output_ids=ids, text="t", finish_reason="length",
                    top=tuple(((token, -0.1), (99, -5.0)) for token in ids))  # fmt: skip
    identity = Identity(served_name="t", model_path="/m", files={}, precision="float32")
    return Baseline(
        created=0, host="h", service="s", reference="plain", identity=identity, answers=(answer,)
    )


def measured(
    after: Soaked | None, before: Soaked | None = None, **more: object
) -> dict[str, float | None]:
    given = {"load_s": 9.0, "budget_s": 90.0, "smoke": None, "baseline": None, **more}
    return metrics(after=after, before=before, **given)  # type: ignore[arg-type]


def test_every_metric_that_a_rule_may_name() -> None:
    assert set(measured(None)) == set(METRICS)
    assert set(measured(soaked(sample(1.0)), soaked(sample(2.0)))) == set(METRICS)


def test_of_a_soak() -> None:
    found = measured(soaked(sample(1.0), sample(2.0, (1, 2), steps=2), lost(1.5)))
    assert found["soak.requests"] == 3
    assert found["soak.error_rate"] == pytest.approx(1 / 3)
    assert found["soak.throughput"] == pytest.approx(6 / 2.0)
    assert found["soak.accept_len"] == pytest.approx(6 / 4), "by steps, not by answers"
    assert found["soak.first_token_p50"] == pytest.approx(0.1)
    assert found["load.budget_share"] == pytest.approx(0.1)
    assert found["soak.throughput_ratio"] is None


def test_beside_the_version_before() -> None:
    found = measured(soaked(sample(1.0)), soaked(sample(2.0, (1, 2, 3, 4), steps=4)))
    assert found["soak.accept_len_ratio"] == pytest.approx(2.0)
    assert found["soak.throughput_ratio"] == pytest.approx(2.0)


def test_nothing_is_made_up() -> None:
    nothing = measured(soaked(), load_s=None)
    assert {name for name, value in nothing.items() if value is not None} == set()
    dead = measured(soaked(lost(1.0)))
    assert dead["soak.error_rate"] == 1.0
    assert dead["soak.latency_p50"] is dead["soak.accept_len"] is None


def test_wrong_answers_under_load() -> None:
    runs = soaked(sample(1.0), sample(2.0, (1, 2, 8, 4)), lost(3.0))
    assert measured(runs, baseline=baseline(1, 2, 3, 4))["soak.wrong"] == 1
    assert measured(runs)["soak.wrong"] is None
    other = baseline(1, 2, 3, 4).model_copy(update={"answers": ()})
    assert measured(runs, baseline=other)["soak.wrong"] is None, "no answer to compare with"


@given(st.lists(st.floats(0, 100), min_size=2, max_size=60))
def test_quantiles_are_the_librarys(values: list[float]) -> None:
    found = quantiles(values)
    assert found is not None
    assert found.p50 == pytest.approx(statistics.median(values))
    cuts = statistics.quantiles(values, n=10, method="inclusive")
    assert found.p90 == pytest.approx(cuts[8])
    assert min(values) - 1e-9 <= found.p50 <= found.p99 + 1e-9 <= max(values) + 2e-9


def test_of_the_smoke_tests_evidence() -> None:
    shown = {
        "stage": "rung-3", "prompt": "p", "outcome": "wrong", "index": 5, "gap": None, "from": 0,
        "expected_ids": [1], "got_ids": [2], "expected_text": "a", "got_text": "b",
    }  # fmt: skip
    evidence = {"counts": {"wrong": 1, "near_tie": 1, "equal": 2}, "divergences": [shown]}
    smoke = SmokeResult(
        checks=(Check("lossless", "fail", "wrong", evidence),),
        probes=Probes(REFUSED, REFUSED, "p", 16),
        exam={"accept_len": 2.5},
    )
    found = measured(None, smoke=smoke)
    assert (found["exam.wrong"], found["exam.near_tie_share"]) == (1, 0.25)
    assert found["exam.accept_len"] == 2.5
    (one,) = divergences(smoke)
    assert (one.stage, one.index, one.expected_ids, one.got_ids) == ("rung-3", 5, (1,), (2,))
    assert divergences(None) == ()
