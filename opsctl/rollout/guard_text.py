"""What the guard on the host did, and what it waits for, in sentences for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.text import clock


def describe(report: Mapping[str, Any]) -> str:
    """What the guard did, in a sentence for a person."""
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


def pending(terms: Mapping[str, Any]) -> str:
    """That a lost rollout waits for its confirmation or its end, in a sentence for a person."""
    return (
        f"the {terms.get('command') or 'rollout'} of {terms.get('who') or 'somebody'} was lost "
        f"{clock(terms['armed'])}; unless it is confirmed, the guard on the host ends it with "
        f"{'generation ' + str(terms['to']) if terms['to'] is not None else 'a start'}"
    )
