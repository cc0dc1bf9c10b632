"""One function a command: what the CLI calls, and what a program may."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opsctl import errors, resources
from opsctl.errors import OpsctlError, Refused
from opsctl.events import Event
from opsctl.journal import diagnose
from opsctl.readiness import Readiness, Ready, wait_ready
from opsctl.report import Reason, Report
from opsctl.rollout import doctor as doctor_checks
from opsctl.rollout import engine, playbook
from opsctl.rollout.plan import Plan, find_patchset, make_plan, require_state
from opsctl.rollout.prove import acceptance_since, emit_notes, prove, summary
from opsctl.rollout.run import Options, Run
from opsctl.rollout.session import Session
from opsctl.rollout.steps import STEPS
from opsctl.sglang import ServerError
from opsctl.units.properties import Unit

# Of srt/entrypoints/http_server.py, the same in 0.5.11, 0.5.12.post1 and 0.5.23.
READY_TEXT = "The server is fired up and ready to roll!"


def plan(session: Session, patches: Path, name: str | None = None) -> Plan:
    """What a deploy would do. Raises what stands in its way."""
    return make_plan(session, find_patchset(session, patches, name))


def nothing_to_do(made: Plan) -> bool:
    """The host has the set already, its unit runs, and no rollout of it is under way or cut off."""
    generation = made.facts["generation"]
    settled = generation is None or generation["status"] != "staged"
    active = Unit.from_show(made.facts["unit"]).active
    return made.noop and active and settled and not made.facts["lock"]


def plan_report(session: Session, made: Plan) -> Report:
    """A plan as a command's result."""
    count = len(made.changes)
    text = f"deploy would change {count} file{'' if count == 1 else 's'} and restart"
    if made.noop:
        text = "nothing to do: the host has this set"
    return _report(session, "plan", text, data={"plan": made.to_json()})


def deploy(session: Session, patches: Path, made: Plan, options: Options) -> Report:
    """Carry out `made`. A host that has the set already and serves is left alone."""
    if nothing_to_do(made):
        return _nothing_done(session, made)
    run = Run("deploy", session, options, patches, plan=made)
    return engine.execute(run, _playbook("deploy", patches))


def _nothing_done(session: Session, made: Plan) -> Report:
    generation = made.facts["generation"]
    report = _report(
        session,
        "deploy",
        f"nothing to do: the host has {made.patchset.label}",
        generation=generation["number"] if generation else None,
        data={"plan": made.to_json(), "noop": True},
    )
    if generation is None or generation["status"] != "unconfirmed":
        return report
    text = f"{report.summary}, but its health is unproved"
    remedy = f"opsctl smoke {session.host.name}, or opsctl restart {session.host.name}"
    return report.model_copy(
        update={
            "verdict": "inconclusive",
            "exit_code": errors.EXIT_INCONCLUSIVE,
            "summary": text,
            "reasons": (Reason(code="unconfirmed", message=text, remedy=remedy),),
        }
    )


def restart(session: Session, patches: Path, options: Options) -> Report:
    run = Run("restart", session, options, patches)
    return engine.execute(run, _playbook("restart", patches))


def rollback(session: Session, patches: Path, options: Options) -> Report:
    """To the recorded predecessor of what is there, or to a named generation.

    Raises:
        Refused: there is no such generation, or nothing to return to.
    """
    facts = session.inspect()
    require_state(facts)
    target = _rollback_target(session, facts, options.generation)
    if target is None:
        current = facts["generation"]["number"]
        return _report(
            session,
            "rollback",
            f"nothing to do: the last deploy is not on disk, generation {current} is "
            "in place (name a generation to go further back)",
            generation=current,
        )
    run = Run("rollback", session, options, patches, target=target, strict=False)
    return engine.execute(run, _playbook("rollback", patches))


def wait(session: Session, options: Options) -> Report:
    """Follow the present start until it is ready; nothing is started or changed.

    Raises:
        Refused: the unit is not running.
    """
    began = time.time()
    facts = session.inspect()
    unit = Unit.from_show(facts["unit"])
    if unit.down:
        raise _not_running(session, unit)
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
        if _models(session, unit)[0] and _long_ready(session, unit):
            return _report(session, "wait", f"{unit.name} is ready", data={"ready_s": 0.0})
        outcome = wait_ready(machine, watch, client, session.emit)
    if isinstance(outcome, Ready):
        text = f"{unit.name} is ready after {outcome.ready_s:.1f} s"
        return _report(session, "wait", text, data={"ready_s": round(outcome.ready_s, 3)})
    found = diagnose(session.journal(machine.invocation)) if machine.invocation else None
    return Report(
        command="wait",
        host=session.host.name,
        service=session.service.name,
        verdict="fail",
        exit_code=errors.EXIT_NOT_RESTORED,
        summary=outcome.message,
        reasons=(Reason(code=outcome.cause, message=outcome.message, remedy=outcome.remedy),),
        started_at=began,
        duration_s=round(time.time() - began, 3),
        data={"diagnosis": found.to_json() if found else None},
    )


def _long_ready(session: Session, unit: Unit) -> bool:
    """The server's own word in this start's journal, wherever in it."""
    entries = session.journal(unit.invocation_id, grep=READY_TEXT, lines=1)
    return bool(entries)


def _not_running(session: Session, unit: Unit) -> Refused:
    return Refused(
        f"{unit.name} is {unit.state}: there is no server to ask",
        remedy=f"opsctl restart {session.host.name}",
        code="not_running",
    )


