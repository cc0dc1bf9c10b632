"""What the machine looks like: disk, the port, left-over processes, GPU memory held."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import sys
import time
from typing import Any, Dict, Iterator, List, Optional

from . import bounded
from .errors import HostFault
from .tools import run

_LISTEN = "0A"
# Seconds; 8 GPUs without persistence mode take some.
_GPU_BOUND = 10.0


def machine() -> Dict[str, Any]:
    """The host's name, clock (Unix seconds), Python, systemd and boot."""
    version = run(["systemctl", "--version"]).stdout.split()
    return {
        "hostname": platform.node(),
        "time": time.time(),
        "python": "%d.%d.%d" % sys.version_info[:3],
        "uid": os.geteuid(),
        "systemd": version[1] if len(version) > 1 else None,
        "boot_id": boot_id(),
    }


def boot_id() -> str:
    """The kernel's name for the time since the last boot."""
    return text("/proc/sys/kernel/random/boot_id").strip()


def disk_free(path: str) -> Dict[str, Any]:
    """Free bytes for the nearest existing folder at or above `path`, and whether it is writable."""
    folder = path
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder) or "/"
    return {
        "path": path,
        "free": shutil.disk_usage(folder).free,
        "writable": os.access(folder, os.W_OK),
    }


def listener(address: str, port: int, cgroup: str) -> Optional[Dict[str, Any]]:
    """Who listens on `port` at `address` or at every address; None when nobody does.

    `own` tells whether that process belongs to `cgroup`, the unit's. A process outside this
    container's PID namespace has no pid here.
    """
    inodes = _listening_inodes(address, port)
    if not inodes:
        return None
    for pid in _holders(inodes[:1]):
        return {"pid": pid, "command": _command(pid), "own": _within(pid, cgroup)}
    return {"pid": None, "command": None, "own": False}


def port_holders(address: str, port: int) -> List[int]:
    """Every process that has a socket which listens there: children have inherited it."""
    return list(_holders(_listening_inodes(address, port)))


def _holders(inodes: List[str]) -> Iterator[int]:
    targets = {"socket:[%s]" % inode for inode in inodes}
    for pid in pids():
        try:
            fds = os.listdir("/proc/%d/fd" % pid)
        except OSError:
            continue
        for fd in fds:
            try:
                if os.readlink("/proc/%d/fd/%s" % (pid, fd)) in targets:
                    yield pid
                    break
            except OSError:
                continue


def own_addresses(port: int, cgroup: str) -> List[str]:
    """The addresses (IPv4) at which processes of `cgroup` listen on `port`."""
    owned = set()
    for pid in pids():
        if not _within(pid, cgroup):
            continue
        try:
            for fd in os.listdir("/proc/%d/fd" % pid):
                owned.add(os.readlink("/proc/%d/fd/%s" % (pid, fd)))
        except OSError:
            continue
    found = []
    for line in text("/proc/net/tcp").splitlines()[1:]:
        fields = line.split()
        host, _, number = fields[1].rpartition(":")
        inode = "socket:[%s]" % fields[9]
        if fields[3] == _LISTEN and int(number, 16) == port and inode in owned:
            raw = int(host, 16).to_bytes(4, sys.byteorder)
            found.append(socket.inet_ntop(socket.AF_INET, raw))
    return sorted(found)


def _listening_inodes(address: str, port: int) -> List[str]:
    wanted = {"00000000", "0" * 32}
    if address not in ("0.0.0.0", "::", ""):  # noqa: S104 - read, not bound
        wanted.add(_proc_address(address))
    else:
        wanted = set()  # binding every address collides with a listener at any one
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in text(table).splitlines()[1:]:
            fields = line.split()
            host, _, number = fields[1].rpartition(":")
            if fields[3] == _LISTEN and int(number, 16) == port and (not wanted or host in wanted):
                found.append(fields[9])
    return found


