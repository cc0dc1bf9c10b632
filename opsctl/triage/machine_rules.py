"""Rules about the machine: what no change of the service mends."""

from __future__ import annotations

from typing import Final

from opsctl.text import clock, duration
from opsctl.triage import kernel, kinds, space
from opsctl.triage.causes import Cause
from opsctl.triage.facts import Facts

_GPU_REMEDY: Final = "drain the host, then reboot or power-cycle it; replace the card if it recurs"


def gpu_hardware(facts: Facts) -> Cause | None:
    found = [m for m in _kernel(facts, facts.troubled_since) if m.kind in kernel.GPU]
    incident = facts.incident
    if found:
        kind, evidence = found[-1].kind, tuple(str(each) for each in found[-2:])
    elif incident and incident[1].kind in kernel.GPU | {"driver_mismatch"}:
        kind, evidence = incident[1].kind, incident[1].lines[:2]
    else:
        return None
    return Cause(
        kind,
        "a GPU or its driver is at fault; no restart of the service mends that",
        remedy=incident[1].remedy if incident and incident[1].kind == kind else _GPU_REMEDY,
        evidence=evidence,
    )


def disk_full(facts: Facts) -> Cause | None:
    found = [p for p in _places(facts) if p.trouble in {"full", "no_inodes"}]
    if not found:
        return None
    return Cause(
        "disk_full",
        "; ".join(place.text for place in found),
        "disk-full",
        evidence=tuple(f"{', '.join(p.roles)}: {p.text}" for p in found),
    )


def out_of_memory(facts: Facts) -> Cause | None:
    killed = [m for m in _kernel(facts, facts.troubled_since) if m.kind == kernel.OOM]
    of_unit = facts.unit is not None and facts.unit.result == "oom-kill"
    if facts.up or not (killed or of_unit):
        return None
    memory = facts.machine.get("memory") or {}
    evidence = [str(each) for each in killed[-2:]]
    if of_unit:
        evidence.append("systemd: the unit's result is oom-kill")
    if memory:
        free, total = space.gib(memory["available"]), space.gib(memory["total"])
        evidence.append(f"memory now: {free} of {total} available")
    return Cause(
        "host_oom_killed",
        "the kernel killed a process for want of host memory (not GPU memory)",
        "out-of-memory",
        evidence=tuple(evidence),
    )


def storage_broken(facts: Facts) -> Cause | None:
    dead = [p for p in _places(facts) if p.trouble in {"dead", "read_only"}]
    errors = [
        m for m in _kernel(facts, facts.troubled_since) if m.kind in {"storage", "file_server"}
    ]
    if not dead and (facts.up or not errors):
        return None
    text = "; ".join(p.text for p in dead) or "the kernel reports errors of a disk or file server"
    return Cause(
        "storage_broken",
        text,
        remedy="mend the disk, the mount or its server first: no restart helps before",
        evidence=tuple(str(each) for each in errors[-3:]),
        weight="warn" if facts.up else "fail",
    )


def rebooted(facts: Facts) -> Cause | None:
    """Since it last ran, and it has not come up since."""
    boot, last = facts.machine.get("boot"), facts.last_worked
    if not boot or last is None or boot["booted"] <= last.ended or facts.ready:
        return None
    gone = _weights_gone(facts)
    moved = facts.loading and not facts.overdue and not facts.looping and not gone
    return Cause(
        "host_rebooted",
        f"the host was rebooted at {clock(boot['booted'])}"
        + (", and the service is loading" if moved else ", and the service has not come up since"),
        "host-rebooted",
        evidence=(
            f"up for {duration(boot['uptime_s'])}; last line before: {clock(last.ended)}",
            *gone,
        ),
        weight="inconclusive" if moved else "fail",
    )


def weights_missing(facts: Facts) -> Cause | None:
    gone = _weights_gone(facts)
    if not gone:
        return None
    return Cause(
        "weights_missing",
        "; ".join(gone),
        remedy="mount or copy the model to where the unit looks for it, then start the service",
        weight="warn" if facts.ready else "fail",
    )


def orphans(facts: Facts) -> Cause | None:
    """Processes in the way of a start. While the service is up they are worth a look only."""
    found = list(facts.orphans)
    incident = facts.incident[1] if facts.incident else None
    said = incident is not None and kinds.BY_KIND.get(incident.kind) == "gpu-orphans"
    # Of another environment, beside a service that has what it needs: none of its business.
    held = [o for o in found if o.get("port") or o.get("gpu_memory_mib") or not o.get("left")]
    if not held and not (said and not facts.up):
        return None
    evidence = [
        f"pid {o['pid']} of {o.get('user')}: {', '.join(o['why'])}"
        + (f" ({o['left']})" if o.get("left") else "")
        for o in held[:4]
    ]
    if incident is not None and said:
        evidence += incident.lines[:1]
    number = "a process" if len(held) == 1 else f"{len(held)} processes"
    text = f"{number} outside the unit, in its way"
    return Cause(
        "orphan_processes",
        text if held else "a process of an earlier start was in its way",
        "gpu-orphans",
        evidence=tuple(evidence),
        weight="warn" if facts.up else "fail",
    )


def tight(facts: Facts) -> Cause | None:
    found = [p.text for p in _places(facts) if p.trouble == "tight"]
    return Cause("tight", "; ".join(found), "disk-full", weight="warn") if found else None


def _kernel(facts: Facts, since: float) -> list[kernel.Message]:
    return kernel.messages((facts.machine.get("kernel") or {}).get("lines") or (), since)


def _places(facts: Facts) -> list[space.Place]:
    return space.troubles(facts.machine.get("filesystems") or {})


def _weights_gone(facts: Facts) -> tuple[str, ...]:
    places = facts.machine.get("filesystems") or {}
    found = []
    for role, path in facts.weights.items():
        place = places.get(role) or {}
        weights = place.get("weights")
        if place.get("exists") is False:
            found.append(f"{path} ({role}) does not exist")
        elif weights is not None and not weights["files"]:
            found.append(f"{path} ({role}) holds no weights: is it mounted?")
    return tuple(found)
