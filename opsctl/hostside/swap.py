"""Stage a generation and put it in place. The service is stopped meanwhile.

A process that starts in the middle of a swap could import a mixture of two versions, so `swap`
is for a stopped unit only. For whoever else starts that Python meanwhile the files change when
nobody does (`importers`): at one instant where the file system allows that (`exchange`), else
within a millisecond. The file `swap` in the state folder tells a mixture apart from a whole
version ever after.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

from . import exchange, importers, packagefiles, unitfiles
from . import install as installed
from .errors import HostFault
from .packagefiles import Instant, Wanted
from .state import Record, State, sync_folder, write_atomically

# path -> {"sha256": content, None where absent; "pristine_sha256": as the wheel has it}
Files = Dict[str, Dict[str, Optional[str]]]


def stage(
    state: State,
    install: Dict[str, Any],
    target: Record,
    contents: Dict[str, str],
    *,
    seen: Files,
    found_set: Optional[Record],
    adopted: Sequence[str] = (),
) -> Record:
    """Record a new generation, with everything that it and its way back need.

    `target` is {set, files, unit, …}; `contents` maps sha256 to base64; `seen` is what the plan
    saw on disk: another deploy or a hand in between is refused. `adopted` are those of `seen`
    that a hand changed, which the record of what was found then names. Without `unit` (path ->
    sha256) the unit's files stay as the present generation has them. Returns the new record.
    """
    _refuse_editable(install)
    package_dir = install["package_dir"]
    for path in target["files"]:
        packagefiles.check_new(package_dir, path)
    for path, file in seen.items():
        if packagefiles.hash_on_disk(package_dir, path) != file["sha256"]:
            raise HostFault(
                "changed_since_plan",
                "%s changed on the host since the plan was made" % path,
                "run `opsctl plan` again",
            )
    state.prepare()
    for digest, text in contents.items():
        if state.put(base64.b64decode(text)) != digest:
            raise HostFault("content_damaged", "content of %s arrived damaged" % digest)
    for path in seen:
        data = installed.read_bytes(packagefiles.full_path(package_dir, path))
        if data is not None:
            state.put(data)
    sources = {
        path: state.get(file["sha256"])
        for path, file in target["files"].items()
        if file["sha256"] is not None
    }
    bad = installed.compile_check(install["python"], sources)
    if bad:
        first = bad[0]
        raise HostFault(
            "does_not_compile",
            "%s:%s: %s (with the host's Python %s)"
            % (first["path"], first["line"], first["message"], install["python_version"]),
            "mend the patch; `opsctl patches check` finds this without a host",
        )
    previous = state.current()
    unit = previous.get("unit", {}) if previous else {}
    if previous is None or not _describes(previous, install, seen):
        found: Record = {"set": found_set, "files": seen, "adopted": sorted(adopted), "unit": unit}
        previous = _record_found(state, install, found, str(target.get("who", "")))
    record = dict(
        target,
        unit=unitfiles.record(state, install["unit"], target.get("unit", {}), unit),
        number=state.numbers()[-1] + 1,
        predecessor=previous["number"],
        created=time.time(),
        status="staged",
        version=install["version"],
        python=install["python"],
        package_dir=package_dir,
    )
    state.save(record)
    return record


def _describes(record: Record, install: Dict[str, Any], seen: Files) -> bool:
    """Whether the disk still is what `record` says; a reinstall or an adopted set is not."""
    if record["version"] != install["version"] or record["package_dir"] != install["package_dir"]:
        return False
    return all(
        file["sha256"] == record["files"].get(path, {"sha256": file["pristine_sha256"]})["sha256"]
        for path, file in seen.items()
    )


def _record_found(state: State, install: Dict[str, Any], found: Record, who: str) -> Record:
    numbers = state.numbers()
    hand = bool(found["adopted"])
    record: Record = dict(
        found,
        number=numbers[-1] + 1 if numbers else 0,
        predecessor=None,
        created=time.time(),
        status="found",
        who=who if hand else "",
        why="adopted: changed by hand" if hand else "found on the host",
        version=install["version"],
        python=install["python"],
        package_dir=install["package_dir"],
    )
    state.save(record)
    state.set_current(record["number"])
    return record


def contents_of(source: Record, target: Record) -> Wanted:
    """path -> sha256 that the disk must hold for `target`, over the paths of both.

    Whole sets replace whole sets: a path that `target` does not name goes back to the wheel's.
    """
    wanted = {p: f["pristine_sha256"] for p, f in source["files"].items()}
    wanted.update({p: f["sha256"] for p, f in target["files"].items()})
    return wanted


def _refuse_editable(install: Dict[str, Any]) -> None:
    """The package is somebody's checkout: it was not so when the deploy was made."""
    if install.get("editable"):
        raise HostFault(
            "editable_install",
            "the package is an editable install at %s now" % install["package_dir"],
            "install the release's wheel in that environment",
        )


def examine(state: State, install: Dict[str, Any], number: int) -> Wanted:
    """path -> sha256 that the disk must hold for generation `number`, None for no file.

    Raises:
        HostFault: the swap cannot be made: another version or an editable install is there now,
            a content is lost.
    """
    _refuse_editable(install)
    target = state.generation(number)
    if target["version"] != install["version"]:
        raise HostFault(
            "version_changed",
            "generation %d is of version %s, but %s is installed now"
            % (number, target["version"], install["version"]),
            "deploy a set for that version, or reinstall %s" % target["version"],
        )
    wanted = _wanted(state, target, contents_of)
    for path in packagefiles.differing(install["package_dir"], wanted):
        digest = wanted[path]
        if digest is not None:
            state.get(digest)
    for digest in _wanted(state, target, unitfiles.wanted).values():
        if digest is not None:
            state.get(digest)
    return wanted


