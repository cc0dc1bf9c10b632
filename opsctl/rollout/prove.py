"""Healthy means that the verify path ran: the smoke requests and what the host says after."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import replace

from opsctl.baseline.prompts import prompts_hash
from opsctl.events import Emit, Event
from opsctl.journal import Acceptance, Entry
from opsctl.rollout import diagnosing, examining
from opsctl.rollout.session import Session, StartJournal
from opsctl.sglang import DecodeBatch, Load, ServerError, parse_all
from opsctl.smoke import (
    Check,
    Exam,
    Probes,
    Ran,
    SmokeResult,
    UnitFacts,
    judge,
    judge_exam,
    run_probes,
)
from opsctl.units.properties import Unit

# After an exception in its forward SGLang needs about 1 s to die, up to 2.6 s measured.
_DEATH_WAIT = 6.0
# The decode line of the last step is written after the answer went out.
_LAST_LINE_WAIT = 0.3


_UNPROVED = Check(
    "verify_path",
    "inconclusive",
    "it was started without speculation (opsctl restart --plain): nothing of it is proved",
    kind="verify_path_unused",
)


def prove(
    session: Session,
    *,
    strict: bool = True,
    patched: Collection[str] | None = None,
    exam: Exam | None = None,
    plain: bool = False,
) -> SmokeResult:
    """Send the smoke requests, then read state, InvocationID, journal and acceptance again.

    `strict` holds acceptance against the floor; a restored generation is not, since it may
    never have reached it. `patched` are the files of the patch set that is in place; without,
    the host is asked. `exam` is what is asked beside the quick level's requests. `plain` says
    that it was to start without speculation: then it need not verify; of another one that does
    not, nothing is proved.
    """
    service = session.service
    if patched is None:
        patched = diagnosing.patched_by(session.inspect())
    before = session.unit()
    settings = (
        service.smoke.model_copy(update={"speculative": False}) if before.plain else service.smoke
    )
    with session.client() as client:
        probes = run_probes(client, settings, service.model.served_name)
    ran, under_way = _examined(session, exam, probes)
    if _unanswered(probes) or any(sample.error for stage in ran for sample in stage.samples):
        after = _see_it_die(session, before)
    else:
        time.sleep(_LAST_LINE_WAIT)
        after = session.unit()
    invocation = before.invocation_id
    journal = session.read(invocation) if invocation else StartJournal([])
    result = judge(
        probes,
        settings,
        unit_before=facts(before),
        unit_after=facts(after),
        diagnosis=diagnosing.of_start(journal, after, patched) if journal.entries else None,
        acceptance=acceptance_since(journal.entries, before.time),
        strict_acceptance=strict,
    )
    if before.plain and not plain:
        result = replace(result, checks=(*result.checks, _UNPROVED))
    if exam is None:
        return result
    lines = tuple(_decode_lines(journal.entries, before.time))
    seen = replace(examining.look(session, exam, ran), lines=lines, before=under_way)
    return replace(
        result,
        checks=(*result.checks, *judge_exam(exam, seen)),
        level=exam.level,
        exam={**seen.to_json(), "prompts": prompts_hash(exam.prompts)},
    )


def _examined(
    session: Session, exam: Exam | None, probes: Probes
) -> tuple[tuple[Ran, ...], tuple[Load, ...] | None]:
    """What came of the exam's requests, and what the server had under way before them."""
    if exam is None or _unanswered(probes):
        return (), None
    before = examining.under_way(session, exam)
    return examining.run(session, exam), before


def facts(unit: Unit) -> UnitFacts:
    return UnitFacts(
        active_state=unit.active_state,
        sub_state=unit.sub_state,
        invocation_id=unit.invocation_id,
        n_restarts=unit.n_restarts,
    )


def acceptance_since(entries: list[Entry], since: float = 0.0) -> Acceptance:
    """From the decode lines written at or after `since` (Unix seconds on the host)."""
    return Acceptance.from_lines(_decode_lines(entries, since))


def _decode_lines(entries: list[Entry], since: float) -> Iterator[DecodeBatch]:
    for entry in entries:
        if entry.realtime >= since:
            yield from (line for line in parse_all(entry.message) if isinstance(line, DecodeBatch))


def summary(result: SmokeResult) -> str:
    """One line for a person."""
    if result.verdict != "pass":
        return "; ".join(result.reasons)
    if result.exam is not None:
        told = {check.name: check.reason for check in result.checks}
        return "; ".join(told[name] for name in ("lossless", "acceptance") if name in told)
    parts = [f"{result.tokens} tokens"]
    if result.verify_steps is not None:
        parts.append(f"{result.verify_steps} verify steps")
    if result.accept_len is not None:
        parts.append(f"accept len {result.accept_len:.2f}")
    if result.acceptance is not None and result.acceptance.cuda_graph_share is not None:
        parts.append(f"cuda graph {result.acceptance.cuda_graph_share:.0%} of steps")
    return ", ".join(parts)


def verdict_of(result: SmokeResult, ready_s: float | None) -> dict[str, object]:
    """What a generation's record says of how it proved itself, after a load of `ready_s`."""
    return {
        "verdict": result.verdict,
        "reasons": list(result.reasons),
        "accept_len": result.accept_len,
        "verify_steps": result.verify_steps,
        "ready_s": ready_s,
        "level": result.level,
        "exam_accept_len": result.exam["accept_len"] if result.exam else None,
        "exam_prompts": result.exam["prompts"] if result.exam else None,
    }


def emit_notes(result: SmokeResult, emit: Emit) -> None:
    for note in result.notes:
        emit(Event("smoke", "warn", note))


def _unanswered(probes: Probes) -> bool:
    return isinstance(probes.chat, ServerError) or isinstance(probes.generate, ServerError)


def _see_it_die(session: Session, before: Unit) -> Unit:
    """A request failed: give a dying server the time to be seen dead."""
    deadline = time.monotonic() + _DEATH_WAIT
    while True:
        unit = session.unit()
        changed = unit.invocation_id != before.invocation_id
        if not unit.active or changed or unit.n_restarts > before.n_restarts:
            return unit
        if time.monotonic() > deadline:
            return unit
        time.sleep(0.3)
