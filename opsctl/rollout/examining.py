"""The further levels of a smoke test: what they need of the host, and what came of them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio

from opsctl.baseline import Prompt
from opsctl.baseline.prompts import prompts_hash
from opsctl.events import Event
from opsctl.rollout import baselining
from opsctl.rollout.session import Session
from opsctl.rollout.subject import chosen_prompts, deep_prompts, subject
from opsctl.sglang import Load, ServerError
from opsctl.smoke import Exam, Level, Ran, Seen, resume, run_stages, stages

# A request that was given up is taken out of the batch at the next step.
_IDLE_WAIT: Final = 5.0
_DEAD: Final = frozenset({"reset", "refused", "timeout"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the caller chose: a level, prompts of one's own, a baseline by its id or file."""

    level: Level = "quick"
    prompts: Path | None = None
    baseline: str | None = None


def prepare(session: Session, wanted: Wanted) -> Exam | None:
    """None for the quick level.

    Raises:
        Refused: the baseline that was named is of another model or precision.
        UsageError: prompts or baseline cannot be read.
    """
    if wanted.level == "quick":
        return None
    found, facts = subject(session)
    chosen = chosen_prompts(wanted.prompts, facts)
    deep = deep_prompts(wanted.prompts, facts) if wanted.level == "deep" else ()
    baseline, why = baselining.choose(session, found, wanted.baseline, deep)
    return Exam(
        level=wanted.level,
        prompts=chosen,
        facts=facts,
        baseline=baseline,
        no_baseline=why,
        previous=_previous(session, chosen),
        deep=deep,
        recapture=baselining.command(session, wanted.prompts, deep=True),
    )


def run(session: Session, exam: Exam) -> tuple[Ran, ...]:
    """Ask everything, until the server answers no more."""

    def told(stage: Ran) -> bool:
        lost = [sample.error for sample in stage.samples if sample.error is not None]
        took = max((sample.ended for sample in stage.samples), default=0.0)
        text = f"{stage.stage.name}: {len(stage.samples) - len(lost)} answers in {took:.1f} s"
        session.emit(Event("smoke", "warn" if lost else "info", text))
        return not any(error.cause in _DEAD for error in lost)

    async def ask() -> list[Ran]:
        planned = stages(exam.prompts, exam.facts, exam.level, exam.deep_asked)
        timeout = session.service.smoke.timeout
        async with session.completions(exam.facts.version) as client:
            ran = await run_stages(client, planned, timeout, told)
            if exam.baseline is None or ran[-1].stage.name != planned[-1].name:
                return ran  # nothing tells a near tie, or the server is gone
            rest = await resume(client, ran, exam.baseline, timeout)
        if rest is None:
            return ran
        told(rest)
        return [*ran, rest]

    return tuple(anyio.run(ask))


def under_way(session: Session, exam: Exam) -> tuple[Load, ...] | None:
    """What each rank of the server has under way; None where it does not say."""
    with session.client() as client:
        client.version = exam.facts.version
        try:
            return tuple(client.loads())
        except ServerError:
            return None


def look(session: Session, exam: Exam, ran: tuple[Ran, ...]) -> Seen:
    """What the server says once all is over; the journal's lines are the caller's to add."""
    errors = [s.error for stage in ran for s in stage.samples if s.error is not None]
    if any(error.cause in _DEAD for error in errors):
        with session.client() as client:
            return Seen(ran=ran, healthy=client.healthy())
    deadline = time.monotonic() + _IDLE_WAIT
    while True:
        loads = under_way(session, exam)
        busy = any(load.requests or load.used_tokens for load in loads or ())
        if not busy or time.monotonic() > deadline:
            return Seen(ran=ran, loads=loads)
        time.sleep(0.3)


def _previous(session: Session, prompts: tuple[Prompt, ...]) -> float | None:
    """What the predecessor of the generation in place accepted at the same prompts."""
    current = session.inspect()["generation"]
    if current is None:
        return None
    records: list[dict[str, Any]] = session.call("generations")
    before = next((r for r in records if r.get("number") == current.get("predecessor")), {})
    verdict = before.get("verdict") or {}
    if verdict.get("exam_prompts") != prompts_hash(prompts):
        return None
    length = verdict.get("exam_accept_len")
    return float(length) if length else None
