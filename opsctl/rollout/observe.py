"""The commands that change nothing: status, wait, smoke and doctor; metrics is in `metering`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opsctl import errors
from opsctl.errors import OpsctlError, Refused
from opsctl.events import Event
from opsctl.readiness import Readiness, Ready, wait_ready
from opsctl.report import Reason, Report, Verdict
from opsctl.rollout import diagnosing, drift, examining, guard_text
from opsctl.rollout import doctor as doctor_checks
from opsctl.rollout.drift import adopted_text, changed_files
from opsctl.rollout.examining import Wanted
from opsctl.rollout.plan import find_patchset
from opsctl.rollout.prove import emit_notes, prove, summary
from opsctl.rollout.reports import EXITS, plain_report
from opsctl.rollout.run import Options
from opsctl.rollout.serving import (
    Incident,
    announced,
    last_incident,
    not_running,
    require_ready,
    serving_of,
)
from opsctl.rollout.session import Session, StartJournal
from opsctl.units.properties import Unit


def status(session: Session) -> Report:
    """Unit, version, generation, lock, last loads and last incident, as they are now."""
    facts = session.inspect()
    unit = Unit.from_show(facts["unit"])
    generation = facts["generation"]
    what = generation["set"] if generation else None
    label = f"{what['name']} {what['version']}" if what else "no patch set"
    number = generation["number"] if generation else None
    place = f"generation {number}, " if number is not None else ""
    serving = serving_of(session, unit)
    incident = last_incident(session) if unit.exists else None
    host = session.host.name
    trouble = _trouble(facts, host)
    pending = _pending(facts, host)
    verdict: Verdict = "fail" if trouble else serving.verdict
    if verdict == "pass" and pending:
        verdict = "inconclusive"  # what serves now will be taken away
    text = f"{unit.name} is {unit.state}, {place}{label}, {serving.text}"
    if unit.plain:
        text += ", without speculation until opsctl starts it again"
    by_hand = adopted_text(generation)
    reasons = [*trouble, *pending]
    told = tuple(reasons)
    if serving.verdict != "pass":
        cause = incident.diagnosis.remedy if incident and serving.verdict == "fail" else ""
        reasons.append(Reason(code=serving.code, message=serving.text, remedy=cause))
    return Report(
        command="status",
        host=session.host.name,
        service=session.service.name,
        verdict=verdict,
        exit_code=EXITS[verdict],
        summary="; ".join([text, *filter(None, [by_hand]), *(r.message for r in told)]),
        reasons=tuple(reasons),
        generation=number,
        data={
            "unit": {
                "active_state": unit.active_state,
                "sub_state": unit.sub_state,
                "result": unit.result,
                "invocation": unit.invocation_id,
                "n_restarts": unit.n_restarts,
                "main_pid": unit.main_pid,
                "active_for_s": unit.active_for,
            },
            "version": facts["install"].get("version"),
            "set": what,
            "lock": facts["lock"],
            "swap": facts["swap"],
            "guard": facts["guard"],
            "trouble": [each.message for each in trouble],
            "adopted": list((generation or {}).get("adopted") or ()),
            "incident": _incident_json(incident),
            "last_loads_s": facts["loads"],
            "models": list(serving.models),
            "http": serving.text,
            "generations": [
                {key: record.get(key) for key in ("number", "status", "set", "created", "who")}
                for record in _recorded(session)
            ],
        },
    )


def _pending(facts: Mapping[str, Any], host: str) -> list[Reason]:
    """That a rollout was lost and its end is to come; while the lock is held, it is not lost."""
    terms = facts["guard"]["terms"]
    if terms is None or facts["lock"]:
        return []
    message = guard_text.pending(terms, Unit.from_show(facts["unit"]))
    return [Reason(code="guard_pending", message=message, remedy=guard_text.ways_out(host))]


def _recorded(session: Session) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = session.call("generations")
    except Refused:  # a damaged state folder, which the summary names
        return []
    return found


def _incident_json(incident: Incident | None) -> dict[str, Any] | None:
    if incident is None:
        return None
    return {
        "at": incident.at,
        "invocation": incident.invocation,
        "text": incident.text,
        **incident.diagnosis.to_json(),
    }


def _trouble(facts: Mapping[str, Any], host: str) -> list[Reason]:
    """Why the disk is not, or may not be, what the recorded generation says."""
    fault = facts.get("state_fault")
    other = changed_files(facts)
    if fault:
        message, remedy = str(fault["message"]), str(fault["remedy"])
    elif facts["swap"]:
        swap = facts["swap"]
        message = (
            f"a swap from generation {swap['from']} to {swap['to']} was cut off: the files may be "
            "a mixture"
        )
        remedy = f"opsctl rollback {host} finishes it"
    elif other:
        message = f"the files on disk are not this generation's: {', '.join(other)}"
        remedy = drift.remedy(host, facts["generation"]["number"])
    else:
        return []
    return [Reason(code="trouble", message=message, remedy=remedy)]


def wait(session: Session, options: Options) -> Report:
    """Follow the present start until it is ready; nothing is started or changed.

    Raises:
        Refused: the unit is not running.
    """
    began = time.time()
    facts = session.inspect()
    unit = Unit.from_show(facts["unit"])
    if unit.down:
        raise not_running(session, unit)
    if unit.active and announced(session, unit):
        serving = serving_of(session, unit)
        if serving.verdict == "pass":
            text = f"{unit.name} is ready"
            return plain_report(session, "wait", text, data={"ready_s": 0.0})
        remedy = "it may hang: opsctl logs; or listen or port in the inventory is not the unit's"
        reason = Reason(code=serving.code, message=serving.text, remedy=remedy)
        return _not_ready(session, began, reason, unit.invocation_id, facts)
    load = session.service.load
    machine = Readiness(
        previous_invocation="",
        budget=options.budget or load.budget,
        stall=options.stall or load.stall,
        # The load began when the unit did, not when somebody came to look.
        started=time.monotonic() - (unit.active_for or 0.0),
        history=list(facts["loads"]),
        restarts_before=unit.n_restarts,
    )
    with session.watch() as watch, session.client() as client:
        outcome = wait_ready(machine, watch, client, session.emit)
    if isinstance(outcome, Ready):
        text = f"{unit.name} is ready after {outcome.ready_s:.1f} s"
        data = {"ready_s": round(outcome.ready_s, 3), "lag_s": round(outcome.lag_s, 3)}
        return plain_report(session, "wait", text, data=data)
    reason = Reason(code=outcome.cause, message=outcome.message, remedy=outcome.remedy)
    return _not_ready(session, began, reason, machine.invocation, facts)


def _not_ready(
    session: Session, began: float, reason: Reason, invocation: str, facts: Mapping[str, Any]
) -> Report:
    journal = session.read(invocation) if invocation else StartJournal([])
    found = diagnosing.of_start(journal, session.unit(), diagnosing.patched_by(facts))
    if found.crash:
        message = f"{reason.message}: {found.summary}"
        reason = Reason(code=reason.code, message=message, remedy=found.remedy or reason.remedy)
    return Report(
        command="wait",
        host=session.host.name,
        service=session.service.name,
        verdict="fail",
        exit_code=errors.EXIT_NOT_RESTORED,
        summary=reason.message,
        reasons=(reason,),
        started_at=began,
        duration_s=round(time.time() - began, 3),
        data={"diagnosis": found.to_json() if found.incident else None},
    )


def smoke(session: Session, wanted: Wanted) -> Report:
    """Prove the server as it runs, changing nothing.

    Raises:
        Refused: the unit is not running, or is still loading; see `examining.prepare`.
    """
    began = time.time()
    unit = session.unit()
    require_ready(session, unit)
    exam = examining.prepare(session, wanted)
    session.emit(Event("smoke", "start"))
    result = prove(session, exam=exam)
    emit_notes(result, session.emit)
    if result.verdict == "pass":
        session.emit(Event("smoke", "ok", summary(result)))
    return Report(
        command="smoke",
        host=session.host.name,
        service=session.service.name,
        verdict=result.verdict,
        exit_code=EXITS[result.verdict],
        summary=summary(result),
        reasons=tuple(Reason(code="smoke_failed", message=reason) for reason in result.reasons),
        started_at=began,
        duration_s=round(time.time() - began, 3),
        data={
            "smoke": result.to_json(),
            "accept_len": result.accept_len,
            "verify_steps": result.verify_steps,
            "invocation": unit.invocation_id,
        },
    )


def doctor(session: Session, patches: Path) -> Report:
    """Everything that would make a deploy fail. What cannot be reached is a finding too."""
    expected: Any = None
    try:
        facts = session.inspect(audit=True)
    except errors.Unreachable as error:
        findings = [doctor_checks.Finding("ssh", "fail", error.message, error.remedy)]
    else:
        if session.service.patch_set is not None and "fault" not in facts["install"]:
            try:
                expected, _ = find_patchset(session, patches, None, facts)
            except OpsctlError as error:
                expected = error
        findings = doctor_checks.examine(facts, session.service, expected, session.host.name)
    faults = [f for f in findings if f.status == "fail"]
    unreachable = any(f.name == "ssh" for f in faults)
    text = f"{len(faults)} of {len(findings)} checks would make a deploy fail"
    return Report(
        command="doctor",
        host=session.host.name,
        service=session.service.name,
        verdict="fail" if faults else "pass",
        exit_code=_doctor_exit(failed=bool(faults), unreachable=unreachable),
        summary=text if faults else f"{len(findings)} checks, nothing in the way of a deploy",
        reasons=tuple(Reason(code=f.name, message=f.message, remedy=f.remedy) for f in faults),
        data={"findings": [f.to_json() for f in findings]},
    )


def _doctor_exit(*, failed: bool, unreachable: bool) -> int:
    if unreachable:
        return errors.EXIT_UNREACHABLE
    return errors.EXIT_REFUSED if failed else errors.EXIT_OK
