"""Who holds a service's lock by the kernel's account, and how they are ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any, List, Optional, Set

from .state import State, lock_holder


def end_holder(state: State, token: Optional[str], patience: float = 5.0) -> None:
    """Kill the program that holds the lock with this token, and see the lock free.

    None is for a holder whose record has no token: an old opsctl's, or a damaged one. Nobody is
    killed who does not hold the lock now: the record may be of a process that is gone, and its
    pid another's. `patience` is in seconds.
    """
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        holder = lock_holder(state)
        if holder is None or holder.get("token") != token or holder.get("pid") == os.getpid():
            return
        for pid in _pids(state.path("lock"), holder.get("pid")):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _pids(path: str, recorded: Any) -> List[int]:
    """The recorded process if it holds the lock at `path`; without a record, those that do."""
    candidates: Set[int] = {int(name) for name in os.listdir("/proc") if name.isdigit()}
    if isinstance(recorded, int):
        candidates &= {recorded}
    return sorted(pid for pid in candidates - {os.getpid()} if _holds(pid, path))


def _holds(pid: int, path: str) -> bool:
    """Whether the process has the file at `path` open with an exclusive flock(2) on it."""
    folder = "/proc/%d" % pid
    try:
        lock = os.stat(path)
        for name in os.listdir(folder + "/fd"):
            with contextlib.suppress(OSError):  # closed since
                if os.path.samestat(os.stat("%s/fd/%s" % (folder, name)), lock):
                    with open("%s/fdinfo/%s" % (folder, name)) as f:
                        if any(_is_exclusive(line) for line in f):
                            return True
    except OSError:  # ended since, or the file is gone
        pass
    return False


def _is_exclusive(line: str) -> bool:
    """Of proc(5)'s fdinfo: `lock: 1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF`."""
    words = line.split()
    return words[:1] == ["lock:"] and "FLOCK" in words and "WRITE" in words
