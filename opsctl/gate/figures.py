"""Figures of a soak, and the metrics that a policy's rules name."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from opsctl.baseline import Baseline
from opsctl.gate.model import Quantiles, Shown, Soak
from opsctl.smoke import SmokeResult, judged, mean_accept_len
from opsctl.traffic import Sample


@dataclass(frozen=True, slots=True)
class Soaked:
    """What came of a soak: `began` is Unix time on this machine, `samples` in the order in which
    they ended."""

    at_once: int
    seed: int
    began: float
    samples: tuple[Sample, ...]

    @property
    def seconds(self) -> float:
        return max((sample.ended for sample in self.samples), default=0.0)

    @property
    def accept_len(self) -> float | None:
        """Tokens a verify step over all answers."""
        return mean_accept_len(sample.answer for sample in self.samples if sample.answer)

    @property
    def figures(self) -> Soak:
        answers = [sample.answer for sample in self.samples if sample.answer]
        tokens = sum(answer.completion_tokens or 0 for answer in answers)
        return Soak(
            seconds=round(self.seconds, 3),
            at_once=self.at_once,
            seed=self.seed,
            requests=len(self.samples),
            errors=len(self.samples) - len(answers),
            tokens=tokens,
            throughput=tokens / self.seconds if self.seconds else 0.0,
            latency=quantiles([answer.latency_s for answer in answers]),
            first_token=quantiles([answer.arrivals[0] for answer in answers if answer.arrivals]),
        )

    def wrong(self, baseline: Baseline | None) -> int | None:
        """Answers that the baseline calls wrong; None without one."""
        if baseline is None:
            return None
        found = [judged(sample, baseline) for sample in self.samples]
        known = [each for each in found if each is not None]
        return sum(each.outcome == "wrong" for each in known) if known else None


def quantiles(values: Sequence[float]) -> Quantiles | None:
    """Interpolated between the two nearest values; None without any."""
    if not values:
        return None
    if len(values) == 1:
        return Quantiles(values[0], values[0], values[0])
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return Quantiles(cuts[49], cuts[89], cuts[98])


def metrics(
    *,
    load_s: float | None,
    budget_s: float,
    smoke: SmokeResult | None,
    after: Soaked | None,
    before: Soaked | None,
    baseline: Baseline | None,
) -> dict[str, float | None]:
    """Every metric of `policy.METRICS`; None for what could not be measured."""
    found: dict[str, float | None] = {
        "load.seconds": load_s,
        "load.budget_share": load_s / budget_s if load_s is not None else None,
        "smoke.accept_len": smoke.accept_len if smoke else None,
        **_of_exam(smoke),
    }
    new, old = _of_soak(after), _of_soak(before)
    found |= new
    found["soak.wrong"] = after.wrong(baseline) if after else None
    for name in ("accept_len", "throughput", "latency_p99"):
        ours, theirs = new[f"soak.{name}"], old[f"soak.{name}"]
        found[f"soak.{name}_ratio"] = ours / theirs if ours is not None and theirs else None
    return found


def _of_exam(smoke: SmokeResult | None) -> dict[str, float | None]:
    exam: Mapping[str, Any] = (smoke.exam if smoke else None) or {}
    counts = _evidence(smoke).get("counts") or {}
    total = sum(counts.values())
    return {
        "exam.accept_len": exam.get("accept_len"),
        "exam.wrong": counts.get("wrong", 0) if total else None,
        "exam.near_tie_share": counts.get("near_tie", 0) / total if total else None,
    }


def _evidence(smoke: SmokeResult | None) -> Mapping[str, Any]:
    checks = smoke.checks if smoke else ()
    return next((check.evidence for check in checks if check.name == "lossless"), {})


_SOAK: Final = (
    "requests", "error_rate", "accept_len", "throughput", "latency_p50", "latency_p99",
    "first_token_p50", "first_token_p99",
)  # fmt: skip


def _of_soak(soaked: Soaked | None) -> dict[str, float | None]:
    if soaked is None or not soaked.samples:
        return {f"soak.{name}": None for name in _SOAK}
    figures = soaked.figures
    latency, first = figures.latency, figures.first_token
    values = (
        figures.requests,
        figures.errors / figures.requests,
        soaked.accept_len,
        figures.throughput,
        latency.p50 if latency else None,
        latency.p99 if latency else None,
        first.p50 if first else None,
        first.p99 if first else None,
    )
    return {f"soak.{name}": value for name, value in zip(_SOAK, values, strict=True)}


def divergences(smoke: SmokeResult | None) -> tuple[Shown, ...]:
    """Those that the smoke test kept as evidence, the worst first."""
    return tuple(
        Shown(
            stage=each["stage"],
            prompt=each["prompt"],
            outcome=each["outcome"],
            index=each["index"],
            gap=each["gap"],
            begin=each["from"],
            expected_ids=tuple(each["expected_ids"]),
            got_ids=tuple(each["got_ids"]),
            expected_text=each["expected_text"],
            got_text=each["got_text"],
        )
        for each in _evidence(smoke).get("divergences") or ()
        if each["outcome"] != "equal"
    )
