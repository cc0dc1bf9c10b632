"""Server processes that no unit accounts for: they hold the port or GPU memory of the next start.

They are left over from a kill that missed them, or were started by hand. What is one is decided
narrowly, since the remedy is to end it: it must be of this service's environment, and outside of
every unit that runs. Whoever else is in the way is named, and left.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import signal
import time
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

from . import bounded, machine, probe
from . import unit as units
from .arguments import redacted

# Seconds: what SIGTERM and then SIGKILL are given. SGLang drains its requests after the first,
# without a bound of its own.
PATIENCE, LAST_PATIENCE = 10.0, 5.0
_GPU_BOUND = 3.0

_SHELLS = frozenset(
    "bash sh dash zsh fish ksh csh tcsh login sshd su sudo tmux screen systemd init".split()
)
# SGLang's children call themselves so (setproctitle), which wipes their arguments.
_TITLE = "sglang::"
# Whoever logged in there starts things by hand; without pam_systemd they stay in sshd's own unit.
_LOGINS = re.compile(r"(session-|user@|init\.scope|sshd?[@.]|(serial-|console-)?getty[@.])")
# What systemd says of a unit with processes that are its business.
_RUNS = ("active", "activating", "reloading", "deactivating", "refreshing", "maintenance")

Facts = Dict[str, Any]
Process = Dict[str, Any]


def find_orphans(site: Facts, bound: float = _GPU_BOUND) -> Facts:
    """{orphans, missing}: who holds what is the service's, though not of its unit.

    An orphan is {pid, start: clock ticks since boot, started: Unix seconds, user, argv, cgroup,
    gpu_memory_mib, port, why: what makes it one, left: why `end_orphans` will not touch it, "" if
    it will}. `left` is set for what is in the way without being this service's, too. `missing`
    has {part: why} of what could not be looked at, nvidia-smi within `bound` seconds.

    Raises:
        HostFault: systemd does not answer.
    """
    state = units.show(site["unit"])
    down = state.get("ActiveState") in ("inactive", "failed")
    gpu, missing = _gpu_memory(site["unit"], bound)
    holders = set(probe.port_holders(site["listen"], site["port"]))
    ours = _ourselves()
    found = []
    for pid in probe.pids():
        if pid in ours:
            continue
        process = _process(pid, site, gpu, pid in holders)
        why = _why(process, site, down) if process else []
        if process and why:
            found.append(dict(process, why=why))
    for process in found:
        process["left"] = _left(process, site)
        process["argv"] = redacted(process["argv"])
        del process["kin"]
    return {"orphans": found, "missing": missing}


def end_orphans(
    site: Facts,
    orphans: Iterable[Process],
    patience: float = PATIENCE,
    last_patience: float = LAST_PATIENCE,
) -> Facts:
    """End those of `orphans`, as `find_orphans` has them, that are so still.

    {ended: [{pid, by: "SIGTERM" or "SIGKILL", seconds}], gone: [pids that had ended before],
    left: [{pid, why}], remaining: [{pid, why}] that outlived SIGKILL}. Each is known by pid and
    start time; each is held by a pidfd where Python has them (3.9), so that no other process of
    that number can be hit.
    """
    now = {process["pid"]: process for process in find_orphans(site)["orphans"]}
    done: Facts = {"ended": [], "gone": [], "left": [], "remaining": []}
    targets = []
    with contextlib.ExitStack() as stack:
        for given in orphans:
            target = _Target(int(given["pid"]), int(given["start"]))
            stack.callback(target.close)
            found = now.get(target.pid)
            if target.gone:
                done["gone"].append(target.pid)
            elif found is None:
                done["left"].append({"pid": target.pid, "why": "it is no orphan any more"})
            elif found["left"]:
                done["left"].append({"pid": target.pid, "why": found["left"]})
            else:
                targets.append(target)
        done["ended"] += _ended(targets, signal.SIGTERM, patience)
        still = [target for target in targets if not target.gone]
        done["ended"] += _ended(still, signal.SIGKILL, last_patience)
        done["remaining"] += [{"pid": t.pid, "why": t.stuck()} for t in still if not t.gone]
    return done


def _ended(targets: "List[_Target]", number: signal.Signals, seconds: float) -> List[Facts]:
    """Those that the signal ends within so many seconds."""
    began = time.monotonic()
    for target in targets:
        target.send(number)
    found: List[Facts] = []
    still = targets
    while still and time.monotonic() - began < seconds:
        time.sleep(0.05)
        took = round(time.monotonic() - began, 2)
        found += [{"pid": t.pid, "by": number.name, "seconds": took} for t in still if t.gone]
        still = [target for target in still if not target.gone]
    return found


def described(done: Facts) -> str:
    """What `end_orphans` did, for the log."""
    parts = ["%d by %s" % (each["pid"], each["by"]) for each in done["ended"]]
    parts += ["%d gone" % pid for pid in done["gone"]]
    parts += ["%d left" % each["pid"] for each in done["left"] + done["remaining"]]
    return ", ".join(parts) or "nothing to end"


class _Target:
    """One process for good: not another that got its number later."""

    def __init__(self, pid: int, start: int) -> None:
        self.pid, self._start, self._descriptor = pid, start, -1
        # First the descriptor, then the look at whose it is.
        opened = getattr(os, "pidfd_open", None)  # Python 3.9, Linux 5.3
        if opened is not None:
            with contextlib.suppress(OSError):
                self._descriptor = opened(pid)

    @property
    def gone(self) -> bool:
        """A zombie holds nothing any more, unless a thread of it is stuck in the kernel."""
        if probe.started(self.pid) != self._start:
            return True
        return probe.state(self.pid) == "Z" and len(probe.threads(self.pid)) < 2

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._descriptor >= 0:
                getattr(signal, "pidfd_send_signal")(self._descriptor, number)  # noqa: B009
            elif not self.gone:
                os.kill(self.pid, number)

    def stuck(self) -> str:
        states = {probe.state(self.pid), *map(probe.state, probe.threads(self.pid))}
        if "D" in states:
            return "it is stuck in the kernel (state D): only its I/O or a reboot ends it"
        return "it outlived SIGKILL (state %s)" % probe.state(self.pid)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _gpu_memory(unit: str, bound: float) -> Tuple[Dict[int, int], Dict[str, str]]:
    """MiB by pid, over all GPUs; and why that is not known."""
    looks = {"gpu_processes": lambda: machine.gpu_processes(unit, bound)}
    found, missing = bounded.gather(looks, bound + 0.2)
    memory: Dict[int, int] = {}
    for process in found.get("gpu_processes", ()):
        memory[process["pid"]] = memory.get(process["pid"], 0) + (process["memory_mib"] or 0)
    return memory, missing


def _ourselves() -> Set[int]:
    """This program and all above it: sshd, sudo, a shell."""
    found: Set[int] = set()
    pid: Optional[int] = os.getpid()
    while pid and pid not in found:
        found.add(pid)
        pid = probe.parent(pid)
    return found


def _process(pid: int, site: Facts, gpu: Dict[int, int], holds_port: bool) -> Optional[Process]:
    start, words = probe.started(pid), probe.argv(pid)
    if start is None or not words or probe.state(pid) == "Z":  # gone, of the kernel, or ended
        return None
    age = probe.age(pid) or 0.0
    return {
        "pid": pid,
        "start": start,
        "started": time.time() - age,
        "user": _user(pid),
        "argv": words,
        "cgroup": _cgroup(pid),
        "gpu_memory_mib": gpu.get(pid),
        "port": site["port"] if holds_port else None,
        "kin": _is_kin(pid, words, site),
    }


def _why(process: Process, site: Facts, down: bool) -> List[str]:
    """What makes it an orphan; nothing for others."""
    inside = probe.in_unit(process["pid"], site["unit"])
    if inside and not down:
        return []
    found = []
    if process["kin"]:
        found.append("it outlived the unit" if inside else "it runs outside the unit")
    if process["gpu_memory_mib"] is not None and (down or process["kin"]):
        found.append("it holds %d MiB of GPU memory" % process["gpu_memory_mib"])
    if process["port"] is not None:
        found.append("it holds port %d" % process["port"])
    return found


def _left(process: Process, site: Facts) -> str:
    """Why nobody but its owner should end it; "" for one that is ours to end."""
    pid, words = process["pid"], process["argv"]
    if probe.in_unit(pid, site["unit"]):
        return "it is in the unit's own cgroup: systemctl kill -s SIGKILL %s" % site["unit"]
    if _link(pid, "ns/pid") != _link(os.getpid(), "ns/pid"):
        return "it belongs to a container"
    unit = _unit_of(process["cgroup"])
    if unit and _runs(unit):
        return "it belongs to %s, which runs" % unit
    if words[0].startswith("-") or os.path.basename(words[0]) in _SHELLS:
        return "it is a shell or a login of %s" % process["user"]
    if not process["kin"]:
        return "it is no process of this service's environment"
    return ""


def _is_kin(pid: int, words: List[str], site: Facts) -> bool:
    """Whether it is a server of this environment, or a part of one."""
    prefix = os.path.dirname(os.path.dirname(site["python"]))
    if words[0].startswith(_TITLE):
        return _maps(pid, prefix)
    python = os.path.basename(_link(pid, "exe") or "").startswith("python")
    if not python or not (words[0].startswith(prefix + os.sep) or _maps(pid, prefix)):
        return False
    if _runs_package(words, site["package"]):
        return True
    # A child of multiprocessing's that has no title yet, and whose parent is gone.
    return "--multiprocessing-fork" in words and probe.parent(pid) == 1


def _runs_package(words: List[str], package: str) -> bool:
    """`-m sglang.launch_server`, the script `sglang`, or a file of the package's."""
    module = re.compile(re.escape(package) + r"(\.[\w.]+)?\Z")
    if "-m" in words[:-1] and module.match(words[words.index("-m") + 1]):
        return True
    script = next((word for word in words[1:] if not word.startswith("-")), "")
    return os.path.basename(script) == package or "/%s/" % package in script


