"""A full disk: what fills it, and the little that is opsctl's to remove."""

from __future__ import annotations

import heapq
import os
import time
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from . import probe, prune
from .errors import HostFault
from .state import State
from .tools import run

# So many of the largest are named, and none below this, bytes.
_MOST, _WORTH_NAMING = 10, 16 << 20


def largest(paths: Sequence[str], seconds: float = 8.0) -> Dict[str, Any]:
    """{files: [{path, bytes, modified}], deleted: [{path, bytes, pid, command}], complete}.

    The largest files of the file systems that `paths` are on, found within so many seconds
    (`complete` says whether that sufficed); and those that are deleted but held open, whose room
    comes back when their process ends. Bytes are those on the disk.
    """
    deadline = time.monotonic() + seconds
    found: List[Tuple[int, str, float]] = []
    devices = {os.stat(path).st_dev for path in paths if os.path.exists(path)}
    complete = True
    for root in _roots(paths):
        for size, path, modified in _files(root, devices):
            if size >= _WORTH_NAMING:
                heapq.heappush(found, (size, path, modified))
                if len(found) > _MOST:
                    heapq.heappop(found)
            if time.monotonic() > deadline:
                complete = False
                break
    files = [
        {"path": path, "bytes": size, "modified": modified}
        for size, path, modified in sorted(found, reverse=True)
    ]
    return {"files": files, "deleted": _deleted(devices), "complete": complete}


def _roots(paths: Sequence[str]) -> List[str]:
    """The mount points that `paths` lie below, each once."""
    roots = []
    for path in paths:
        folder = os.path.realpath(path)
        while not os.path.ismount(folder):
            folder = os.path.dirname(folder)
        if folder not in roots:
            roots.append(folder)
    return roots


def _files(root: str, devices: "set[int]") -> Iterator[Tuple[int, str, float]]:
    """Every regular file below `root` on one of these devices; a hardlink counts at each name."""
    folders = [root]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:
            continue
        for entry in entries:
            try:
                facts = entry.stat(follow_symlinks=False)
                if facts.st_dev not in devices:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    yield facts.st_blocks * 512, entry.path, facts.st_mtime
            except OSError:
                continue


def _deleted(devices: "set[int]") -> List[Dict[str, Any]]:
    found: Dict[Tuple[int, int], Dict[str, Any]] = {}
    for pid in probe.pids():
        folder = "/proc/%d/fd" % pid
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            try:
                facts = os.stat("%s/%s" % (folder, name))
                path = os.readlink("%s/%s" % (folder, name))
            except OSError:
                continue
            size = facts.st_blocks * 512
            if facts.st_nlink == 0 and facts.st_dev in devices and size >= _WORTH_NAMING:
                command = " ".join(probe.argv(pid))[:200]
                found.setdefault(
                    (facts.st_dev, facts.st_ino),
                    {"path": path, "bytes": size, "pid": pid, "command": command},
                )
    return sorted(found.values(), key=lambda each: -each["bytes"])[:_MOST]


def make_room(state: State, journal: str, keep: int) -> Dict[str, Any]:
    """Old generations' files and old journal files; {generations, objects, bytes, journal, fault}.

    `journal` is what journald keeps, as journalctl(1) reads it; `journal` of the result is its own
    word. Nothing else of the host is touched. Needs the lock. `fault` says why no generation was
    removed: a damaged record, which a full disk makes, and which names nobody knows what.
    """
    fault = ""
    try:
        removed = prune.prune(state, keep)
    except (HostFault, OSError) as error:
        fault = getattr(error, "message", "") or str(error)
        removed = {"generations": [], "objects": 0, "bytes": 0}
    said = "no journal on disk"
    try:
        run(["journalctl", "--rotate"], timeout=60)
        done = run(["journalctl", "--vacuum-size=" + journal], timeout=120)
        said = (done.stderr.strip().splitlines() or [""])[-1]
    except HostFault as error:
        said = error.message
    return dict(removed, journal=said, fault=fault)
