"""The step that names the generation to return to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.errors import Refused
from opsctl.events import Event
from opsctl.playbook.spec import ChooseArguments
from opsctl.rollout.plan import require_state
from opsctl.rollout.run import Run
from opsctl.rollout.way_back import named, nowhere, rollback_target, unsigned, unsigned_text


def choose(run: Run) -> str:
    """Settle `run.target`, unless whoever began this has named it.

    Raises:
        Refused: there is none to return to.
    """
    recorded = {int(g["number"]): g for g in run.session.call("generations")}
    if run.target is None:
        run.target = _target(run, recorded)
    run.target_status = recorded[run.target]["status"] if run.target in recorded else ""
    run.strict = False  # it may never have reached the floor that the newer one is held to
    if run.session.service.allowed_signers is not None:
        run.unsigned = frozenset(n for n, record in recorded.items() if unsigned(record))
    if run.target in run.unsigned:
        run.session.emit(Event("signature", "warn", unsigned_text(recorded[run.target])))
    return named(recorded.get(run.target, run.target))


def can_return(run: Run) -> bool:
    """Whether `choose` would find one."""
    try:
        recorded = {int(g["number"]): g for g in run.session.call("generations")}
        _target(run, recorded)
    except Refused:
        return False
    return True


def _target(run: Run, recorded: Mapping[int, Mapping[str, Any]]) -> int:
    facts = run.session.inspect()
    require_state(facts)
    host = run.session.host.name
    given = run.arguments
    wanted = run.options.generation
    if wanted is None and isinstance(given, ChooseArguments) and given.to == "served":
        wanted = _last_served(facts, recorded)
    target = rollback_target(facts, recorded, wanted, host)
    if target is None:
        raise Refused(
            nowhere(facts, recorded, wanted, host),
            remedy=f"opsctl history {host}, then opsctl rollback {host} GENERATION",
            code="nothing_to_roll_back",
        )
    return target


def _last_served(facts: Mapping[str, Any], recorded: Mapping[int, Mapping[str, Any]]) -> int | None:
    """The newest other one that was confirmed; None, which is the predecessor, where none was."""
    current = facts["generation"]
    version = facts.get("install", {}).get("version")
    return next(
        (
            number
            for number in sorted(recorded, reverse=True)
            if (current is None or number != current["number"])
            and recorded[number]["status"] in {"confirmed", "found"}
            and recorded[number]["version"] == version
        ),
        None,
    )