def _maps(pid: int, prefix: str) -> bool:
    """Whether it has libraries of the environment in memory: a virtual environment's Python is a
    link to one that others share."""
    start = os.path.realpath(prefix) + "/lib"
    lines = probe.text("/proc/%d/maps" % pid).splitlines()
    return any(line.split(None, 5)[-1].startswith(start) for line in lines)


def _cgroup(pid: int) -> str:
    """Of systemd's hierarchy: `0::/…` of cgroup v2, or v1's named one."""
    lines = probe.text("/proc/%d/cgroup" % pid).splitlines()
    named = [line.split(":", 2)[-1] for line in lines if line.startswith("0::") or "name=" in line]
    return named[-1] if named else ""


def _unit_of(cgroup: str) -> str:
    """The service or the container's scope that it is in; "" in a login session or in none."""
    parts = [part for part in cgroup.split("/") if part.endswith((".service", ".scope"))]
    if not parts or _LOGINS.match(parts[-1]):
        return ""
    if "user.slice" in cgroup and parts[-1].endswith(".scope"):
        return ""  # a terminal's or a multiplexer's
    return parts[-1]


def _runs(unit: str) -> bool:
    """A user's own unit is nobody's that this systemd knows, and so is what cannot be asked."""
    argv = ["systemctl", "show", "--property=LoadState,ActiveState", "--", unit]
    with contextlib.suppress(Exception):
        said = bounded.output(argv, 2.0)
        if "LoadState=loaded" in said:
            return any("ActiveState=" + state in said.split() for state in _RUNS)
    return True


def _user(pid: int) -> str:
    try:
        uid = os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return ""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _link(pid: int, name: str) -> Optional[str]:
    try:
        return os.readlink("/proc/%d/%s" % (pid, name))
    except OSError:
        return None
