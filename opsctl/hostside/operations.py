"""The operations by name. Each takes and returns plain JSON values.

`site` names one service on this host: {service, unit, python, distribution, package, listen,
port, state_dir}.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Optional, Sequence

from . import (
    audit,
    baselines,
    discover,
    guard,
    importers,
    journal,
    lint,
    looks,
    machine,
    model,
    notice,
    plain,
    prune,
    room,
    stacks,
    unit,
)
from . import orphans as left_over
from .errors import HostFault
from .holder import end_holder
from .looks import Site, install_of, state_of
from .state import (
    Lock,
    Record,
    State,
    client_address,
    describe_holder,
    lock_holder,
)
from .swap import Files, examine, stage, swap

_LOCK = Lock()


def _locked_state(site: Site) -> State:
    state = state_of(site)
    if not _LOCK.held(state):
        raise HostFault("lock_not_held", "this needs the lock of the service, which is not held")
    return state


def lock(site: Site, who: str, why: str, token: str = "") -> None:
    """Take the lock, or fail with `lock_held` and the holder's name.

    A holder with the same `token` is this client's own program of a connection that was lost:
    sshd may keep it for hours. It is ended first.
    """
    state = state_of(site)
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


def release_lock(site: Site, who: str) -> Optional[Record]:
    """End the program that holds the lock, whoever's; returns who that was, None if nobody."""
    state = state_of(site)
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
    audit.note(state_of(site), "unit." + verb, who=who, plain=not speculative or None)
    return unit.control(site["unit"], verb, speculative)


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
    install = install_of(site)
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
    done = swap(state, install_of(site), number, live)
    details = {"changed": len(done["changed"]), "starting": done["starting"] or None}
    details.update(number=number, unsigned=unsigned or None, who=_LOCK.who, why=why)
    audit.note(state, "swap", **details)
    return done


def check_swap(site: Site, number: int) -> None:
    """Whether a swap to `number` could be made; changes nothing and needs no lock."""
    examine(state_of(site), install_of(site), number)


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


def list_baselines(site: Site) -> List[str]:
    return baselines.listed(state_of(site))


def read_baseline(site: Site, name: str) -> str:
    return baselines.read(state_of(site), name)


def write_baseline(site: Site, name: str, text: str) -> Dict[str, str]:
    return baselines.write(state_of(site), name, text)


def remove_baseline(site: Site, name: str) -> None:
    baselines.remove(state_of(site), name)


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
    "inspect": looks.inspect,
    "recorded": looks.recorded,
    "read": looks.read,
    "lock": lock,
    "unlock": unlock,
    "lock_state": looks.lock_state,
    "release_lock": release_lock,
    "arm_guard": arm_guard,
    "disarm_guard": disarm_guard,
    "audit_log": looks.audit_log,
    "stage": stage_generation,
    "swap": swap_generation,
    "check_swap": check_swap,
    "check_plain": check_plain,
    "lint_facts": lint_facts,
    "conclude": conclude,
    "record_load": record_load,
    "generations": looks.generations,
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
