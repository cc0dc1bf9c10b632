"""What was done to a service: its generations, and the host's log of every change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opsctl.errors import Refused
from opsctl.report import Report
from opsctl.rollout.observe import plain_report
from opsctl.rollout.session import Session
from opsctl.rollout.way_back import rollback_target
from opsctl.text import counted, ranges

_FIELDS = (
    *("number", "predecessor", "status", "set", "signed", "version"),
    *("who", "from", "why", "created"),
)
_VERDICT = ("verdict", "code", "reasons", "accept_len", "verify_steps", "ready_s", "why")


def history(session: Session) -> Report:
    """Every generation, newest last; a record that cannot be read is shown as such."""
    facts = session.inspect()
    records: list[dict[str, Any]] = session.call("generations", damaged=True)
    current = facts["generation"]["number"] if facts["generation"] else None
    back = _way_back(facts, records)
    rows = [_row(record, current, back) for record in records]
    damaged = [row["number"] for row in rows if row["fault"]]
    pruned = _gaps([row["number"] for row in rows])
    parts = [counted(len(rows), "generation")]
    if pruned:
        parts.append(f"pruned: {ranges(pruned)}")
    if current is not None:
        parts.append(f"generation {current} is in place")
    if back is not None:
        parts.append(f"opsctl rollback would return to {back}")
    if damaged:
        parts.append(f"damaged: {', '.join(map(str, damaged))}")
    if facts["state_fault"]:
        parts.append(str(facts["state_fault"]["message"]))
    if facts["swap"]:
        parts.append("a swap was cut off: the files may be a mixture")
    data = {
        "generations": rows,
        "pruned": pruned,
        "in_place": current,
        "rollback_to": back,
        "swap": facts["swap"],
        "state_fault": facts["state_fault"],
    }
    return plain_report(session, "history", "; ".join(parts), generation=current, data=data)


def _gaps(numbers: Sequence[int]) -> list[int]:
    """Numbers are given without a gap: what is missing was recorded once, and has been pruned."""
    return sorted(set(range(max(numbers, default=0))) - set(numbers))


def _way_back(facts: dict[str, Any], records: list[dict[str, Any]]) -> int | None:
    """Where a plain `opsctl rollback` would go; None where it would do nothing or refuse."""
    readable = {record["number"]: record for record in records if "fault" not in record}
    if facts["state_fault"]:
        return None
    try:
        return rollback_target(facts, readable, None)
    except Refused:
        return None


def _row(record: Mapping[str, Any], current: int | None, back: int | None) -> dict[str, Any]:
    verdict = record.get("verdict") or {}
    number = record["number"]
    return {
        **{key: record.get(key) for key in _FIELDS},
        "verdict": {key: verdict[key] for key in _VERDICT if key in verdict} or None,
        "arguments": list(record.get("argv") or ()),
        "adopted": list(record.get("adopted") or ()),
        "files": len(record.get("files") or ()),
        "in_place": number == current,
        "rollback": number == back,
        "fault": (record.get("fault") or {}).get("message"),
    }


def audit_log(session: Session, last: int) -> Report:
    """The last entries of the host's log, oldest first."""
    entries: list[dict[str, Any]] = session.call("audit_log", last=last)
    text = f"{len(entries)} entr{'y' if len(entries) == 1 else 'ies'}"
    return plain_report(session, "audit", text, data={"entries": entries})