def _wanted(
    state: State,
    target: Record,
    of: Callable[[Record, Record], Wanted],
) -> Wanted:
    """What `of` wants for `target` after all that may be on the disk now: the present generation,
    and those that a swap which was cut off had begun."""
    wanted = of(state.current() or target, target)
    for cut in _mixed(state.swap_under_way()):
        wanted = {**of(state.generation(cut), target), **wanted}
    return wanted


def differs(state: State, install: Dict[str, Any], number: int) -> bool:
    """Whether the disk is anything but generation `number`, a mixture included."""
    wanted = examine(state, install, number)
    if state.swap_under_way() is not None or packagefiles.differing(install["package_dir"], wanted):
        return True
    target = state.generation(number)
    return bool(unitfiles.differing(_wanted(state, target, unitfiles.wanted)))


def swap(state: State, install: Dict[str, Any], number: int, live: bool = False) -> Dict[str, Any]:
    """Make the disk generation `number`. Running it again after a cut finishes the job.

    With `live` the unit may run, as its own files alone change: the next start goes by them.

    Returns {changed: paths, verified: how many by hash, atomic: whether by exchange, starting:
    the pids that were importing still when the patience was over, and may have seen both}.

    Raises:
        UnitRunning: somebody started the unit; nothing was changed.
        HostFault: see `examine`; or the files are not what they should be now.
    """
    # What the state folder says is read alone too: another swap may just be ending.
    with exchange.alone(install["package_dir"], install["unit"]):
        return _swap(state, install, number, live)


def _swap(state: State, install: Dict[str, Any], number: int, live: bool) -> Dict[str, Any]:
    wanted = examine(state, install, number)
    package_dir = install["package_dir"]
    if live and (packagefiles.differing(package_dir, wanted) or state.swap_under_way()):
        raise HostFault(
            "changed_since_plan",
            "the package's files are not those of generation %d, and the unit may run" % number,
            "look at `opsctl verify` and run the command again",
        )
    unit_wanted = _wanted(state, state.generation(number), unitfiles.wanted)
    under_way = state.swap_under_way()
    current = state.current()
    if (
        current is not None
        and current["number"] == number
        and under_way is None
        and not packagefiles.differing(package_dir, wanted)
        and not unitfiles.differing(unit_wanted)
    ):
        # A full disk does not hinder this.
        return {"changed": [], "verified": len(wanted), "atomic": True, "starting": []}
    intent = {
        "from": current["number"] if current is not None else number,
        "to": number,
        # Cut off again, the files may be of all of these, not only of the last.
        "mixed": sorted({*_mixed(under_way), number}),
        "time": time.time(),
    }
    if not _told(under_way, current, number):
        write_atomically(state.path("swap"), json.dumps(intent).encode())
    starting: List[int] = []
    rest = functools.partial(importers.at_rest, install["python"], install["unit"], starting)
    changed: Optional[List[str]] = []
    atomic = True
    try:
        if not live:
            exchange.remove(exchange.beside(package_dir))  # of a swap that was cut off
            changed = _apply_at_once(state, package_dir, wanted, rest)
            atomic = changed is not None
        if changed is None:
            changed = packagefiles.apply(state, package_dir, wanted, rest)
        packagefiles.verify(package_dir, wanted)
    except importers.UnitRunning:
        if under_way is None:  # nothing has changed, and the files are no mixture
            os.unlink(state.path("swap"))
        raise
    changed += unitfiles.apply(state, install["unit"], unit_wanted)
    if current is None or current["number"] != number:
        state.set_current(number)
    with contextlib.suppress(FileNotFoundError):  # what was told before needs no marker of ours
        os.unlink(state.path("swap"))
    sync_folder(state.root)
    verified = len(wanted) + len(unit_wanted)
    return {"changed": changed, "verified": verified, "atomic": atomic, "starting": starting}


def _told(under_way: Optional[Record], current: Optional[Record], number: int) -> bool:
    """Whether the file of the swap that was cut off says all that a next cut would need.

    It does for the way back and for a second try, so a disk that is full since hinders neither.
    """
    if under_way is None:
        return False
    return number == under_way["to"] or (current is not None and number == current["number"])


def _apply_at_once(
    state: State, package_dir: str, wanted: Wanted, instant: Instant
) -> Optional[List[str]]:
    """What was changed, by exchanging the whole folder; None where that cannot be done."""
    if not packagefiles.differing(package_dir, wanted):
        # Old bytecode and empty folders only.
        return packagefiles.apply(state, package_dir, wanted)
    if not all(packagefiles.straight(package_dir, path) for path in wanted):
        return None
    tree = exchange.copy(package_dir)
    if tree is None:
        return None
    try:
        changed = packagefiles.apply(state, tree.path, wanted)
        packagefiles.verify(tree.path, wanted)
        if not tree.exchange(instant):
            return None
        tree.carry_over(wanted)
        return changed
    finally:
        tree.remove()


def _mixed(under_way: Optional[Record]) -> List[int]:
    """The generations whose files a swap that was cut off may have left on disk."""
    if under_way is None:
        return []
    return list(under_way.get("mixed") or [under_way["to"]])
