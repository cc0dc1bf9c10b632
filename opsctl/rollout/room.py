"""The steps about a full disk, and the condition that there is room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from opsctl.events import Event
from opsctl.playbook.spec import RoomArguments
from opsctl.rollout.run import Run, StepFailed
from opsctl.text import counted
from opsctl.triage.space import Place, gib, troubles

# What `make_room` can do something about, by the same measure as triage's.
_NO_ROOM: Final = frozenset({"full", "no_inodes"})


def space(run: Run) -> str:
    """Which file systems are full, and of what."""
    full = _full(run)
    if not full:
        return "there is room on every file system that the service writes to"
    for place in full.values():
        run.session.emit(Event("space", "warn", place.text))
    for text in _consumers(_largest(run, full)):
        run.session.emit(Event("space", "info", text))
    return f"full: {', '.join(full)}"


def make_room(run: Run) -> str:
    """Remove what is opsctl's and journald's to remove.

    Raises:
        StepFailed: that was not enough; what fills the disk is named, and is nobody's to guess at.
    """
    given = run.arguments
    assert isinstance(given, RoomArguments)
    done = run.session.call("make_room", journal=given.journal, keep=given.keep, timeout=240)
    run.touched = True
    if done.get("fault"):
        run.session.emit(Event("make_room", "warn", f"no generation was removed: {done['fault']}"))
    freed = f"{counted(len(done['generations']), 'old generation')}; journal: {done['journal']}"
    full = _full(run)
    if not full:
        return freed
    found = _largest(run, full)
    told = "; ".join(place.text for place in full.values())
    raise StepFailed(
        "disk_full",
        f"{told}, after this was removed: {freed}",
        remedy=f"remove what nobody needs: {'; '.join(_consumers(found)) or 'many small files'}; "
        f"then opsctl runbook run disk-full {run.session.host.name}",
        evidence=found,
    )


def enough(run: Run) -> bool:
    """Whether no file system that the service writes to is full."""
    return not _full(run)


def _full(run: Run) -> dict[str, Place]:
    """By a path that lies on it."""
    found = run.session.call("machine")["filesystems"] or {}
    places = [place for place in troubles(found) if place.trouble in _NO_ROOM]
    return {str(found[place.roles[0]]["path"]): place for place in places}


def _largest(run: Run, full: Iterable[str]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = run.session.remote.call("largest", paths=list(full), timeout=60)
    return found


def _consumers(found: Mapping[str, Any]) -> list[str]:
    files = [f"{gib(file['bytes'])} {file['path']}" for file in found["files"]]
    return files + [
        f"{gib(file['bytes'])} {file['path']}, held open by pid {file['pid']} ({file['command']})"
        for file in found["deleted"]
    ]
