"""The step that waits for a start, across a lost connection, and names what it died of."""

from __future__ import annotations

import time

from opsctl.errors import OpsctlError, Unreachable
from opsctl.events import Event
from opsctl.journal import Diagnosis
from opsctl.readiness import Failed, Readiness, wait_ready
from opsctl.rollout import diagnosing, guard_text, guarding
from opsctl.rollout.run import Run, StepFailed


def wait(run: Run) -> str:
    """Until the start of this run is ready or, where it made none, the present one."""
    restarts = 0 if run.watch is not None else _join(run)
    machine = Readiness(
        previous_invocation=run.previous_invocation,
        budget=run.budget,
        stall=run.stall,
        started=run.started,
        history=list(run.facts.get("loads", ())),
        restarts_before=restarts,
    )
    while True:
        try:
            assert run.watch is not None
            with run.session.client() as client:
                outcome = wait_ready(machine, run.watch, client, run.session.emit)
            break
        except Unreachable as error:
            go_on(run, error)
    run.close_watch()
    if isinstance(outcome, Failed):
        raise _load_failed(run, machine, outcome)
    run.ready = outcome
    wanted = run.session.service.model.served_name
    if wanted not in outcome.models:
        raise StepFailed(
            "wrong_model",
            f"the server serves {', '.join(outcome.models) or 'nothing'}, not {wanted}",
            remedy="correct model.served_name in the inventory, or the unit's arguments",
        )
    return f"in {outcome.ready_s:.1f} s, noticed {outcome.lag_s:.2f} s after it said so"


def follow(run: Run) -> str:
    """The same, as a look: what does not get ready is for later steps to judge."""
    unit = run.session.unit()
    if unit.down:
        return f"{unit.name} is {unit.state}: there is no load to follow"
    try:
        return wait(run)
    except StepFailed as failed:
        run.close_watch()
        run.session.emit(Event("follow", "warn", failed.message))
        return "not ready"


def _join(run: Run) -> int:
    """Come to a start that somebody else made; its restarts until now, which are no news."""
    unit = run.session.unit()
    run.previous_invocation = ""
    # The load began when the unit did, not when somebody came to look.
    run.started = time.monotonic() - (unit.active_for or 0.0)
    run.open_watch(ignore="")
    return unit.n_restarts


def go_on(run: Run, lost: Unreachable) -> None:
    """The connection was lost in mid-load: the load goes on without it, and so does this wait.

    Raises:
        StepFailed: the guard has ended the rollout meanwhile.
        OpsctlError: the host cannot be reached again, or the lock not be had.
    """
    if not run.guarded:
        raise lost
    run.session.emit(Event("reconnect", "start", lost.message))
    run.close_watch()
    run.session.reconnect()
    report = guarding.take_over(run)
    if report is not None:
        raise StepFailed("guard_acted", guard_text.describe(report))
    run.open_watch(ignore=run.previous_invocation)
    run.session.emit(Event("reconnect", "ok"))


def _load_failed(run: Run, machine: Readiness, failed: Failed) -> StepFailed:
    """The state says that it died; the journal of that start says of what."""
    run.diagnosis = Diagnosis(incident=False)
    if machine.invocation:
        try:
            journal, unit = run.session.read(machine.invocation), run.session.unit()
            run.diagnosis = diagnosing.of_start(journal, unit, run.patched)
        except OpsctlError as error:  # the cause is known, and must not be lost behind this one
            run.session.emit(Event("wait", "warn", f"no journal: {error.message}"))
    code: str = failed.cause
    message, remedy = failed.message, failed.remedy
    if run.diagnosis.crash and failed.cause not in {"budget_exceeded", "stalled"}:
        found = run.diagnosis
        code = found.kind or failed.cause
        message = f"{failed.message}: {found.summary}"
        remedy = found.remedy or failed.remedy
    evidence = {
        "cause": failed.cause,
        "phase": machine.progress.phase,
        "diagnosis": run.diagnosis.to_json(),
    }
    return StepFailed(code, message, remedy=remedy, evidence=evidence)
