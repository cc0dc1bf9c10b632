"""The steps by name. Each does one thing to a `Run` and returns a line for a person.

A step raises an `OpsctlError` while nothing is changed, and `StepFailed` after that.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from opsctl.errors import LockHeld, OpsctlError, Refused, Unreachable
from opsctl.events import Event
from opsctl.journal import redact
from opsctl.playbook.spec import PreflightArguments, SmokeArguments, StartArguments
from opsctl.readiness import wait_down
from opsctl.rollout import (
    conditions,
    doctor,
    examining,
    guarding,
    locking,
    trial,
    unitplan,
)
from opsctl.rollout.plan import Plan
from opsctl.rollout.prove import emit_notes, prove, summary, verdict_of
from opsctl.rollout.run import Run, StepFailed, furthest
from opsctl.rollout.session import whoami
from opsctl.rollout.unitplan import UnitInstall
from opsctl.text import counted
from opsctl.units.properties import Unit

# systemd needs a moment past TimeoutStopSec for its SIGKILL to be seen.
_STOP_MARGIN = 20.0
_STOP_DEFAULT = 90.0

# Against a hand, or a timer, that starts the unit while it has to be down.
_STOP_ATTEMPTS = _SWAP_ATTEMPTS = 3
STARTED_AGAIN = "started_again"

# Neither needs the room that a deploy does, and a full disk may be why one is wanted.
_SPACE = ("space_state", "space_package")

# What stands in the way of a deploy need not stand in the way of getting out of one.
_IGNORED = {
    "deploy": frozenset[str](),
    "restart": frozenset({"patch_set", "arguments", "record", "install", "state", *_SPACE}),
    "rollback": frozenset({"patch_set", "arguments", "record", "swap", *_SPACE}),
}


def preflight(run: Run) -> str:
    """Look at everything that would make this fail, before anything is changed."""
    facts = run.plan.facts if run.plan is not None else run.session.inspect()
    run.facts = facts
    if not facts["lock"]:
        _require_settled(run, facts)
    patchset = run.plan.patchset if run.plan is not None else None
    findings = doctor.examine(facts, run.session.service, patchset, run.session.host.name)
    # The lock is the next step's, which tells a held one by its own exit status; a swap under
    # way is its holder's then.
    # Without a generation to put in place it finishes no swap that was cut off.
    kind = "restart" if run.command == "rollback" and run.target is None else run.command
    ignored = _IGNORED.get(kind, frozenset()) | {"lock"}
    if isinstance(run.arguments, PreflightArguments):
        ignored |= set(run.arguments.despite)
    if facts["lock"]:
        ignored = ignored | {"swap"}
    if run.plan is not None and _replaces_arguments(run.plan):
        ignored = ignored | {"arguments"}
    faults = [f for f in findings if f.status == "fail" and f.name not in ignored]
    if faults:
        raise Refused(
            "; ".join(f.message for f in faults),
            remedy="; ".join(f.remedy for f in faults if f.remedy),
            code=f"preflight_{faults[0].name}",
        )
    if run.command == "rollback" and run.target is not None:
        # Of another version, or with a content lost: to be known before the service stops.
        run.session.call("check_swap", number=run.target)
    if run.options.plain or _starts_plain(run):
        run.session.call("check_plain")  # likewise
    run.unit_before = Unit.from_show(facts["unit"])
    generation = facts["generation"]
    run.origin = generation["number"] if generation else None
    return f"{run.session.service.unit} is {run.unit_before.state}"


def _starts_plain(run: Run) -> bool:
    """Whether the playbook starts it without speculation, as far as its conditions tell by now."""
    uses = run.book.steps if run.book is not None else ()
    return any(
        isinstance(use.arguments, StartArguments)
        and use.arguments.plain
        and not conditions.against(run, use)
        for use in uses
    )


def _replaces_arguments(plan: Plan) -> bool:
    """Whether the deploy writes another command line; that one must be what the set needs."""
    given = unitplan.arguments(plan.unit_changes)
    if given is None:
        return False
    unmet = plan.patchset.needs.unmet(given)
    if unmet:
        raise Refused(
            f"{plan.patchset.label} needs of the unit's command line: {', '.join(unmet)}",
            remedy="add them to launch.args in the inventory",
            code="preflight_arguments",
        )
    return True


def _require_settled(run: Run, facts: Mapping[str, Any]) -> None:
    """A rollout that was lost has an end on its way, which only a rollback may cut short."""
    terms = facts["guard"]["terms"]
    if terms is not None and not (run.command == "rollback" and run.target is not None):
        raise locking.guard_pending(run.session, terms, Unit.from_show(facts["unit"]))


def lock(run: Run) -> str:
    why = run.options.why or f"opsctl {run.command}"
    run.session.lock(why, run.options.lock_wait)
    # Somebody may have been faster between the look and the lock, or while we asked "Apply?".
    facts = run.session.inspect()
    _require_settled(run, facts)  # its holder may have been lost while we waited for the lock
    generation = facts["generation"]
    if (generation["number"] if generation else None) != run.origin:
        raise Refused(
            "another rollout of this service ended since this one was planned",
            remedy="look at `opsctl status` and run the command again",
            code="changed_since_plan",
        )
    run.unit_before = Unit.from_show(facts["unit"])
    return "one change of this service at a time"


def stage(run: Run) -> str:
    if run.unit_install is not None:
        return stage_unit(run)
    plan = run.plan
    assert plan is not None
    argv = unitplan.arguments(plan.unit_changes) or []
    if not argv and run.unit_before is not None:
        argv = list(run.unit_before.argv)
    files = len(plan.changes) + len(plan.unit_changes)
    adopted = list(plan.adopted)
    return _stage(run, plan, argv, files, found_set=plan.installed, adopted=adopted)


def stage_unit(run: Run) -> str:
    """The same of the unit's files alone: the set in place, as the host has it."""
    made = run.unit_install
    assert made is not None
    argv = unitplan.arguments(made.changes) or Unit.from_show(made.facts["unit"]).argv
    return _stage(run, made, argv, len(made.changes), found_set=made.target["set"])


