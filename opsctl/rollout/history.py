"""What was done to a service: its generations, and the host's log of every change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opsctl.errors import Refused
from opsctl.report import Report
from opsctl.rollout.reports import plain_report
from opsctl.rollout.session import Session
from opsctl.rollout.way_back import nowhere, rollback_target
from opsctl.text import counted, ranges

# Why a rollout that lost its connection takes the lock again: see `guarding.take_over`.
_RECONNECTED = "restoring after "
_LOG = 5000  # entries of the host's log, of which a deploy makes some ten
_FIELDS = (
    *("number", "predecessor", "status", "set", "signed", "version"),
    *("who", "from", "why", "created"),
)
_VERDICT = ("verdict", "code", "reasons", "accept_len", "verify_steps", "ready_s", "why")


def history(session: Session) -> Report:
    """Every generation, newest last; a record that cannot be read is shown as such."""
    host = session.host.name
    facts = session.inspect()
    records: list[dict[str, Any]] = session.call("generations", damaged=True)
    current = facts["generation"]["number"] if facts["generation"] else None
    back, further = _way_back(facts, records, host)
    units = {record["number"]: record.get("unit") or {} for record in records}
    rows = [_row(record, units, current, back) for record in records]
    damaged = [row["number"] for row in rows if row["fault"]]
    pruned = _gaps([row["number"] for row in rows])
    parts = [counted(len(rows), "generation") if rows else "nothing was ever deployed here"]
    if pruned:
        parts.append(f"pruned: {ranges(pruned)}")
    if current is not None:
        parts.append(f"generation {current} is in place")
    if back is not None:
        parts.append(f"opsctl rollback {host} would return to {back}")
    elif further:
        parts.append(f"opsctl rollback {host} has nothing to do: {further}")
    if damaged:
        parts.append(f"damaged: {', '.join(map(str, damaged))}")
    if facts["state_fault"]:
        parts.append(str(facts["state_fault"]["message"]))
    if facts["swap"]:
        parts.append("a swap was cut off: the files may be a mixture")
    data = {
        "generations": rows,
        "moves": moves(session.call("audit_log", last=_LOG)) if rows else [],
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


def _way_back(
    facts: dict[str, Any], records: list[dict[str, Any]], host: str
) -> tuple[int | None, str]:
    """Where a plain `opsctl rollback` would go, None where it would do nothing or refuse; and why
    it would do nothing."""
    readable = {record["number"]: record for record in records if "fault" not in record}
    if facts["state_fault"]:
        return None, ""
    try:
        target = rollback_target(facts, readable, None, host)
    except Refused:
        return None, ""
    return target, nowhere(facts, readable, None, host) if target is None else ""


def moves(log: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rollbacks and restores of the host's log, oldest first: {time, what, number, who, why}.

    `what` is `rollback` for one that was asked for, `restore` for the way back of a rollout that
    failed, `guard` for what the guard put back. The first swap to a generation after its stage
    is its deploy, which the generation's own record tells.
    """
    found: list[dict[str, Any]] = []
    staged: set[Any] = set()
    holder: Mapping[str, Any] = {}
    swapped = False  # under the present lock: the next swap of that rollout is its way back
    for entry in log:
        event, number = entry.get("event"), entry.get("number")
        if event == "lock":
            again = str(entry.get("why", "")).startswith(_RECONNECTED)
            holder, swapped = entry, swapped and again
        elif event == "stage":
            staged.add(number)
        elif event == "swap":
            if number in staged:
                staged.discard(number)
            else:
                found.append(_move("restore" if swapped else "rollback", number, entry, holder))
            swapped = True
        elif event == "guard.done":
            found.append(_move("guard", entry.get("to"), entry, {}))
    return found


def _move(
    what: str, number: Any, entry: Mapping[str, Any], holder: Mapping[str, Any]
) -> dict[str, Any]:
    """`holder` is the lock's: logs of an older opsctl name nobody at the swap itself."""
    return {
        "time": entry.get("time"),
        "what": what,
        "number": number,
        **{key: entry.get(key) or holder.get(key) or "" for key in ("who", "why")},
    }


def _row(
    record: Mapping[str, Any],
    units: Mapping[int, Mapping[str, Any]],
    current: int | None,
    back: int | None,
) -> dict[str, Any]:
    verdict = record.get("verdict") or {}
    number, predecessor = record["number"], record.get("predecessor")
    return {
        **{key: record.get(key) for key in _FIELDS},
        "verdict": {key: verdict[key] for key in _VERDICT if key in verdict} or None,
        "arguments": list(record.get("argv") or ()),
        "adopted": list(record.get("adopted") or ()),
        "files": len(record.get("files") or ()),
        # Each generation also has what those before it did to the unit.
        "with_unit": units[number]
        != (units.get(predecessor, {}) if predecessor is not None else {}),
        "in_place": number == current,
        "rollback": number == back,
        "fault": (record.get("fault") or {}).get("message"),
    }


def audit_log(session: Session, last: int) -> Report:
    """The last entries of the host's log, oldest first."""
    entries: list[dict[str, Any]] = session.call("audit_log", last=last)
    text = f"{len(entries)} entr{'y' if len(entries) == 1 else 'ies'}"
    return plain_report(session, "audit", text, data={"entries": entries})
