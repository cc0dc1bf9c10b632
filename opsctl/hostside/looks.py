"""The operations that look at what opsctl keeps of a service, and at what its files are; none of
them changes anything or needs the lock.

`site` is that of `operations`.
"""

from __future__ import annotations

import base64
import os
from typing import Any, Dict, List, Optional

from . import audit, exchange, guard, guardian, probe, unit, unitfiles
from . import install as installed
from .errors import HostFault
from .state import Record, State, lock_holder

Site = Dict[str, Any]


def state_of(site: Site) -> State:
    """The service's state folder, which need not be there."""
    return State(site["state_dir"], site["service"])


def install_of(site: Site) -> Dict[str, Any]:
    """See `install.locate`, whose faults are raised; with the service's `python` and `unit`."""
    found = installed.locate(site["python"], site["distribution"], site["package"])
    return dict(found, python=site["python"], unit=site["unit"])


def inspect(site: Site, audit: bool = False, gpu: bool = True) -> Dict[str, Any]:
    """Everything that a plan, a preflight or a doctor wants to know, in one round trip.

    Without `gpu` the GPUs are not asked, which takes long beside one that hangs (`machine` has a
    bound for that). The parts that can fail by themselves do so in place: `install` is then
    {"fault": …}, and `state_fault` says what is wrong with the state folder.
    """
    state = state_of(site)
    properties = unit.show(site["unit"])
    cgroup = str(properties.get("ControlGroup") or "")
    facts: Dict[str, Any] = {
        "host": probe.machine(),
        "unit": properties,
        "unit_files": unitfiles.facts(site["unit"]),
        "port": probe.listener(site["listen"], site["port"], cgroup),
        "own_addresses": probe.own_addresses(site["port"], cgroup),
        "strays": probe.strays(site["python"], cgroup),
        "gpu": probe.gpu_processes(cgroup) if gpu else None,
        "disk": {"state": probe.disk_free(site["state_dir"])},
        **_recorded(state),
    }
    try:
        install = install_of(site)
    except HostFault as fault:
        facts["install"] = {"fault": fault.to_json()}
        return facts
    record = installed.record_hashes(install["record"])
    generation = facts["generation"] or {"files": ()}
    install["files"] = {
        path: installed.file_facts(install["package_dir"], site["package"], record, path)
        for path in sorted(generation["files"])
    }
    if audit:
        install["audit"] = installed.audit(install, site["package"])
        copy = exchange.beside(install["package_dir"])
        install["leftovers"] = [copy] if os.path.lexists(copy) else []
    facts["install"] = install
    facts["disk"]["package"] = probe.disk_free(install["package_dir"])
    return facts


def _recorded(state: State) -> Dict[str, Any]:
    """What the state folder says. Damaged, it says so, and the rest can be looked at still."""
    facts: Dict[str, Any] = {"generation": None, "swap": None, "state_fault": None}
    try:
        facts["swap"] = state.swap_under_way()
        facts["generation"] = state.current()
    except HostFault as fault:
        facts["state_fault"] = fault.to_json()
    return dict(
        facts,
        guard=_guard_facts(state),
        lock=lock_holder(state),
        generations=state.numbers(),
        loads=state.loads(),
    )


def recorded(site: Site) -> Dict[str, Any]:
    """The part of `inspect` that is files alone: cheap enough to ask again and again."""
    return _recorded(state_of(site))


def _guard_facts(state: State) -> Dict[str, Any]:
    """What the guard waits for, and what it did when it last acted; None each if nothing."""
    return {"terms": guard.terms(state), "report": guard.report(state)}


def read(
    site: Site, install: Record, paths: List[str], objects: List[str]
) -> Dict[str, Dict[str, Optional[str]]]:
    """Contents in base64, of files below the package and of stored objects; None if absent.

    `install` is `inspect`'s. ``record`` has the SHA-256 of each of the paths in the wheel.
    """

    def encode(data: Optional[bytes]) -> Optional[str]:
        return None if data is None else base64.b64encode(data).decode("ascii")

    state, folder = state_of(site), install["package_dir"]
    record = installed.record_hashes(install["record"]) if paths else {}
    return {
        "paths": {p: encode(installed.read_bytes(os.path.join(folder, p))) for p in paths},
        "record": {p: record.get(site["package"] + "/" + p) for p in paths},
        "objects": {o: encode(state.get(o)) if state.has(o) else None for o in objects},
    }


def lock_state(site: Site) -> Record:
    """Who holds the lock, whether that is the guard, and what the guard waits for."""
    state = state_of(site)
    holder = lock_holder(state)
    by_guard = holder is not None and holder.get("token") == guardian.WHO
    return dict(_guard_facts(state), holder=holder, by_guard=by_guard)


def generations(site: Site, damaged: bool = False) -> List[Record]:
    """Every recorded generation that can be read, oldest first.

    With `damaged` also those that cannot, as {number, fault}.
    """
    state = state_of(site)
    found: List[Record] = []
    for number in state.numbers():
        try:
            found.append(state.generation(number))
        except HostFault as fault:
            if damaged:
                found.append({"number": number, "fault": fault.to_json()})
    return found


def audit_log(site: Site, last: int = 1000) -> List[Record]:
    return audit.entries(state_of(site), last)