def _stage(run: Run, made: Plan | UnitInstall, argv: Sequence[str], files: int, **more: Any) -> str:
    target = {
        **made.target,
        "who": whoami(),
        "why": run.options.why,
        "argv": redact(" ".join(argv)).split(),  # what keys it names are nobody's to keep
    }
    record = run.session.call(
        "stage", target=target, contents=made.contents, seen=made.seen, timeout=180, **more
    )
    run.target, run.origin = int(record["number"]), int(record["predecessor"])
    return f"{counted(files, 'file')} as generation {run.target}"


def guard(run: Run) -> str:
    """From here to the end the host itself puts right what a lost client leaves."""
    guarding.arm(run, _stop_bound(run.session.unit()))
    return "armed: should this side be lost, the host ends the rollout by itself"


def _stop_bound(unit: Unit) -> float:
    return (unit.timeout_stop or _STOP_DEFAULT) + _STOP_MARGIN


def stop(run: Run) -> str:
    """Stop the unit and see it down. A swap under a running service could be half imported."""
    began = time.monotonic()
    before = run.session.unit()
    for _ in range(_STOP_ATTEMPTS):
        if _stop_once(run).down:
            took = f"in {time.monotonic() - began:.1f} s"
            return f"it was {before.state}" if before.down else took
        run.session.emit(Event("stop", "warn", "it was stopped, and somebody started it again"))
    raise _started_again(run)


def _stop_once(run: Run) -> Unit:
    """The unit down, or up again in a start that somebody made after it was down."""
    unit = run.session.unit()
    run.previous_invocation = unit.invocation_id
    watch = run.open_watch(ignore=unit.invocation_id)
    if unit.down:
        return unit
    run.touched = True
    run.session.control("stop")
    bound = _stop_bound(unit)
    found = wait_down(watch, bound, run.session.emit, unit.invocation_id)
    if found is None:
        raise StepFailed(
            "stop_timeout",
            f"{unit.name} is not down {bound:.0f} s after the stop",
            remedy=f"see `systemctl status {unit.name}`; processes in uninterruptible sleep "
            "hang in the driver",
        )
    return found


def _started_again(run: Run) -> StepFailed:
    unit = run.session.service.unit
    return StepFailed(
        STARTED_AGAIN,
        f"somebody starts {unit} again as soon as it is stopped",
        remedy="a watchdog, a timer or a person: end that first; "
        f"`journalctl -u {unit}` has each start",
    )


def swap(run: Run) -> str:
    assert run.target is not None
    before = run.swapped
    run.touched = run.swapped = True
    try:
        for attempts_left in reversed(range(_SWAP_ATTEMPTS)):
            try:
                return _swap(run)
            except Refused as error:
                if error.code != "unit_running":
                    raise
                if not attempts_left:
                    raise _started_again(run) from error
                text = f"{error.message}; it is stopped again"
                run.session.emit(Event("swap", "warn", text))
            stop(run)
        raise AssertionError("unreachable")
    except StepFailed as failed:
        if failed.code == STARTED_AGAIN:
            run.swapped = before
        raise


