"""`opsctl gate`: a deploy that a policy lets through, or not."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from opsctl import errors
from opsctl.errors import Refused
from opsctl.gate.figures import divergences
from opsctl.gate.model import Ending, GateCheck, GateResult, Outcome, Phase, Series, Span
from opsctl.gate.policy import Policy
from opsctl.playbook import Shelf
from opsctl.report import Report
from opsctl.rollout import commands, engine
from opsctl.rollout.plan import Plan
from opsctl.rollout.run import DecodePoint, Options, Run, Trial
from opsctl.rollout.session import Session
from opsctl.rollout.way_back import named

_OUTCOMES: dict[str, Outcome] = {"pass": "pass", "fail": "fail", "inconclusive": "inconclusive"}


@dataclass(frozen=True, slots=True)
class Gated:
    """The report of the command, and what the gate's other outputs are made of."""

    report: Report
    result: GateResult


def plan(session: Session, patches: Path, patch_set: str | None) -> Plan:
    """What the gate would deploy; `patch_set` is NAME or NAME@VERSION.

    Raises:
        Refused: the folder has another version of it; else as `commands.plan`.
    """
    name, _, version = (patch_set or "").partition("@")
    made = commands.plan(session, patches, name or None)
    found = made.patchset.version
    if version and version != found:
        raise Refused(
            f"{patches} has {made.patchset.name}@{found}, not @{version}",
            remedy=f"check out the revision that has it, or ask for @{found}",
            code="wrong_set_version",
        )
    return made


def gate(session: Session, shelf: Shelf, made: Plan, policy: Policy, options: Options) -> Gated:
    """Deploy `made`, hold it against `policy`, and keep it or return what was there. A set that
    is in place already is held against it as it is."""
    again = commands.nothing_to_do(made)
    if again:  # nothing is changed, so nothing is restored
        options = replace(options, on_inconclusive="keep")
    run = Run("gate" if again else "deploy", session, options, plan=made)
    run.trial = Trial(policy, options.wanted)
    playbook = shelf.load("gate-again" if again else "gate")
    report = engine.execute(run, playbook).model_copy(update={"command": "gate"})
    result = _result(run, made, report, changed=not again)
    data = {**report.data, "gate": result.to_json()}
    return Gated(report.model_copy(update={"data": data}), result)


class _Interrupted(errors.OpsctlError):
    exit_code = errors.EXIT_INTERRUPTED
    default_code = "interrupted"


def unbegun(
    session: Session,
    patch_set: str | None,
    policy: Policy,
    error: errors.OpsctlError | KeyboardInterrupt,
) -> GateResult:
    """Of a gate that ended before it changed anything, in `error`. `patch_set` is what was asked
    for; without, the inventory's."""
    if isinstance(error, KeyboardInterrupt):
        error = _Interrupted("interrupted before anything was changed")
    check = GateCheck("deploy", "begun", "fail", error.message, kind=error.code)
    return GateResult(
        host=session.host.name,
        service=session.service.name,
        outcome="fail",
        ending="untouched",
        exit_code=error.exit_code,
        summary=error.message,
        started_at=time.time(),
        duration_s=0.0,
        patch_set=patch_set or session.service.patch_set or "",
        policy=policy.name,
        remedy=error.remedy,
        checks=(check,),
    )


def _result(run: Run, made: Plan, report: Report, *, changed: bool) -> GateResult:
    trial, smoke = run.trial, run.smoke
    assert trial is not None
    before = made.facts["generation"]
    return GateResult(
        host=run.session.host.name,
        service=run.session.service.name,
        outcome=_OUTCOMES.get(report.verdict, "fail"),
        ending=_ending(report.exit_code, changed=changed),
        exit_code=report.exit_code,
        summary=report.summary,
        started_at=report.started_at,
        duration_s=report.duration_s,
        patch_set=f"{made.patchset.name}@{made.patchset.version}",
        generation=report.generation,
        before=named(before) if before else "what was found",
        version=str(made.facts["install"].get("version") or ""),
        baseline=trial.baseline.label if trial.baseline else "",
        policy=trial.policy.name,
        remedy=next((reason.remedy for reason in report.reasons if reason.remedy), ""),
        checks=(*_smoke_checks(run), *trial.checks, *_ended_early(run, report)),
        load=tuple(Span(*span) for span in (run.ready.spans if run.ready else ())),
        series=_series(trial.points),
        accept_lens=_accept_lens(trial.points),
        accept_lens_before=_accept_lens(trial.points_before),
        divergences=divergences(smoke),
        soak=trial.after.figures if trial.after else None,
    )


def _ending(exit_code: int, *, changed: bool) -> Ending:
    if not changed:
        return "untouched"
    ends: dict[int, Ending] = {
        errors.EXIT_ROLLED_BACK: "rolled back",
        errors.EXIT_INTERRUPTED: "rolled back",
        errors.EXIT_NOT_RESTORED: "not restored",
    }
    return ends.get(exit_code, "kept")


def _smoke_checks(run: Run) -> Iterable[GateCheck]:
    if run.smoke is None:
        return
    for check in run.smoke.checks:
        yield GateCheck(
            phase="smoke",
            name=check.name,
            outcome=check.verdict,
            reason=check.reason,
            kind=check.kind,
            evidence=check.evidence,
        )


def _ended_early(run: Run, report: Report) -> Iterable[GateCheck]:
    """A failure that no check stands for: the load's, or a death under load."""
    told = {"smoke_failed", "gate_failed", "inconclusive"}
    phase: Phase = "deploy" if run.smoke is None else "soak"
    name = "started" if run.smoke is None else "survived"
    for reason in report.reasons:
        if report.verdict == "fail" and reason.code not in told:
            yield GateCheck(phase, name, "fail", reason.message, kind=reason.code)


def _series(points: list[DecodePoint]) -> tuple[Series, ...]:
    figures = (
        ("accept length", "tokens", [(p.at, p.accept_len) for p in points]),
        ("throughput", "tokens/s", [(p.at, p.throughput) for p in points]),
        ("running requests", "requests", [(p.at, float(p.running)) for p in points]),
    )
    return tuple(
        Series(name, unit, tuple((at, value) for at, value in pairs if value is not None))
        for name, unit, pairs in figures
        if any(value is not None for _, value in pairs)
    )


def _accept_lens(points: list[DecodePoint]) -> tuple[float, ...]:
    return tuple(point.accept_len for point in points if point.accept_len is not None)
