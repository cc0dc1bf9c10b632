"""What a rollout ended in, as its report."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from opsctl import errors
from opsctl.report import Reason, Report
from opsctl.rollout.run import INTERRUPTED, Run, StepFailed


def finished(run: Run, began: float) -> Report:
    """Of one that came to its end; `began` is Unix seconds."""
    inconclusive = bool(run.unproved) or run.guarded
    reasons = tuple(Reason(code="inconclusive", message=text) for text in run.unproved)
    if run.guarded:
        reasons += (_still_guarded(run),)
    return Report(
        command=run.command,
        host=run.session.host.name,
        service=run.session.service.name,
        verdict="inconclusive" if inconclusive else "pass",
        exit_code=errors.EXIT_INCONCLUSIVE if inconclusive else errors.EXIT_OK,
        summary=_summary(run, inconclusive=inconclusive),
        reasons=reasons,
        generation=run.target if run.target is not None else run.origin,
        started_at=began,
        duration_s=round(time.time() - began, 3),
        data=_data(run),
    )


def _still_guarded(run: Run) -> Reason:
    return Reason(
        code="guard_armed",
        message="the guard on the host could not be called off: once it can, it ends the rollout "
        f"in generation {run.origin}",
        remedy=f"opsctl confirm {run.session.host.name} to keep what is there",
    )


def _summary(run: Run, *, inconclusive: bool) -> str:
    unproved = ", but its health is unproved" if inconclusive else ""
    if run.command == "deploy" and run.plan is not None:
        label = run.plan.patchset.label
        way_back = f" (rollback: opsctl rollback {run.session.host.name})"
        return f"deployed {label} as generation {run.target}{unproved}{way_back}"
    if run.command == "gate" and run.plan is not None:
        return f"{run.plan.patchset.label}, which is in place, holds{unproved}"
    if run.command == "rollback" and (run.swapped or "confirm" in run.done):
        return f"rolled back to generation {run.target}{unproved}"
    if "start" in run.done:
        return f"{run.session.service.unit} restarted{unproved}"
    changed = "changed without a restart" if run.touched else "nothing was changed"
    return f"{run.session.service.unit}: {changed}{unproved}"


def failed(run: Run, began: float, failure: StepFailed, *, restored: bool | None) -> Report:
    """Of one that `failure` ended; `restored` is whether what was there before is back, None where
    nobody tried."""
    remedy = failure.remedy
    if restored:
        interrupted = failure.code == INTERRUPTED
        exit_code = errors.EXIT_INTERRUPTED if interrupted else errors.EXIT_ROLLED_BACK
        generation = run.origin
        end = "; rolled back, the old version is in place"
        remedy = f"the host needs nothing; for the cause: {remedy}" if remedy else ""
        if run.was_active:
            end = "; rolled back, the old version serves"
    else:
        exit_code = errors.EXIT_NOT_RESTORED
        there = run.target if run.target is not None else run.origin
        generation = there if run.guard_report is None else run.guard_report["to"]
        if run.guarded:
            remedy = f"{remedy} The guard on the host goes on trying: opsctl status".strip()
        end = "; NOT restored, look at the host now" if restored is False else ""
    return Report(
        command=run.command,
        host=run.session.host.name,
        service=run.session.service.name,
        verdict="fail",
        exit_code=exit_code,
        summary=failure.message + end,
        reasons=(Reason(code=failure.code, message=failure.message, remedy=remedy),),
        generation=generation,
        started_at=began,
        duration_s=round(time.time() - began, 3),
        data={**_data(run), "restored": restored, "evidence": failure.evidence},
    )


def _data(run: Run) -> dict[str, Any]:
    ready, smoke = run.ready, run.smoke
    return {
        "ready_s": round(ready.ready_s, 3) if ready else None,
        "lag_s": round(ready.lag_s, 3) if ready else None,
        "invocation": ready.invocation if ready else None,
        "accept_len": smoke.accept_len if smoke else None,
        "verify_steps": smoke.verify_steps if smoke else None,
        "smoke": smoke.to_json() if smoke else None,
        "plan": run.plan.to_json() if run.plan else None,
        "diagnosis": run.diagnosis.to_json() if run.diagnosis else None,
        "playbook": run.book.name if run.book else None,
        "steps": [asdict(told) for told in run.told],
    }
