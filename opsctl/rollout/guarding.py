"""The guard on the host, from this side: armed by a rollout, met again after a lost connection.

`opsctl.hostside.guard` says what it does by itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from opsctl.errors import LockHeld, OpsctlError
from opsctl.events import Event
from opsctl.rollout.notifying import guards_terms
from opsctl.rollout.run import Run
from opsctl.rollout.session import RECONNECT_FOR, whoami
from opsctl.transport.bundle import guard_program

# Seconds, each a bound on a step that takes far less; their sum only tells a hung client.
_SWAP, _MARGIN = 180.0, 120.0
_SETTLED = frozenset({"confirmed", "unconfirmed", "found"})
# An exam takes seconds to minutes; a long context at its limit takes many.
_EXAM: dict[str, float] = {"quick": 0.0, "standard": 1800.0, "deep": 7200.0}


def arm(run: Run, stop_bound: float) -> None:
    """Have the host finish, or undo, what this rollout may leave half done.

    Again in the middle of one it renews the terms for the way back.
    """
    to, fallback = _ends(run)
    # What ends in a start if all goes well, and goes on to that end by itself.
    goes_on = run.command == "restart" or (to is not None and to == run.target)
    run.session.call(
        "arm_guard",
        given={
            "command": run.command,
            "to": to,
            "fallback": fallback,
            "target": run.target if run.command == "deploy" else None,
            "serving": run.was_up or goes_on,
            "budget": run.budget,
            "within": stop_bound + _SWAP + run.budget + _proof(run) + _MARGIN,
            "token": run.session.token,
            "who": whoami(),
            "why": run.options.why,
        },
        program=guard_program(),
        notices=guards_terms(run.session),
    )
    run.guarded = True


def _proof(run: Run) -> float:
    """How long a proof may take, seconds. Generous: a client that is gone is known by its silence,
    and this bound only ends one that lives and is stuck."""
    timeout = run.session.service.smoke.timeout
    quick = 3 * timeout
    if run.undoing:
        return quick
    soak = run.trial.policy.soak.seconds + timeout if run.trial is not None else 0.0
    return quick + _EXAM[run.level] + soak


def _ends(run: Run) -> tuple[int | None, int | None]:
    """The generation that a lost rollout ends in, and the one for when that does not come up.

    A rollback goes on to where it was going, if that ever served: what it leaves is what somebody
    wanted to be rid of. Being undone it goes back, like everything else.
    """
    if run.command != "rollback":
        return run.origin, None
    status = (run.facts.get("generation") or {}).get("status")
    target = run.target if run.target_status in _SETTLED else None
    if target is None or run.undoing:
        return run.origin, target
    return target, run.origin if status in _SETTLED else None


def disarm(run: Run, *, well: bool = True) -> None:
    """The rollout has ended. A guard that could not be told acts, and says so."""
    if not run.guarded:
        return
    try:
        run.session.call("disarm_guard", well=well)
    except OpsctlError as error:
        run.session.emit(Event("guard", "warn", f"not disarmed: {error.message}"))
    else:
        run.guarded = False


def take_over(run: Run) -> Mapping[str, Any] | None:
    """Get the lock again on a new connection; what the guard did meanwhile, if it did anything.

    Raises:
        LockHeld: somebody else has it.
        Unreachable: the connection is lost again.
    """
    began = time.monotonic()
    told = False
    while True:
        try:
            run.session.lock(f"restoring after opsctl {run.command}")
            break
        except LockHeld:
            acting = run.session.lock_state()["terms"] is not None
            patience = RECONNECT_FOR + (run.budget + _SWAP if acting else 0.0)
            if time.monotonic() - began > patience:
                raise
            if acting and not told:
                told = True
                run.session.emit(Event("guard", "info", "the guard on the host is at work"))
            time.sleep(2)
    report: Mapping[str, Any] | None = run.session.lock_state()["report"]
    if report is None or report["token"] != run.session.token or "seconds" not in report:
        return None
    run.guard_report = report
    return report
