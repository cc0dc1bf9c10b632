"""Rules about the service: what a start said of itself, and the state it is in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from opsctl.journal.diagnosis import Confidence
from opsctl.journal.rules import rule_base
from opsctl.text import clock, counted, duration
from opsctl.triage import kinds
from opsctl.triage.causes import Cause
from opsctl.triage.facts import Facts

# A lock that is held longer than a load may take, by so many seconds, explains nothing any more.
_LOCK_GRACE: Final = 600.0
# Below so many decode steps an accept length is chance, as for `journal.numbers`.
_ENOUGH_STEPS: Final = 64
# Without a batch for so long the scheduler is not merely busy, seconds.
_QUIET: Final = 60.0
# Files that are named of those that a hand has changed.
_NAMED: Final = 3


def change_under_way(facts: Facts) -> Cause | None:
    lock = facts.lock
    if lock is None:
        return None
    held = float(lock.get("held_s") or 0.0)
    who, why = lock.get("who") or "somebody", lock.get("why") or "no reason given"
    text = f"{who} holds the lock for {duration(held)}: {why}"
    waits = not facts.up and held < facts.budget + _LOCK_GRACE
    return Cause(
        "change_under_way",
        text,
        remedy=f"opsctl lock show {facts.host} says who; wait for it to end",
        weight="inconclusive" if waits else "warn",
    )


def lost_rollout(facts: Facts) -> Cause | None:
    if facts.guard is None or facts.lock is not None:
        return None
    who = facts.guard.get("who") or "somebody"
    return Cause(
        "lost_rollout",
        f"the rollout of {who} has lost its client; the guard on the host will end it",
        remedy=f"opsctl confirm {facts.host} to keep what is there, or wait for the guard",
        weight="inconclusive",
    )


def no_unit(facts: Facts) -> Cause | None:
    unit = facts.unit
    if unit is None or unit.exists:
        return None
    return Cause(
        "no_unit",
        f"there is no unit {unit.name} on the host",
        remedy=f"compare services.*.unit in the inventory: opsctl doctor {facts.host}",
    )


def bad_patch_set(facts: Facts) -> Cause | None:
    if facts.swap is not None:
        swap = facts.swap
        return Cause(
            "swap_cut_off",
            f"a swap from generation {swap['from']} to {swap['to']} was cut off: the package may "
            "be a mixture of two versions",
            "bad-patch-set",
        )
    incident, changed = facts.incident, facts.changed
    blamed = incident is not None and (
        incident[1].action == "rollback_patch"
        or kinds.BY_KIND.get(incident[1].kind) == "bad-patch-set"
    )
    crashed = incident is not None and incident[1].crash and incident[1].severity != "hardware"
    suspect = changed is not None or bool(facts.drift)
    if not blamed and not (suspect and crashed and not facts.ready):
        return None
    assert incident is not None
    if facts.drift and changed is None:  # nothing speaks against what was recorded
        return _by_hand(facts, f"{incident[1].kind}, and ", incident[1].lines[:2], "medium")
    evidence = list(incident[1].lines[:2])
    text = "the crash is in what the patch set changed"
    if changed is not None:
        name = f"generation {changed['number']} ({_label(changed)})"
        text = f"{name} has not come up since it was deployed"
        evidence.insert(
            0, f"the generation was deployed after the service last worked ({_by(changed)})"
        )
    return Cause(
        incident[1].kind,
        text,
        "bad-patch-set",
        evidence=tuple(evidence),
        confidence="high" if blamed and changed else "medium",
    )


def crashed(facts: Facts) -> Cause | None:
    """What a start said of itself, by the kind of it."""
    incident = facts.incident
    if incident is None:
        return None
    start, found = incident
    book = kinds.BY_KIND.get(found.kind, "service-down")
    if book == "service-down" and facts.looping:
        book = "crash-loop"
    if book == "service-down" and facts.up:
        book = "planned-restart"
    when = "" if start is facts.present else f", in the start of {clock(start.began)}"
    mild = found.severity in {"warn", "info", "ok"} or (
        start is facts.present and facts.up and found.severity == "error"
    )
    return Cause(
        found.kind,
        f"{found.kind}{when}: {rule_base().kinds[found.kind].cause}",
        book,
        remedy=found.remedy,
        evidence=found.lines[:3],
        weight="warn" if mild and facts.up else "fail",
        confidence=found.confidence,
    )


def looping(facts: Facts) -> Cause | None:
    if not facts.looping:
        return None
    unit = facts.unit
    assert unit is not None
    return Cause(
        "restart_loop",
        f"{unit.name} does not come up, and systemd has restarted it "
        f"{counted(unit.n_restarts, 'time')}",
        "crash-loop",
        evidence=(f"unit: {unit.state}, result {unit.result or 'none'}",),
    )


def hung(facts: Facts) -> Cause | None:
    """It said that it was ready, and does not answer."""
    if not facts.ready or facts.http == "unasked":
        return None
    present = facts.present
    batch = present.batch_at if present else None
    quiet = facts.now - batch if batch else None
    last = f"last batch {duration(quiet)} ago" if quiet is not None else "no batch in its journal"
    if facts.http in {"silent", "refused"}:
        word = "gives no answer" if facts.http == "silent" else "refuses connections"
        return Cause("hung", f"it runs and said it was ready, but {word}", "hung",
                     evidence=(facts.http_text, last))  # fmt: skip
    if facts.healthy is True or (quiet is not None and quiet < _QUIET):
        return None
    if facts.healthy is False:
        return Cause(
            "health_hang",
            "the port answers, but /health says that nothing is computed",
            "hung",
            evidence=(last,),
        )
    return Cause(
        "slow_health",
        "the port answers, but /health gave no answer in time: it is slow, or hung",
        "hung",
        remedy=f"look again; opsctl smoke {facts.host} tells the two apart",
        evidence=(last,),
        weight="inconclusive",
        confidence="low",
    )


def loading(facts: Facts) -> Cause | None:
    """A load within its time needs nothing but that."""
    if not facts.loading or facts.unit is None:
        return None
    present = facts.present
    phase = present.phase if present else "starting"
    past = facts.overdue
    since = facts.unit.active_for or 0.0
    text = f"it is loading: {phase}, {duration(since)} of {duration(facts.budget)}"
    if past:
        return Cause("slow_load", f"{text}: {past}", "slow-load")
    return Cause("loading", text, remedy=f"opsctl wait {facts.host}", weight="inconclusive")


def stopped(facts: Facts) -> Cause | None:
    unit = facts.unit
    if unit is None or not unit.down or not unit.exists or facts.incident or facts.looping:
        return None
    stops = [e for e in facts.audit if e.get("event") == "unit.stop"]
    evidence = [f"unit: {unit.state}"]
    if stops:
        who = stops[-1].get("who") or "somebody"
        evidence.append(f"opsctl stopped it last at {clock(stops[-1]['time'])}, for {who}")
    by_hand = unit.active_state == "inactive" and unit.result == "success"
    return Cause(
        "stopped" if by_hand else "failed",
        f"{unit.name} was stopped, and nothing says that it failed"
        if by_hand
        else f"{unit.name} failed ({unit.result}), and its journal does not say why",
        "service-down",
        evidence=tuple(evidence),
        confidence="high" if by_hand else "low",
    )


def low_acceptance(facts: Facts) -> Cause | None:
    present = facts.present
    if present is None or facts.floor is None or not facts.ready:
        return None
    found = present.accept_len
    if found is None or present.decode_steps < _ENOUGH_STEPS or found >= facts.floor:
        return None
    return Cause(
        "low_acceptance",
        f"accept length {found:.2f}, below the floor of {facts.floor:.2f}",
        "acceptance-collapsed",
        evidence=(f"over {counted(present.decode_lines, 'decode line')} of this start",),
    )


def state_damaged(facts: Facts) -> Cause | None:
    if facts.state_fault is None:
        return None
    return Cause(
        "state_damaged",
        str(facts.state_fault["message"]),
        remedy=str(facts.state_fault.get("remedy") or ""),
    )


def changed_by_hand(facts: Facts) -> Cause | None:
    if not facts.drift and not facts.unit_drift:
        return None
    crash = bad_patch_set(facts)
    return None if crash is not None and crash.name == "drift" else _by_hand(facts)


def _by_hand(
    facts: Facts, besides: str = "", evidence: Sequence[str] = (), confidence: Confidence = "high"
) -> Cause:
    """Files are not as recorded: the generation in place has the bytes that belong there. To go
    back to the one before would not be about them."""
    generation, host = facts.generation or {}, facts.host
    number, version = generation.get("number"), generation.get("version")
    files = [*facts.drift, *facts.unit_drift]
    more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
    which = f"{', '.join(files[:_NAMED])}{more}"
    was = "was" if len(files) == 1 else "were"
    text = f"{which} {was} changed by hand: not as generation {number} recorded"
    if set(files) == set(facts.reinstalled):
        text = f"the wheel's own {which} {'is' if was == 'was' else 'are'} back, as by a reinstall"
    command = f"opsctl rollback {host} {number}"
    remedy = (
        f"that puts the recorded bytes back, restarts and proves; opsctl plan {host} shows the "
        f"change first, opsctl deploy {host} --adopt records it and deploys over it"
    )
    if version and facts.version and version != facts.version:
        text = f"{facts.version} is installed, and generation {number} is of {version}"
        command = f"opsctl verify {host}"
        remedy = f"deploy a set for {facts.version}, or reinstall {version}"
    return Cause(
        "drift",
        besides + text,
        command=command,
        remedy=remedy,
        evidence=(*evidence,),
        confidence=confidence,
    )


def restart_due(facts: Facts) -> Cause | None:
    unit = facts.unit
    if unit is None or not (unit.plain or unit.need_daemon_reload):
        return None
    text = "it serves without speculation" if unit.plain else "its unit files were changed since"
    return Cause(
        "restart_due", f"{text}; a restart by opsctl ends that", "planned-restart", weight="warn"
    )


def had_crashed(facts: Facts) -> Cause | None:
    """It runs, and did not always."""
    before, incident = facts.before, facts.incident
    if facts.down or before is None or not before.diagnosis.crash:
        return None
    if incident is not None and incident[0] is before:  # which says so already
        return None
    return Cause(
        "crashed_before",
        f"the start before ended at {clock(before.ended)}: {before.diagnosis.kind}",
        evidence=before.diagnosis.lines[:1],
        weight="warn",
    )


def unknown(facts: Facts) -> Cause | None:
    """Missing evidence is no evidence of health."""
    if facts.unit is None:
        why = facts.missing.get("unit", "the host did not say")
        return Cause("unknown", f"the state of the unit is not known: {why}", weight="inconclusive")
    if facts.ready and facts.http == "unasked":
        why = facts.missing.get("http", "it was not asked")
        return Cause("unasked", f"whether it answers is not known: {why}", weight="inconclusive")
    return None


def _label(generation: object) -> str:
    found = generation.get("set") if isinstance(generation, dict) else None
    return f"{found['name']} {found['version']}" if found else "no patch set"


def _by(generation: object) -> str:
    if not isinstance(generation, dict):
        return ""
    at = generation.get("created")
    return (
        f"{clock(float(at))}, {generation.get('who') or 'somebody'}" if at else "when is not known"
    )
