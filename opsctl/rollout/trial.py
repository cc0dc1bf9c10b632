"""The steps of a gate beside a deploy's: the old version under load, the new one, the policy."""

from __future__ import annotations

import time
from dataclasses import replace

import anyio

from opsctl.baseline import Prompt
from opsctl.errors import Refused
from opsctl.events import Event
from opsctl.gate.figures import Soaked, metrics
from opsctl.gate.model import GateCheck
from opsctl.gate.policy import Policy
from opsctl.rollout import baselining
from opsctl.rollout.run import DecodePoint, Run, StepFailed, Trial
from opsctl.rollout.serving import announced
from opsctl.rollout.session import Session
from opsctl.rollout.subject import chosen_prompts, subject
from opsctl.sglang import DecodeBatch, Generation, parse_all
from opsctl.smoke import Check, SmokeResult
from opsctl.text import counted
from opsctl.traffic import Job, Sample
from opsctl.traffic import soak as soaked

# Entries of the journal; a decode line each few steps.
_LINES = 20_000


def control(run: Run) -> str:
    """What the version that serves does under the load that the new one will get.

    Raises:
        Refused: the policy asks for a baseline, and none fits the server.
    """
    trial, session = _trial(run), run.session
    unit = session.unit()
    if not unit.active or not announced(session, unit):
        return "skipped: nothing serves before"
    identity, facts = subject(session)
    baseline, why = baselining.choose(session, identity, trial.wanted.baseline)
    if baseline is None and trial.policy.baseline == "required":
        raise Refused(
            f"the policy asks for a baseline: {why}",
            remedy=f"opsctl baseline capture {session.host.name}",
            code="no_baseline",
        )
    plan = trial.policy.soak
    if not plan.before or not plan.seconds:
        return "skipped by the policy"
    trial.before = _soak(session, trial, chosen_prompts(trial.wanted.prompts, facts))
    trial.points_before = _points(session, unit.invocation_id, unit.time)
    return _told(trial.before)


def soak(run: Run) -> str:
    """The new version under the same load; a server that dies of it fails the gate."""
    trial, session = _trial(run), run.session
    if not trial.policy.soak.seconds:
        return "skipped by the policy"
    if trial.exam is not None:  # it has found out what this start is
        trial.baseline, prompts = trial.exam.baseline, trial.exam.prompts
    else:
        identity, facts = subject(session)
        trial.baseline, _ = baselining.choose(session, identity, trial.wanted.baseline)
        prompts = chosen_prompts(trial.wanted.prompts, facts)
    before = session.unit()
    trial.after = _soak(session, trial, prompts)
    after = session.unit()
    if after.invocation_id != before.invocation_id or not after.active:
        text = f"the server did not survive the soak: {after.state}"
        raise StepFailed("died_under_load", text, remedy=f"opsctl diagnose {session.host.name}")
    trial.points = _points(session, after.invocation_id, before.time)
    return _told(trial.after)


def judge(run: Run) -> str:
    """The policy's rules on all that was measured."""
    trial = _trial(run)
    checks = trial.policy.judge(
        metrics(
            load_s=run.ready.ready_s if run.ready else None,
            budget_s=run.budget,
            smoke=run.smoke,
            after=trial.after,
            before=trial.before,
            baseline=trial.baseline,
        )
    )
    trial.checks = checks if run.ready is not None else [_unstarted(check) for check in checks]
    failed = trial.of("fail")
    if failed:
        reasons = "; ".join(f"{check.name}: {check.reason}" for check in failed)
        raise StepFailed(
            "gate_failed",
            reasons,
            remedy="mend the set, or loosen the rule in the policy if it asks for too much",
            evidence={"failed": [check.name for check in failed]},
        )
    unsure = trial.of("inconclusive")
    if unsure:
        return f"{counted(len(unsure), 'rule')} of {len(trial.checks)} inconclusive"
    return f"{counted(len(trial.checks), 'rule')} hold"


def _unstarted(check: GateCheck) -> GateCheck:
    """Nothing was started by this gate, so that no load was measured."""
    if not check.name.startswith("load."):
        return check
    return replace(check, outcome="skipped", reason="nothing was started")


def softened(result: SmokeResult, policy: Policy) -> SmokeResult:
    """With the checks that the policy only warns of, or ignores. Where a baseline is required an
    answer that none could judge is a failure."""
    if not policy.checks and policy.baseline == "optional":
        return result
    return replace(result, checks=tuple(_softened(check, policy) for check in result.checks))


def _softened(check: Check, policy: Policy) -> Check:
    wanted = policy.checks.get(check.name, "fail")
    required = policy.baseline == "required" and check.name == "lossless"
    if required and wanted == "fail" and check.verdict == "inconclusive":
        return replace(check, verdict="fail", reason=f"a baseline is required: {check.reason}")
    if wanted == "fail" or check.verdict in {"pass", "skipped"}:
        return check
    reason = f"{check.verdict}, which the policy takes as a {wanted}: {check.reason}"
    note = f"{check.name}: {check.reason}" if wanted == "warn" else ""
    return replace(check, verdict="skipped", reason=reason, note=note)


def _trial(run: Run) -> Trial:
    if run.trial is None:
        raise Refused(
            "this step belongs to opsctl gate, which brings a policy",
            remedy="leave it out of the playbook",
            code="no_policy",
        )
    return run.trial


def _soak(session: Session, trial: Trial, prompts: tuple[Prompt, ...]) -> Soaked:
    plan = trial.policy.soak
    timeout = trial.policy.timeout or session.service.smoke.timeout
    jobs = [
        Job(prompt.id, prompt.sha256, Generation(prompt.text, prompt.tokens, stream=True))
        for prompt in prompts
    ]
    said = time.monotonic()

    def told(sample: Sample) -> None:
        nonlocal said
        if sample.error is not None and time.monotonic() - said > 1.0:
            said = time.monotonic()
            session.emit(Event("soak", "warn", sample.error.message))

    async def run_it() -> list[Sample]:
        async with session.completions() as client:
            return await soaked(
                client, jobs, plan.at_once, plan.seconds, timeout, seed=plan.seed, told=told
            )

    began = time.time()
    return Soaked(plan.at_once, plan.seed, began, tuple(anyio.run(run_it)))


def _told(done: Soaked) -> str:
    figures = done.figures
    length = done.accept_len
    accepted = f", accept length {length:.2f}" if length is not None else ""
    failed = f", {figures.errors} without an answer" if figures.errors else ""
    return (
        f"{counted(figures.requests, 'request')} in {figures.seconds:.1f} s, "
        f"{figures.throughput:.0f} tokens/s{accepted}{failed}"
    )


def _points(session: Session, invocation: str, since: float) -> list[DecodePoint]:
    """Of the decode lines since then, by the host's clock."""
    entries = session.journal(invocation, lines=_LINES, since=since, grep="Decode batch")
    return [
        DecodePoint(
            round(entry.realtime - since, 3), line.running, line.accept_len, line.gen_throughput
        )
        for entry in entries
        for line in parse_all(entry.message)
        if isinstance(line, DecodeBatch)
    ]