def _swap(run: Run) -> str:
    unsigned = run.target in run.unsigned
    why = run.undoing or run.options.why or f"opsctl {run.command}"
    done = run.session.call("swap", number=run.target, unsigned=unsigned, why=why, timeout=120)
    if done["starting"]:
        pids = ", ".join(map(str, done["starting"]))
        text = f"pid {pids} on the host started that Python and may have imported of both versions"
        run.session.emit(Event("swap", "warn", text))
    return f"{len(done['changed'])} changed, {done['verified']} verified by hash"


def start(run: Run) -> str:
    run.touched = True
    if run.swapped and not run.session.unit().down:
        # Somebody started it while the files changed: it may have imported the old ones.
        run.session.emit(Event("start", "warn", "it was started meanwhile; it is stopped again"))
        _stop_once(run)  # whoever starts it after that starts the new ones
    if run.watch is None:
        run.previous_invocation = run.session.unit().invocation_id
        run.open_watch(ignore=run.previous_invocation)
    run.started = time.monotonic()
    run.smoke = run.ready = None  # what was proved is of the start before
    given = run.arguments
    run.started_plain = run.options.plain or (isinstance(given, StartArguments) and given.plain)
    run.session.control("start", speculative=not run.started_plain)
    return "without speculative decoding" * run.started_plain


def smoke(run: Run) -> str:
    # On the way back the old version need only serve.
    exam = None if run.undoing else examining.prepare(run.session, wanted(run))
    result = prove(
        run.session,
        strict=run.strict,
        patched=run.patched,
        exam=exam,
        plain=run.started_plain,
    )
    if run.trial is not None and not run.undoing:
        run.trial.exam = exam
        result = trial.softened(result, run.trial.policy)
    run.smoke = result
    emit_notes(result, run.session.emit)
    if result.verdict == "fail":
        kind = f"docs/smoke.md says what {result.kind} means; " if result.kind else ""
        remedy = f"{kind}opsctl diagnose {run.session.host.name} says what the journal knows"
        reasons = "; ".join(result.reasons)
        raise StepFailed("smoke_failed", reasons, remedy=remedy, evidence=result.to_json())
    return summary(result)


def wanted(run: Run) -> examining.Wanted:
    """Of the caller and the playbook, whichever asks for more."""
    given = run.arguments
    of_step = given.level if isinstance(given, SmokeArguments) else None
    return replace(run.options.wanted, level=furthest(run.options.wanted.level, of_step))


def confirm(run: Run) -> str:
    assert run.target is not None
    try:
        try:
            _conclude(run)
        except Unreachable:
            _return_to_conclude(run)
    except OpsctlError as error:
        # It is proven and it serves; a full disk is no reason for another eleven minutes down.
        run.session.emit(Event("confirm", "warn", f"not recorded: {error.message}"))
        guarding.disarm(run)
        return f"generation {run.target} serves, but the host could not record it"
    guarding.disarm(run)
    run.guarded = False  # the record alone tells the guard as much
    return f"generation {run.target}"


def _conclude(run: Run) -> None:
    run.session.call(
        "conclude",
        number=run.target,
        status="unconfirmed" if run.unproved else "confirmed",
        verdict=_verdict(run),
        load_seconds=run.ready.ready_s if run.ready else None,
    )


def _return_to_conclude(run: Run) -> None:
    """It is proven, but unless the host is told so, its guard ends it in the old version."""
    run.session.emit(Event("reconnect", "start"))
    try:
        run.session.reconnect()
        run.guard_report = guarding.take_over(run)
    except (Unreachable, LockHeld) as error:
        raise StepFailed(error.code, error.message, remedy=error.remedy) from None
    run.session.emit(Event("reconnect", "ok"))
    if run.guard_report is not None:
        raise StepFailed(
            "connection_lost", "the connection was lost, and the guard on the host acted"
        )
    _conclude(run)


def record(run: Run) -> str:
    guarding.disarm(run)
    run.guarded = False  # armed still, it finds the service as it has to be
    if run.ready is not None:
        try:
            run.session.call("record_load", seconds=run.ready.ready_s)
        except OpsctlError as error:  # the restart is proven all the same
            run.session.emit(Event("record", "warn", error.message))
            return "not recorded"
        return f"a load of {run.ready.ready_s:.1f} s"
    return ""


def _verdict(run: Run) -> dict[str, object]:
    if run.smoke is None:
        return {"verdict": "inconclusive"}
    return verdict_of(run.smoke, run.ready.ready_s if run.ready else None)
