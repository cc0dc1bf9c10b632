"""`--standard` and `--deep`: everything asked and looked at, and the checks that come of it.

Pure but for what is passed in; the requests are `stages`'.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from opsctl.baseline import Baseline, Prompt
from opsctl.sglang import DecodeBatch, Load
from opsctl.smoke import answered, lossless, speculation
from opsctl.smoke.model import Check
from opsctl.smoke.server import ServerFacts
from opsctl.smoke.speculation import Thresholds, accept_len_alone
from opsctl.smoke.stages import Level, Ran
from opsctl.text import counted


@dataclass(frozen=True, slots=True)
class Exam:
    """What is asked and held against what. `previous` is the mean accept length that the
    generation before had at `prompts`; `deep` are the deep level's own, `recapture` is the command
    for a baseline that has them all."""

    level: Level
    prompts: tuple[Prompt, ...]
    facts: ServerFacts
    baseline: Baseline | None = None
    no_baseline: str = ""  # why there is none
    previous: float | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)
    deep: tuple[Prompt, ...] = ()
    recapture: str = ""

    @property
    def deep_asked(self) -> tuple[Prompt, ...]:
        """Those that the baseline can judge: they take minutes, and show nothing else."""
        if self.baseline is None:
            return ()
        lacking = self.baseline.lacks(self.deep)
        return tuple(prompt for prompt in self.deep if prompt.id not in lacking)


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of an exam.

    `lines` are the decode lines since its first request; `loads` what each rank of the server had
    under way once it was over, `before` what it had before the first request, None where it does
    not say or was not asked; `healthy` what /health said while requests went
    unanswered.
    """

    ran: tuple[Ran, ...] = ()
    lines: tuple[DecodeBatch, ...] = field(default=(), repr=False)
    loads: tuple[Load, ...] | None = None
    healthy: bool | None = None
    before: tuple[Load, ...] | None = None

    @property
    def accept_len(self) -> float | None:
        """Tokens a verify step, the prompts one at a time."""
        return accept_len_alone(self.ran)

    def to_json(self) -> dict[str, Any]:
        """The stages with their times; seconds."""
        return {
            "accept_len": self.accept_len,
            "stages": [
                {
                    "name": stage.stage.name,
                    "why": stage.stage.why,
                    "at_once": stage.stage.at_once,
                    "requests": len(stage.samples),
                    "answered": sum(sample.answer is not None for sample in stage.samples),
                    "seconds": round(max((s.ended for s in stage.samples), default=0.0), 3),
                    "tokens": sum(
                        (s.answer.completion_tokens or 0) for s in stage.samples if s.answer
                    ),
                }
                for stage in self.ran
            ],
        }


def judge(exam: Exam, seen: Seen) -> Iterator[Check]:
    """Every check of the level, in the order in which an operator would read them."""
    yield from answered.checks(seen.ran, exam.prompts, exam.baseline, healthy=seen.healthy)
    yield from lossless.checks(
        seen.ran,
        exam.baseline,
        exam.facts.captured,
        exam.no_baseline,
        deep=exam.deep,
        recapture=exam.recapture,
    )
    yield from speculation.checks(seen.ran, exam.facts, seen.lines, exam.thresholds, exam.previous)
    yield _pool(seen.loads, seen.before)


def _pool(loads: Sequence[Load] | None, before: Sequence[Load] | None) -> Check:
    """Idle again, the KV pool of each rank must be whole: what a lost request keeps is never given
    back. Requests of others are told from one of ours that never ends by how many were under way
    before."""
    name = "kv_pool"
    if not loads:
        return Check(name, "skipped", "the server does not say what it has under way")
    busy = sum(load.requests for load in loads)
    others = sum(load.requests for load in before) if before else busy
    evidence = {"used_tokens": [load.used_tokens for load in loads], "requests": busy}
    if busy > others:
        reason = f"{counted(busy, 'request')} under way, {others} before: others', or without end"
        return Check(name, "inconclusive", reason, evidence)
    if busy:
        return Check(name, "skipped", f"{counted(busy, 'request')} of others under way", evidence)
    used = {rank: load.used_tokens for rank, load in enumerate(loads) if load.used_tokens}
    if used:
        told = ", ".join(f"{tokens} tokens on rank {rank}" for rank, tokens in used.items())
        reason = f"{told} in use with no request under way"
        return Check(name, "fail", reason, evidence, kind="kv_pool_leak")
    return Check(name, "pass", "idle, with every slot free or evictable", evidence)
