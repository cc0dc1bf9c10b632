"""Who may be importing the package just now: the young processes of its environment's Python.

A process that is in the middle of its imports while the files change can see both versions,
however short the change is. opsctl has stopped the service, but a cron job, a timer or a person
may start that Python at any moment. So a swap waits for an instant at which nobody is at it. A
Python that starts after the look needs some ten milliseconds before it imports anything, and the
change takes about one; the two are done at real-time priority, or a busy machine would come between
them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from typing import Callable, Dict, Iterator, List, Optional

from . import probe
from .errors import HostFault
from .guard import PROGRAM

# Seconds. SGLang itself has imported what it needs to start within the first; a server that runs
# for hours is not starting. The second is what the service may stay down for somebody else's job.
YOUNG = 120.0
PATIENCE = 20.0
_LOOK_EVERY = 0.005


class UnitRunning(HostFault):
    """The service runs that a swap needs stopped."""

    def __init__(self, unit: str) -> None:
        super().__init__("unit_running", "%s runs: a swap needs it stopped" % unit, "stop it")


def starting(python: str, young: float = YOUNG) -> List[int]:
    """The pids of the processes that the environment of `python` started within `young` seconds.

    Not opsctl's own, where the service runs in the system's Python.
    """
    folder, binary = os.path.realpath(os.path.dirname(python)), os.path.realpath(python)
    own = probe.argv(os.getpid())
    found = []
    for pid in probe.pids():
        if _link(pid, "exe") != binary:
            continue
        words, age = probe.argv(pid), probe.age(pid)
        if age is None or age > young or words == own or _is_guard(words):
            continue
        if _environment(pid, words) in (folder, None):
            found.append(pid)
    return found


def _is_guard(words: List[str]) -> bool:
    return any(os.path.basename(word) == PROGRAM for word in words[1:3])


@contextlib.contextmanager
def at_rest(
    python: str,
    unit: str,
    still: List[int],
    patience: float = PATIENCE,
    *,
    look: Callable[[str], List[int]] = starting,
) -> Iterator[None]:
    """An instant at which nothing of `python` is starting, for a change of about a millisecond.

    After `patience` seconds it is entered all the same, and `still` holds who is starting.

    Raises:
        UnitRunning: somebody started `unit` itself: it would go on for hours with what it has
            imported.
    """
    deadline = time.monotonic() + patience
    with _ahead_of_others():
        while True:
            still[:] = look(python)
            if any(probe.in_unit(pid, unit) for pid in still):
                raise UnitRunning(unit)
            if not still or time.monotonic() > deadline:
                break
            time.sleep(_LOOK_EVERY)
        yield


@contextlib.contextmanager
def _ahead_of_others() -> Iterator[None]:
    """At sched(7)'s lowest real-time priority, where that is allowed."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:  # not in every container; then it is only a little less sure
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def _environment(pid: int, words: List[str]) -> Optional[str]:
    """The folder of the Python that `pid` was started as; None where that cannot be told.

    A virtual environment's Python is a link: the executable is the same for all of them, and
    the name it was called by tells them apart, as it does for Python itself.
    """
    if not words:
        return None
    name = words[0]
    if "/" not in name:
        path = _variables(pid).get("PATH")
        found = shutil.which(name, path=path) if path else None
        if found is None:
            return None
        name = found
    folder = os.path.dirname(os.path.join(_link(pid, "cwd") or "/", name))
    return os.path.realpath(folder)


def _variables(pid: int) -> Dict[str, str]:
    entries = probe.text("/proc/%d/environ" % pid).split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def _link(pid: int, name: str) -> Optional[str]:
    try:
        return os.readlink("/proc/%d/%s" % (pid, name))
    except OSError:
        return None
