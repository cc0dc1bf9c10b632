"""What the guard on the host did, and what it waits for, in sentences for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.text import clock, duration, moment
from opsctl.units.properties import Unit

# Seconds past the load's budget in which a client may come back: `hostside.guardian`'s.
_GRACE = 30.0


def describe(report: Mapping[str, Any]) -> str:
    """What the guard did, in a sentence for a person."""
    untold = [each for each in report.get("notices", ()) if each["error"]]
    failed = "".join(f"; it could not tell {each['label']}: {each['error']}" for each in untold)
    return _did(report) + failed


def _did(report: Mapping[str, Any]) -> str:
    lost = f"{report.get('command') or 'rollout'} by {report.get('who') or 'somebody'}"
    did = "left the files as they were"
    if report["to"] is not None:
        did = f"made sure of generation {report['to']}"
    elif report.get("left"):
        did += f" ({report['left']})"
    if report.get("gave_up") is not None:
        did += f" after generation {report['gave_up']} had not come up"
    text = f"{clock(report['at'])}: the guard {did}, as the {lost} was lost ({report['why']})"
    if report.get("error"):
        return f"{text}; it is still at it: {report['error']}"
    if "seconds" not in report:
        return f"{text}; it is at it now"
    if not report["serving"]:
        return f"{text}; the unit was down before and stays so"
    if report["healthy"]:
        return f"{text}; the service answered after {report['seconds']:.0f} s"
    return f"{text}; the service did NOT come up again"


def pending(terms: Mapping[str, Any], unit: Unit | None = None) -> str:
    """That a lost rollout waits for its confirmation or its end, in a sentence for a person.

    `unit` is a look at the service, by which the time of that end is known.
    """
    now = unit.time if unit is not None else None
    when = "when the load's budget is over, or at once if the service dies"
    return (
        f"the {_rollout(terms)}, begun {moment(terms['armed'], now)}, has lost its client; the "
        f"guard {_goal(terms)} {_when(terms, unit) or when} unless it is confirmed"
    )


def brief(terms: Mapping[str, Any], unit: Unit | None, *, held: bool) -> str:
    """The same in the width of a screen; `held`: its client, or the guard, has the lock."""
    if held:
        return f"armed for the {_rollout(terms)}"
    when = _when(terms, unit) or "after the load's budget"
    return f"{_goal(terms)} {when}: the {_rollout(terms)} lost its client"


def _rollout(terms: Mapping[str, Any]) -> str:
    return f"{terms.get('command') or 'rollout'} of {terms.get('who') or 'somebody'}"


def _goal(terms: Mapping[str, Any]) -> str:
    return "starts the service" if terms["to"] is None else f"puts generation {terms['to']} back"


def _when(terms: Mapping[str, Any], unit: Unit | None) -> str:
    """When the guard acts; empty where it is not known."""
    left = _left(terms, unit) if unit is not None else None
    if left is None or unit is None:
        return ""
    return f"at {moment(unit.time + left, unit.time)} (in {duration(left)})" if left else "now"


def _left(terms: Mapping[str, Any], unit: Unit) -> float | None:
    """Seconds until the guard acts, 0.0 for at once; None where the terms do not say.

    As `hostside.guardian` decides it: it holds off for a load within its budget, and for nothing
    else.
    """
    if terms["to"] is None or not unit.active or unit.n_restarts:
        return 0.0
    if unit.active_for is None or "budget" not in terms:
        return None
    return max(0.0, float(terms["budget"]) + _GRACE - unit.active_for)


def ways_out(host: str) -> str:
    """What may be done about a rollout that lost its client, besides leaving it to the guard."""
    return f"opsctl confirm {host} to keep what is there, opsctl rollback {host} to end it now"