def _rollback_target(session: Session, facts: dict[str, Any], wanted: int | None) -> int | None:
    current = facts["generation"]
    if current is None:
        raise Refused(
            "no deploy is recorded on this host: there is nothing to return to",
            remedy="`pip install --force-reinstall --no-deps` brings back the wheel's own files",
            code="nothing_to_roll_back",
        )
    recorded = {g["number"]: g for g in session.call("generations")}
    if wanted is not None and wanted not in recorded:
        raise Refused(
            f"there is no generation {wanted}; recorded: {', '.join(map(str, recorded))}",
            remedy="choose one of those",
            code="generation_missing",
        )
    if facts["swap"]:
        return int(wanted if wanted is not None else facts["swap"]["from"])
    if wanted is not None:
        return None if wanted == current["number"] else wanted
    # A rollback after a failed deploy must not go one release too far.
    last = recorded[max(recorded)]
    if last["predecessor"] == current["number"]:
        if last["status"] == "rolled_back":
            return None
        if last["status"] == "staged":  # a deploy that was cut off before its swap
            active = Unit.from_show(facts.get("unit", {})).active
            return None if active else int(current["number"])
    if current["predecessor"] is None:
        raise Refused(
            f"generation {current['number']} is what was found on the host: nothing is older",
            remedy="name a generation: opsctl status lists them",
            code="nothing_to_roll_back",
        )
    return int(current["predecessor"])


def smoke(session: Session) -> Report:
    """Prove the server as it runs, changing nothing."""
    began = time.time()
    unit = session.unit()
    if not unit.active:
        raise _not_running(session, unit)
    session.emit(Event("smoke", "start"))
    result = prove(session)
    emit_notes(result, session.emit)
    session.emit(Event("smoke", "ok" if result.verdict == "pass" else "fail", summary(result)))
    exits = {
        "pass": errors.EXIT_OK,
        "fail": errors.EXIT_NOT_RESTORED,
        "inconclusive": errors.EXIT_INCONCLUSIVE,
    }
    return Report(
        command="smoke",
        host=session.host.name,
        service=session.service.name,
        verdict=result.verdict,
        exit_code=exits[result.verdict],
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
                expected = find_patchset(session, patches, None)
            except OpsctlError as error:
                expected = error
        findings = doctor_checks.examine(facts, session.service, expected)
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


def status(session: Session) -> Report:
    """Unit, version, generation, lock and last loads, as they are now."""
    facts = session.inspect()
    unit = Unit.from_show(facts["unit"])
    generation = facts["generation"]
    install = facts["install"]
    models, answer = _models(session, unit)
    what = generation["set"] if generation else None
    label = f"{what['name']} {what['version']}" if what else "no patch set"
    number = generation["number"] if generation else None
    place = f"generation {number}, " if number is not None else ""
    trouble = _trouble(facts)
    return Report(
        command="status",
        host=session.host.name,
        service=session.service.name,
        verdict="pass",
        exit_code=errors.EXIT_OK,
        summary="; ".join([f"{unit.name} is {unit.state}, {place}{label}, {answer}", *trouble]),
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
            "version": install.get("version"),
            "set": what,
            "lock": facts["lock"],
            "swap": facts["swap"],
            "trouble": trouble,
            "last_loads_s": facts["loads"],
            "models": list(models),
            "http": answer,
            "generations": [
                {key: record.get(key) for key in ("number", "status", "set", "created", "who")}
                for record in session.call("generations")
            ],
        },
    )


def _trouble(facts: Mapping[str, Any]) -> list[str]:
    """Why the disk is not, or may not be, what the recorded generation says."""
    fault = facts.get("state_fault")
    if fault:
        return [str(fault["message"])]
    if facts["swap"]:
        swap = facts["swap"]
        return [
            f"a swap from generation {swap['from']} to {swap['to']} was cut off: the files may be "
            "a mixture, and opsctl rollback finishes it"
        ]
    recorded = facts["generation"]["files"] if facts["generation"] else {}
    now = facts["install"].get("files", {})
    other = [p for p, f in recorded.items() if p in now and now[p]["sha256"] != f["sha256"]]
    if not other:
        return []
    return [f"the files on disk are not this generation's: {', '.join(sorted(other))}"]


def _models(session: Session, unit: Unit) -> tuple[tuple[str, ...], str]:
    if not unit.active:
        return (), "not running"
    with session.client() as client:
        try:
            models = client.models()
        except ServerError as error:
            return (), f"no answer ({error.cause})"
    return models, f"serving {', '.join(models)}"


def metrics(session: Session) -> Report:
    """Acceptance of the present start, from its decode lines and its endpoints."""
    unit = session.unit()
    entries = session.journal(unit.invocation_id) if unit.invocation_id else []
    acceptance = acceptance_since(entries)
    found = diagnose(entries)
    scraped: dict[str, float] = {}
    with session.client() as client:
        try:
            scraped = client.metrics()
        except ServerError as error:
            session.emit(Event("metrics", "warn", error.message))
    length = acceptance.accept_len
    text = "no decode line since this start"
    if length is not None:
        text = f"accept len {length.mean:.2f} (p50 {length.p50:.2f}) over {acceptance.count} lines"
    return _report(
        session,
        "metrics",
        text,
        data={
            "invocation": unit.invocation_id,
            "acceptance": acceptance.to_json(),
            "prometheus": scraped,
            "incident": found.to_json() if found.incident else None,
        },
    )


def _report(
    session: Session,
    command: str,
    text: str,
    *,
    generation: int | None = None,
    data: dict[str, Any] | None = None,
) -> Report:
    return Report(
        command=command,
        host=session.host.name,
        service=session.service.name,
        verdict="pass",
        exit_code=errors.EXIT_OK,
        summary=text,
        generation=generation,
        data=data or {},
    )


def _playbook(name: str, patches: Path) -> playbook.Playbook:
    path = resources.locate("playbooks", beside=patches.parent) / f"{name}.yaml"
    return playbook.load(path, frozenset(STEPS))