def _proc_address(address: str) -> str:
    """An address as /proc/net/tcp prints it: each 32-bit word in the machine's byte order."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    raw = socket.inet_pton(family, socket.gethostbyname(address) if family == 2 else address)
    words = [raw[i : i + 4] for i in range(0, len(raw), 4)]
    return "".join("%08X" % int.from_bytes(word, sys.byteorder) for word in words)


def strays(python: str, cgroup: str) -> List[Dict[str, Any]]:
    """Server processes that no unit accounts for: left over from a kill, or run by hand. They can
    hold the port and GPU memory. A second SGLang service of the host is not one."""
    prefix = os.path.dirname(python) + os.sep
    found = []
    for pid in pids():
        words = argv(pid)
        if not words or _within(pid, cgroup) or in_a_service(pid):
            continue
        launched = words[0].startswith(prefix) and any("sglang" in w for w in words[1:])
        # SGLang's children rename themselves, which wipes their arguments.
        if launched or words[0].startswith("sglang::"):
            found.append({"pid": pid, "command": _command(pid)})
    return found


def gpu_processes(cgroup: str) -> Optional[List[Dict[str, Any]]]:
    """Processes that hold GPU memory, in MiB; None where nvidia-smi is not there, fails, or gives
    no answer: beside a GPU that is lost it hangs, and a rollback must not hang with it."""
    query = "--query-compute-apps=pid,process_name,used_memory"
    argv = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        said = bounded.output(argv, _GPU_BOUND)
    except HostFault:
        return None
    found = []
    for line in said.splitlines():
        fields = [f.strip() for f in line.split(",")]
        if len(fields) >= 3 and fields[0].isdigit():
            memory = re.sub(r"\D", "", fields[-1])
            found.append(
                {
                    "pid": int(fields[0]),
                    "command": fields[1],
                    "memory_mib": int(memory) if memory else None,
                    "own": _within(int(fields[0]), cgroup),
                }
            )
    return found


def read_bytes_of(cgroup: str) -> int:
    """Bytes that the processes of `cgroup` have had read from disk so far, page faults of
    mapped weights included (read_bytes of proc_pid_io(5))."""
    total = 0
    for pid in members(cgroup):
        match = re.search(r"^read_bytes: (\d+)", text("/proc/%d/io" % pid), re.M)
        total += int(match.group(1)) if match else 0
    return total


def members(cgroup: str) -> List[int]:
    """The processes of `cgroup` and below; none of no cgroup."""
    return [pid for pid in pids() if _within(pid, cgroup)]


def pids() -> List[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def argv(pid: int) -> List[str]:
    return [word for word in text("/proc/%d/cmdline" % pid).split("\0") if word]


def started(pid: int) -> Optional[int]:
    """When `pid` began, in clock ticks since boot, which with its number names a process for
    good; None when it is gone (proc_pid_stat(5))."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) >= 20 else None


def parent(pid: int) -> Optional[int]:
    fields = _stat(pid)
    return int(fields[1]) if len(fields) > 1 else None


def state(pid: int) -> str:
    """R, S, D (in the kernel), T, Z (ended) and so on; "" when it is gone."""
    return "".join(_stat(pid)[:1])


def threads(pid: int) -> List[int]:
    try:
        return [int(name) for name in os.listdir("/proc/%d/task" % pid)]
    except OSError:
        return []


def _stat(pid: int) -> List[str]:
    """From the third field on: state, ppid, …; the second may hold anything."""
    return text("/proc/%d/stat" % pid).rpartition(")")[2].split()


def age(pid: int) -> Optional[float]:
    """Seconds since `pid` was started, to a hundredth; None when it is gone."""
    ticks = started(pid)
    if ticks is None:
        return None
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _command(pid: int) -> str:
    return " ".join(argv(pid))[:200]


def in_a_service(pid: int) -> bool:
    """Whether systemd runs it as (part of) a system service; a login session's does not count."""
    parts = [
        part for line in text("/proc/%d/cgroup" % pid).splitlines() for part in line.split("/")
    ]
    return any(part.endswith(".service") for part in parts) and "user.slice" not in parts


def in_unit(pid: int, unit: str) -> bool:
    """Whether `pid` is a process of the system's unit of that name."""
    lines = text("/proc/%d/cgroup" % pid).splitlines()
    return any(unit in line.split("/") for line in lines)


def _within(pid: int, cgroup: str) -> bool:
    """Whether `pid` is in `cgroup` or below, in any hierarchy (v1, v2 and hybrid)."""
    if not cgroup:
        return False
    for line in text("/proc/%d/cgroup" % pid).splitlines():
        path = line.split(":", 2)[-1]
        if path == cgroup or path.startswith(cgroup + "/"):
            return True
    return False
