"""The steps about a full disk, and the condition that there is room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from opsctl.events import Event
from opsctl.playbook.spec import RoomArguments
from opsctl.rollout.run import Run, StepFailed
from opsctl.text import counted

# Where a start, or a rollout of ours, writes: {role: free bytes below which it is in danger}.
_WRITTEN: Final[Mapping[str, int]] = {
    "state": 256 << 20,
    "package": 256 << 20,
    "tmp": 256 << 20,
    "journal": 64 << 20,
    "shm": 64 << 20,
    "root": 256 << 20,
}


def space(run: Run) -> str:
    """Which file systems are full, and of what."""
    full = _full(_filesystems(run))
    if not full:
        return "there is room on every file system that the service writes to"
    paths = [str(place["path"]) for place in full.values()]
    found = run.session.remote.call("largest", paths=paths, timeout=60)
    for place in full.values():
        run.session.emit(Event("space", "warn", _place(place)))
    for text in _consumers(found):
        run.session.emit(Event("space", "info", text))
    return f"full: {', '.join(paths)}"


def make_room(run: Run) -> str:
    """Remove what is opsctl's and journald's to remove.

    Raises:
        StepFailed: that was not enough; what fills the disk is named, and is nobody's to guess at.
    """
    given = run.arguments
    assert isinstance(given, RoomArguments)
    run.touched = True
    done = run.session.call("make_room", journal=given.journal, keep=given.keep, timeout=240)
    full = _full(_filesystems(run))
    freed = f"{counted(len(done['generations']), 'old generation')}; journal: {done['journal']}"
    if not full:
        return freed
    paths = [str(place["path"]) for place in full.values()]
    found = run.session.remote.call("largest", paths=paths, timeout=60)
    raise StepFailed(
        "disk_full",
        f"{'; '.join(map(_place, full.values()))}, after this was removed: {freed}",
        remedy=f"remove what nobody needs: {'; '.join(_consumers(found)) or 'many small files'}; "
        f"then opsctl runbook run disk-full {run.session.host.name}",
        evidence=found,
    )


def enough(run: Run) -> bool:
    return not _full(_filesystems(run))


def _filesystems(run: Run) -> Mapping[str, Mapping[str, Any]]:
    found = run.session.call("machine")["filesystems"]
    return found or {}


def _full(places: Mapping[str, Mapping[str, Any]]) -> dict[Any, Mapping[str, Any]]:
    """Those with too little left, one of each device."""
    found: dict[Any, Mapping[str, Any]] = {}
    for role, place in places.items():
        least = _WRITTEN.get(role)
        if least is None or "free" not in place:
            continue
        least = min(least, place["size"] // 20)  # a small one may be all but empty
        if place["free"] < least or (place["inodes"] and not place["inodes_free"]):
            found.setdefault(place["device"], place)
    return found


def _place(place: Mapping[str, Any]) -> str:
    if place["inodes"] and not place["inodes_free"]:
        return f"{place['path']} has no inode left"
    return f"{place['path']} has {size(place['free'])} free of {size(place['size'])}"


def _consumers(found: Mapping[str, Any]) -> list[str]:
    return [*_files(found["files"]), *_deleted(found["deleted"])]


def _files(files: Iterable[Mapping[str, Any]]) -> list[str]:
    return [f"{size(file['bytes'])} {file['path']}" for file in files]


def _deleted(files: Iterable[Mapping[str, Any]]) -> list[str]:
    return [
        f"{size(file['bytes'])} {file['path']}, held open by pid {file['pid']} ({file['command']})"
        for file in files
    ]


def size(count: float) -> str:
    """`512 MB`, `1.5 GB`: powers of 1024, as df -h has them."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"
