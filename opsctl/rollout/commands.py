"""The commands that change a host, and the plan: one function each."""

from __future__ import annotations

from pathlib import Path

from opsctl import errors, resources
from opsctl.playbook import Shelf
from opsctl.report import Reason, Report
from opsctl.rollout import engine, locking
from opsctl.rollout.plan import Plan, find_patchset, make_plan, require_state
from opsctl.rollout.reports import plain_report
from opsctl.rollout.run import Options, Run
from opsctl.rollout.session import Session
from opsctl.rollout.way_back import named, nowhere, rollback_target
from opsctl.text import counted
from opsctl.units.properties import Unit


def plan(
    session: Session,
    patches: Path,
    name: str | None = None,
    *,
    adopt: bool = False,
    with_unit: bool = False,
) -> Plan:
    """What a deploy would do. Raises what stands in its way."""
    templates = resources.locate("unit-templates", beside=patches.parent)
    facts = session.inspect()
    patchset, signer = find_patchset(session, patches, name, facts)
    return make_plan(
        session,
        patchset,
        facts,
        signer=signer,
        adopt=adopt,
        templates=templates,
        with_unit=with_unit,
    )


def nothing_to_do(made: Plan) -> bool:
    """The host has the set already, its unit runs, and no rollout of it is under way or cut off."""
    generation = made.facts["generation"]
    settled = generation is None or generation["status"] != "staged"
    active = Unit.from_show(made.facts["unit"]).active
    return made.noop and active and settled and not made.facts["lock"]


def plan_report(session: Session, made: Plan) -> Report:
    """A plan as a command's result."""
    files = counted(len(made.changes) + len(made.unit_changes), "file")
    text = f"deploy would change {files} and restart"
    if made.noop:
        text = "nothing to do: the host has this set"
    return plain_report(session, "plan", text, data={"plan": made.to_json()})


def deploy(session: Session, shelf: Shelf, made: Plan, options: Options) -> Report:
    """Carry out `made`. A host that has the set already and serves is left alone."""
    if nothing_to_do(made):
        return _nothing_done(session, made)
    run = Run("deploy", session, options, plan=made)
    return engine.execute(run, shelf.load("deploy"))


def _nothing_done(session: Session, made: Plan) -> Report:
    generation = made.facts["generation"]
    report = plain_report(
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


def restart(session: Session, shelf: Shelf, options: Options) -> Report:
    options = locking.settle(session, options)
    run = Run("restart", session, options)
    return engine.execute(run, shelf.load("restart"))


def rollback(session: Session, shelf: Shelf, options: Options) -> Report:
    """To the recorded predecessor of what is there, or to a named generation.

    Raises:
        Refused: there is no such generation, or nothing to return to.
    """
    options = locking.settle(session, options, guard=False)
    facts = session.inspect()
    require_state(facts)
    recorded = {g["number"]: g for g in session.call("generations")}
    target = rollback_target(facts, recorded, options.generation, session.host.name)
    if target is None:
        current = facts["generation"]["number"]
        text = f"nothing to do: {nowhere(facts, recorded, options.generation, session.host.name)}"
        return plain_report(session, "rollback", text, generation=current)
    run = Run("rollback", session, options, target=target)
    return engine.execute(run, shelf.load("rollback"))


def rollback_question(session: Session, generation: int | None) -> str | None:
    """What a rollback would do now: where, from which generation to which; None for nothing.

    Raises:
        Refused: there is no such generation, or nothing to return to.
    """
    facts = session.inspect()
    require_state(facts)
    recorded = {g["number"]: g for g in session.call("generations")}
    target = rollback_target(facts, recorded, generation, session.host.name)
    if target is None:
        return None
    there, back = named(facts["generation"]), named(recorded.get(target, target))
    return f"Roll back {session.service.name} on {session.host.name} from {there} to {back}?"
