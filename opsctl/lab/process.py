"""Processes of a lab, told apart from whatever has their number today."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from opsctl.lab.contain import cgroup_folders, remove_cgroup

_POLL = 0.05  # seconds


def boot_id() -> str:
    """The kernel's identifier of this boot of this machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


@dataclass(frozen=True, slots=True)
class Process:
    """A process for good: its number, its start in clock ticks since boot, and the boot."""

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The process that has the number `pid` now, or None when none runs."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces
        if fields[0] in {"Z", "X"}:
            return None
        return cls(pid, int(fields[19]), boot_id())

    def alive(self) -> bool:
        """Does this very process run, rather than another with its number?"""
        return Process.of(self.pid) == self

    def end(self, patience: float) -> bool:
        """SIGTERM, then up to `patience` seconds; True when it is gone."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
        return self.wait(patience)

    def wait(self, patience: float) -> bool:
        """True as soon as it is gone, False after `patience` seconds."""
        deadline = time.monotonic() + patience
        while self.alive():
            if time.monotonic() > deadline:
                return False
            # Where it is this program's own child, it stays a zombie until asked for.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, os.WNOHANG)
            time.sleep(_POLL)
        return True


def folders_of_cgroup(pid: int, name: str) -> tuple[str, ...]:
    """The cgroup folders of `pid` up to and including the one that begins with `name`."""
    folders = cgroup_folders(str(pid))
    parts = (part for folder in folders for part in (folder, *folder.parents))
    return tuple(str(part) for part in parts if part.name.removesuffix(".scope") == name)


def kill_cgroups(folders: tuple[str, ...], patience: float) -> bool:
    """SIGKILL everything in a lab's own cgroups and remove them; True when none is left."""
    deadline = time.monotonic() + patience
    while True:
        pids = {pid for folder in folders for pid in _pids(Path(folder))}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not pids or time.monotonic() > deadline:
            break
        time.sleep(_POLL)
    for folder in folders:
        remove_cgroup(Path(folder))
    return not pids


def _pids(folder: Path) -> list[int]:
    pids = []
    for path, _, _ in os.walk(folder):  # folders may vanish meanwhile, which os.walk tolerates
        with contextlib.suppress(OSError):
            listing = Path(path, "cgroup.procs").read_text(encoding="ascii")
            pids += [int(line) for line in listing.split()]
    return [pid for pid in pids if pid > 0]
