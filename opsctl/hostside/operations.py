"""The operations by name. Each takes and returns plain JSON values.

`site` names one service on this host: {service, unit, python, distribution, package, listen,
port, state_dir}.
"""

from __future__ import annotations

import base64
import os
from typing import Any, Callable, Dict, List, Optional, Sequence

from . import (
    audit,
    baselines,
    discover,
    exchange,
    guard,
    guardian,
    importers,
    journal,
    lint,
    machine,
    model,
    notice,
    plain,
    probe,
    prune,
    room,
    stacks,
    unit,
    unitfiles,
)
from . import install as installed
from . import orphans as left_over
from .errors import HostFault
from .holder import end_holder
from .state import (
    Lock,
    Record,
    State,
    client_address,
    describe_holder,
    lock_holder,
)
from .swap import Files, examine, stage, swap

Site = Dict[str, Any]

_LOCK = Lock()


def _state(site: Site) -> State:
    return State(site["state_dir"], site["service"])


def _locked_state(site: Site) -> State:
    state = _state(site)
    if not _LOCK.held(state):
        raise HostFault("lock_not_held", "this needs the lock of the service, which is not held")
    return state


def _install(site: Site) -> Dict[str, Any]:
    found = installed.locate(site["python"], site["distribution"], site["package"])
    return dict(found, python=site["python"], unit=site["unit"])


def inspect(site: Site, audit: bool = False, gpu: bool = True) -> Dict[str, Any]:
    """Everything that a plan, a preflight or a doctor wants to know, in one round trip.

    Without `gpu` the GPUs are not asked, which takes long beside one that hangs (`machine` has a
    bound for that). The parts that can fail by themselves do so in place: `install` is then
    {"fault": …}, and `state_fault` says what is wrong with the state folder.
    """
    state = _state(site)
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
        install = _install(site)
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
    return _recorded(_state(site))


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

    state, folder = _state(site), install["package_dir"]
    record = installed.record_hashes(install["record"]) if paths else {}
    return {
        "paths": {p: encode(installed.read_bytes(os.path.join(folder, p))) for p in paths},
        "record": {p: record.get(site["package"] + "/" + p) for p in paths},
        "objects": {o: encode(state.get(o)) if state.has(o) else None for o in objects},
    }


def lock(site: Site, who: str, why: str, token: str = "") -> None:
    """Take the lock, or fail with `lock_held` and the holder's name.

    A holder with the same `token` is this client's own program of a connection that was lost:
    sshd may keep it for hours. It is ended first.
    """
    state = _state(site)
    holder = {"who": who, "why": why, "token": token}
    if token:
        end_holder(state, token)
    _LOCK.take(state, holder)
    audit.note(state, "lock", who=who, why=why)


def unlock() -> None:
    note_end()
    _LOCK.release()


def note_end() -> None:
    """The lock that this program holds, if any, ends now: with a word, or with the program."""
    if _LOCK.root is not None:
        audit.note(State(*os.path.split(_LOCK.root)), "unlock", who=_LOCK.who)


def lock_state(site: Site) -> Record:
    """Who holds the lock, whether that is the guard, and what the guard waits for."""
    state = _state(site)
    holder = lock_holder(state)
    by_guard = holder is not None and holder.get("token") == guardian.WHO
    return dict(_guard_facts(state), holder=holder, by_guard=by_guard)


def release_lock(site: Site, who: str) -> Optional[Record]:
    """End the program that holds the lock, whoever's; returns who that was, None if nobody."""
    state = _state(site)
    holder = lock_holder(state)
    if holder is None:
        return None
    end_holder(state, holder.get("token"))
    if lock_holder(state) is not None:
        raise HostFault(
            "lock_held",
            "the holder of the lock could not be ended: %s" % describe_holder(holder),
            "find it on the host: fuser -v %s" % state.path("lock"),
        )
    audit.note(state, "lock.broken", who=who, holder=holder.get("who"), why=holder.get("why"))
    return holder


def arm_guard(site: Site, given: Record, program: str, notices: Optional[Record] = None) -> None:
    """See `guard.arm`. Needs the lock: it is what the guard waits for."""
    state = _locked_state(site)
    guard.arm(state, site, given, program, notices)
    audit.note(state, "guard.armed", who=given.get("who"), to=given.get("to"))


def disarm_guard(site: Site, well: bool = True) -> None:
    """The rollout has ended; `well` also forgets what the guard did before."""
    state = _locked_state(site)
    guard.disarm(state)
    if well:
        guard.clear_report(state)


def control(site: Site, verb: str, who: str = "", speculative: bool = True) -> Dict[str, Any]:
    """See `unit.control`."""
    audit.note(_state(site), "unit." + verb, who=who, plain=not speculative or None)
    return unit.control(site["unit"], verb, speculative)


def audit_log(site: Site, last: int = 1000) -> List[Record]:
    return audit.entries(_state(site), last)


def stage_generation(
    site: Site,
    target: Record,
    contents: Dict[str, str],
    seen: Files,
    *,
    found_set: Optional[Record] = None,
    adopted: Sequence[str] = (),
) -> Record:
    """See `swap.stage`. Changes nothing outside the state folder."""
    state = _locked_state(site)
    target = dict(target, **{"from": client_address()})
    install = _install(site)
    record = stage(
        state, install, target, contents, seen=seen, found_set=found_set, adopted=adopted
    )
    details = {key: record.get(key) for key in ("number", "set", "who", "why")}
    signer = (record.get("signed") or {}).get("principal")
    audit.note(state, "stage", signed=signer, adopted=", ".join(sorted(adopted)), **details)
    return record


