"""Confirm what is there: for a rollout whose client was lost while the new version loaded."""

from __future__ import annotations

import time

from opsctl.errors import OpsctlError, Refused
from opsctl.events import Event
from opsctl.report import Reason, Report
from opsctl.rollout import lock_text, notifying, observe
from opsctl.rollout.plan import require_state
from opsctl.rollout.prove import emit_notes, prove, summary, verdict_of
from opsctl.rollout.reports import EXITS
from opsctl.rollout.run import Options
from opsctl.rollout.session import Session
from opsctl.smoke import SmokeResult

_UNPROVED = frozenset({"staged", "unconfirmed"})
# The guard takes the lock for a moment each second, to look.
_GUARDS_LOOK = 10.0


def confirm(session: Session, options: Options) -> Report:
    """Wait until it is ready, prove it under the lock, write it down and disarm the guard.

    Raises:
        Refused: there is nothing to confirm, or what is there does not get ready.
        LockHeld: the rollout goes on, or another does.
    """
    began = time.time()
    now = session.lock_state()
    if now["holder"] is not None and not now["by_guard"] and not options.lock_wait:
        raise lock_text.held(now, session.host.name)
    subject = _subject(session)
    waited = observe.wait(session, options)  # the guard goes on watching the load
    if waited.verdict != "pass":
        raise Refused(
            f"what is there does not get ready: {waited.summary}",
            remedy=waited.reasons[0].remedy if waited.reasons else "",
            code="not_ready",
        )
    why = options.why or "opsctl confirm"
    session.lock(why, max(options.lock_wait, _GUARDS_LOOK))
    if _subject(session) != subject:
        raise Refused(
            "what was to be confirmed is there no longer",
            remedy=f"opsctl status {session.host.name}",
            code="changed_since_plan",
        )
    session.emit(Event("smoke", "start"))
    result = prove(session)
    emit_notes(result, session.emit)
    session.emit(Event("smoke", "ok" if result.verdict == "pass" else "fail", summary(result)))
    number, status, pending = subject
    if result.verdict == "pass":
        loaded = waited.data.get("ready_s") or None
        _conclude(session, number, status, result, loaded)
    what = f"generation {number}" if number is not None else session.service.unit
    text = f"{what} is confirmed: {summary(result)}"
    remedy = ""
    if result.verdict != "pass":
        text = f"{what} is not confirmed: {summary(result)}"
        remedy = f"opsctl rollback {session.host.name}"
        if pending:
            remedy += ", or leave it to the guard, which ends the rollout when its budget is over"
    report = Report(
        command="confirm",
        host=session.host.name,
        service=session.service.name,
        verdict=result.verdict,
        exit_code=EXITS[result.verdict],
        summary=text,
        reasons=tuple(
            Reason(code="smoke_failed", message=reason, remedy=remedy) for reason in result.reasons
        ),
        generation=number,
        started_at=began,
        duration_s=round(time.time() - began, 3),
        data={
            "smoke": result.to_json(),
            "accept_len": result.accept_len,
            "verify_steps": result.verify_steps,
        },
    )
    return notifying.tell(session, report, options.why)


def _subject(session: Session) -> tuple[int | None, str, bool]:
    """(generation on disk, its status, whether the guard waits): what there is to confirm."""
    facts = session.inspect()
    require_state(facts)
    terms = facts["guard"]["terms"]
    generation = facts["generation"]
    number = generation["number"] if generation else None
    status = str(generation["status"]) if generation else ""
    host = session.host.name
    if facts["swap"]:
        raise Refused(
            "there is nothing to confirm: a swap was cut off, and the files may be a mixture",
            remedy=f"opsctl rollback {host} finishes it",
            code="swap_under_way",
        )
    if terms is not None and terms.get("target") not in (None, number):
        raise _nothing(
            f"generation {terms['target']} never came to the disk, generation {number} is there",
            f"opsctl rollback {host} starts it now, or leave that to the guard",
        )
    if terms is None and status not in _UNPROVED:
        state = f"generation {number} is {status}" if generation else "no deploy is recorded"
        raise _nothing(
            f"{state}, and no rollout was lost", f"opsctl smoke {host} proves the server"
        )
    return number, status, terms is not None


def _nothing(why: str, remedy: str) -> Refused:
    return Refused(f"there is nothing to confirm: {why}", remedy=remedy, code="nothing_to_confirm")


def _conclude(
    session: Session, number: int | None, status: str, result: SmokeResult, load_s: float | None
) -> None:
    if number is not None and status != "found":
        verdict = {**verdict_of(result, load_s), "why": "opsctl confirm"}
        try:
            session.call(
                "conclude", number=number, status="confirmed", verdict=verdict, load_seconds=load_s
            )
        except OpsctlError as error:  # a full disk: it is proven all the same
            session.emit(Event("confirm", "warn", f"not recorded: {error.message}"))
    session.call("disarm_guard", well=True)
