"""A gate's steps and result, without a host."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from opsctl import errors
from opsctl.errors import Refused
from opsctl.gate.policy import Policy
from opsctl.rollout import commands, gating, guarding, trial
from opsctl.rollout.examining import Wanted
from opsctl.rollout.run import Options, Run, StepFailed, Trial
from opsctl.rollout.session import Session
from opsctl.sglang import ServerError
from opsctl.smoke import Check, Probes, SmokeResult

REFUSED = ServerError("gone", cause="refused")


def policy(**parts: Any) -> Policy:
    return Policy.model_validate({"version": 1, "name": "p", **parts})


def result(*checks: Check) -> SmokeResult:
    return SmokeResult(checks=checks, probes=Probes(REFUSED, REFUSED, "p", 16))


def run_of(**parts: Any) -> Run:
    run = Run("deploy", cast(Session, SimpleNamespace()), Options(budget=10.0))
    run.trial = Trial(policy(**parts), Wanted())
    return run


@pytest.mark.parametrize(
    ("asked", "fits"), [("ddtree", True), ("ddtree@1.1.0", True), ("ddtree@1.0.0", False)]
)
def test_the_version_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, asked: str, fits: bool
) -> None:
    named: list[Any] = []
    made = SimpleNamespace(patchset=SimpleNamespace(name="ddtree", version="1.1.0"))

    def plan(session: Any, patches: Path, name: str | None) -> Any:
        named.append(name)
        return made

    monkeypatch.setattr(commands, "plan", plan)
    host = cast(Session, None)
    if fits:
        assert gating.plan(host, Path("p"), asked) is cast(Any, made)
    else:
        with pytest.raises(Refused) as caught:
            gating.plan(host, Path("p"), asked)
        assert caught.value.code == "wrong_set_version"
        assert "ddtree@1.1.0" in caught.value.message
    assert named == ["ddtree"]


def test_a_policy_may_soften_a_check() -> None:
    found = result(
        Check("kv_pool", "fail", "7 tokens", kind="kv_pool_leak"),
        Check("lossless", "inconclusive", "no baseline"),
        Check("answered", "fail", "2 of 3", kind="crash"),
    )
    softened = trial.softened(found, policy(checks={"kv_pool": "warn", "lossless": "ignore"}))
    assert [check.verdict for check in softened.checks] == ["skipped", "skipped", "fail"]
    assert softened.verdict == "fail"
    assert softened.notes == ("kv_pool: 7 tokens",)
    assert trial.softened(found, policy()) is found


def test_a_rule_that_fails_ends_the_gate() -> None:
    run = run_of(rules=[{"metric": "soak.wrong", "fail": "> 5", "missing": "fail"}])
    with pytest.raises(StepFailed) as caught:
        trial.judge(run)
    assert caught.value.code == "gate_failed"
    assert "soak.wrong" in caught.value.message
    assert caught.value.remedy


def test_where_nothing_was_started_no_load_is_judged() -> None:
    run = run_of(rules=[{"metric": "load.seconds", "fail": "> 5", "missing": "fail"}])
    trial.judge(run)
    assert run.trial is not None
    assert [check.outcome for check in run.trial.checks] == ["skipped"]


def test_a_required_baseline_is_missed() -> None:
    found = result(Check("lossless", "inconclusive", "no baseline"), Check("text", "pass", ""))
    assert trial.softened(found, policy()).verdict == "inconclusive"
    assert trial.softened(found, policy(baseline="required")).verdict == "fail"
    ignored = policy(baseline="required", checks={"lossless": "ignore"})
    assert trial.softened(found, ignored).verdict == "pass"


@pytest.mark.parametrize("soak", [0.0, 5000.0])
def test_the_guard_waits_for_the_soak(soak: float) -> None:
    armed: dict[str, Any] = {}
    run = run_of(soak={"seconds": soak})
    smoke = SimpleNamespace(timeout=30.0)
    session = SimpleNamespace(
        service=SimpleNamespace(smoke=smoke, load=SimpleNamespace(budget=10.0), notices=None),
        token="t",
        call=lambda op, **given: armed.update(given["given"]),
    )
    run.session = cast(Session, session)
    guarding.arm(run, 90.0)
    assert armed["within"] > 90.0 + 10.0 + soak


def test_a_rule_that_cannot_tell_leaves_it_unproved() -> None:
    run = run_of(rules=[{"metric": "soak.throughput", "pass": "> 5"}])
    run.smoke = result(Check("answered", "pass", "all"))
    assert not list(run.unproved)
    assert trial.judge(run) == "1 rule of 1 inconclusive"
    (reason,) = run.unproved
    assert "soak.throughput" in reason


def test_a_gates_steps_need_a_policy() -> None:
    run = Run("deploy", cast(Session, None), Options())
    for step in (trial.control, trial.soak, trial.judge):
        with pytest.raises(Refused) as caught:
            step(run)
        assert caught.value.code == "no_policy"


@pytest.mark.parametrize(
    ("exit_code", "changed", "ending"),
    [
        (errors.EXIT_OK, True, "kept"),
        (errors.EXIT_INCONCLUSIVE, True, "kept"),
        (errors.EXIT_ROLLED_BACK, True, "rolled back"),
        (errors.EXIT_NOT_RESTORED, True, "not restored"),
        (errors.EXIT_NOT_RESTORED, False, "untouched"),
    ],
)
def test_what_became_of_the_version(exit_code: int, changed: bool, ending: str) -> None:
    assert gating._ending(exit_code, changed=changed) == ending