def swap_generation(
    site: Site, number: int, unsigned: bool = False, why: str = "", live: bool = False
) -> Dict[str, Any]:
    """See `swap.swap`. Refused while the unit runs, unless `live`: its own files alone change.

    For the log: `unsigned` says that signatures are asked for and nobody vouched for this one,
    and `why` is the rollout's reason.
    """
    state = _locked_state(site)
    active = unit.show(site["unit"]).get("ActiveState")
    if active not in ("inactive", "failed") and not live:
        raise importers.UnitRunning(site["unit"])
    done = swap(state, _install(site), number, live)
    details = {"changed": len(done["changed"]), "starting": done["starting"] or None}
    details.update(number=number, unsigned=unsigned or None, who=_LOCK.who, why=why)
    audit.note(state, "swap", **details)
    return done


def check_swap(site: Site, number: int) -> None:
    """Whether a swap to `number` could be made; changes nothing and needs no lock."""
    examine(_state(site), _install(site), number)


def check_plain(site: Site) -> None:
    """Whether the unit could be started without speculation; changes nothing, needs no lock."""
    plain.dropin(site["unit"])


def lint_facts(site: Site, files: Dict[str, str], model: str) -> Dict[str, Any]:
    """See `lint.facts`; changes nothing and needs no lock."""
    return lint.facts(site["unit"], files, model)


def conclude(
    site: Site, number: int, status: str, verdict: Record, load_seconds: Optional[float] = None
) -> None:
    """Write down how a generation ended, and how long its start took.

    A confirmed one also ends the time of the oldest: see `prune`.
    """
    state = _locked_state(site)
    record = state.generation(number)
    record.update(status=status, verdict=verdict)
    state.save(record)
    audit.note(state, status, number=number, verdict=verdict.get("verdict"), who=_LOCK.who)
    if load_seconds is not None:
        state.record_load(load_seconds, number)
    if status == "confirmed":
        _prune(state)


def _prune(state: State) -> None:
    """Whatever goes wrong in it is no reason to fail, nor is a record of odd content: the deploy
    is proven, and only its log says so."""
    try:
        done = prune.prune(state)
    except Exception as error:
        audit.note(state, "prune", why="not done: %s" % error)
        return
    if done["generations"] or done["objects"]:
        done["generations"] = ", ".join(map(str, done["generations"]))
        audit.note(state, "prune", **done)


def record_load(site: Site, seconds: float) -> None:
    """How long a start took, for the next estimate."""
    state = _locked_state(site)
    current = state.current()
    state.record_load(seconds, current["number"] if current else None)


def generations(site: Site, damaged: bool = False) -> List[Record]:
    """Every recorded generation that can be read, oldest first.

    With `damaged` also those that cannot, as {number, fault}.
    """
    state = _state(site)
    found: List[Record] = []
    for number in state.numbers():
        try:
            found.append(state.generation(number))
        except HostFault as fault:
            if damaged:
                found.append({"number": number, "fault": fault.to_json()})
    return found


def list_baselines(site: Site) -> List[str]:
    return baselines.listed(_state(site))


def read_baseline(site: Site, name: str) -> str:
    return baselines.read(_state(site), name)


def write_baseline(site: Site, name: str, text: str) -> Dict[str, str]:
    return baselines.write(_state(site), name, text)


def remove_baseline(site: Site, name: str) -> None:
    baselines.remove(_state(site), name)


def make_room(site: Site, journal: str, keep: int) -> Dict[str, Any]:
    """See `room.make_room`."""
    state = _locked_state(site)
    done = room.make_room(state, journal, keep)
    why = "%d bytes of generations; %s" % (done["bytes"], done["journal"])
    audit.note(state, "make_room", who=_LOCK.who, why=why)
    return done


def end_orphans(site: Site, orphans: List[Record]) -> Dict[str, Any]:
    """See `orphans.end_orphans`. Needs the lock: a start may be under way."""
    state = _locked_state(site)
    done = left_over.end_orphans(site, orphans)
    audit.note(state, "end_orphans", who=_LOCK.who, why=left_over.described(done))
    return done


OPERATIONS: Dict[str, Callable[..., Any]] = {
    "discover": discover.discover,
    "inspect": inspect,
    "recorded": recorded,
    "read": read,
    "lock": lock,
    "unlock": unlock,
    "lock_state": lock_state,
    "release_lock": release_lock,
    "arm_guard": arm_guard,
    "disarm_guard": disarm_guard,
    "audit_log": audit_log,
    "stage": stage_generation,
    "swap": swap_generation,
    "check_swap": check_swap,
    "check_plain": check_plain,
    "lint_facts": lint_facts,
    "conclude": conclude,
    "record_load": record_load,
    "generations": generations,
    "unit_state": unit.show,
    "unit_control": control,
    "journal": journal.query,
    "journal_read": journal.read,
    "journal_first": journal.first,
    "machine": machine.facts,
    "find_orphans": left_over.find_orphans,
    "end_orphans": end_orphans,
    "model_facts": model.facts,
    "largest": room.largest,
    "make_room": make_room,
    "stacks": stacks.stacks,
    "list_baselines": list_baselines,
    "read_baseline": read_baseline,
    "write_baseline": write_baseline,
    "remove_baseline": remove_baseline,
    "tell": notice.tell,
}
STREAMS: Dict[str, Callable[..., Any]] = {"watch": journal.watch}
# What one host program does one at a time.
CHANGES = frozenset(
    "lock unlock release_lock arm_guard disarm_guard stage swap conclude record_load "
    "unit_control write_baseline remove_baseline make_room end_orphans".split()
)
