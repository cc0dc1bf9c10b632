"""The machine at three in the morning: boot, memory, file systems, kernel messages, GPUs.

Every look has a bound, and one that cannot be had is named as missing: a hung nvidia-smi or a
dead mount is a finding itself, and must not keep the others back.
"""

from __future__ import annotations

import glob
import json
import os
import re
import stat
import sys
import time
from typing import Any, Dict, List, Optional

from . import bounded, probe
from .errors import HostFault

# Seconds: nvidia-smi takes two for 8 GPUs without persistence mode, the others a tenth at most.
BOUND = 3.0
# How far back kernel messages are looked for, seconds, and how many are shown.
DAY = 86400.0
_LINES = 200
CGROUPS = "/sys/fs/cgroup"

# What the kernel says when a machine is at fault: NVIDIA's driver, mm/oom_kill.c, the block layer
# and file systems, NFS, machine checks and PCI errors, and a crash of native code.
TELLING = (
    r"NVRM:|nvidia-nvswitch|Out of memory|out of memory|oom-kill|oom_reaper|I/O error|"
    r"EXT4-fs (error|warning)|XFS \(.*\): .*(error|shut|Corruption)|BTRFS (error|critical)|"
    r"[Rr]emounting filesystem read-only|No space left|not responding|blocked for more than|"
    r"Hardware Error|mce:|AER: |segfault at|general protection|Kernel panic|soft lockup|"
    r"temperature above threshold|nvme.*(timeout|reset|abort)"
)
_GPU_FIELDS = (
    "index",
    "uuid",
    "name",
    "memory.total",
    "memory.used",
    "utilization.gpu",
    "temperature.gpu",
    "ecc.errors.uncorrected.volatile.total",
)
# Not in a path's way: each is looked at by a thread of its own in a process that can be left.
_LOOK = """
import json, os, sys, threading
WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth")
def look(role, path, weights):
    found = {"role": role, "path": path}
    try:
        there = path
        found["exists"] = os.path.exists(path)
        while not os.path.exists(there):
            there = os.path.dirname(there) or "/"
        facts = os.statvfs(there)
        found.update(device=os.stat(there).st_dev, size=facts.f_frsize * facts.f_blocks,
            free=facts.f_frsize * facts.f_bavail, inodes=facts.f_files,
            inodes_free=facts.f_favail, read_only=bool(facts.f_flag & os.ST_RDONLY))
        if weights and os.path.isdir(path):
            files = [e for e in os.scandir(path) if e.name.endswith(WEIGHTS)]
            found["weights"] = {"files": len(files), "bytes": sum(e.stat().st_size for e in files),
                "config": os.path.exists(os.path.join(path, "config.json"))}
    except OSError as error:
        found["fault"] = error.strerror or str(error)
    with lock:
        sys.stdout.write(json.dumps(found) + "\\n")
        sys.stdout.flush()
lock = threading.Lock()
threads = [threading.Thread(target=look, args=each) for each in json.load(sys.stdin)]
for t in threads: t.start()
for t in threads: t.join()
"""

Facts = Dict[str, Any]


def facts(
    site: Facts,
    weights: Optional[Dict[str, str]] = None,
    since: Optional[float] = None,
    bound: float = BOUND,
) -> Facts:
    """Everything of the machine that a service can fail for, in one round trip.

    `weights` are folders of models, {role: path}; `since` (Unix seconds by this host's clock, a
    day ago by default) is how far back kernel messages go; `bound` is seconds for the whole.
    Sizes are bytes but for GPU memory, which is MiB:

    {time, boot: {id, booted, uptime_s}, load: [1, 5, 15 min], cpus,
    memory: {total, available, swap_total, swap_free}, unit_memory: {current, max, oom_kills} of the
    unit's cgroup, None where it has none,
    filesystems: {role: {path, exists, device, mount, type, size, free, inodes, inodes_free,
    read_only, weights: {files, bytes, config}} or {path, fault}},
    kernel: {source, since, lines: [{time, text}]},
    gpus: [{index, uuid, name, memory_total_mib, memory_used_mib, utilization, temperature, ecc}],
    gpu_processes: [{pid, gpu, command, memory_mib, own}], gpu_devices: how many device files,
    changed: {path: Unix seconds} of the unit's files and of the packages' log,
    missing: {part: why}}. What is missing is None.
    """
    began = time.time()
    left = max(0.1, bound - 0.2)
    found, missing = bounded.gather(
        {
            "boot": boot,
            "memory": memory,
            "unit_memory": lambda: unit_memory(site["unit"]),
            "filesystems": lambda: filesystems(_places(site, weights or {}), left),
            "kernel": lambda: kernel(began - DAY if since is None else since, left),
            "gpus": lambda: gpus(left),
            "gpu_processes": lambda: gpu_processes(site["unit"], left),
        },
        bound,
    )
    parts = ("boot", "memory", "unit_memory", "filesystems", "kernel", "gpus", "gpu_processes")
    whole: Facts = {part: found.get(part) for part in parts}
    for place in (found.get("filesystems") or {}).values():
        if place.get("fault"):
            missing["filesystem " + place["path"]] = place["fault"]
    return dict(
        whole,
        time=began,
        load=list(os.getloadavg()),
        cpus=os.cpu_count(),
        changed=changed(site["unit"]),
        gpu_devices=len(glob.glob("/dev/nvidia[0-9]*")),
        missing=missing,
    )


def changed(unit: str) -> Dict[str, float]:
    """When the unit's own files and the system's packages were last written."""
    paths = ["/var/log/dpkg.log", "/var/log/dnf.rpm.log"]
    for folder in ("/etc/systemd/system", "/run/systemd/system", "/lib/systemd/system"):
        paths += [os.path.join(folder, unit), *glob.glob(folder + "/%s.d/*" % glob.escape(unit))]
    found = {}
    for path in paths:
        try:
            found[path] = os.stat(path).st_mtime
        except OSError:
            continue
    return found


def boot() -> Facts:
    """By the age of PID 1, which is a container's own where this is one."""
    age = probe.age(1) or 0.0
    return {"id": probe.boot_id(), "booted": time.time() - age, "uptime_s": age}


def memory() -> Facts:
    """From proc_meminfo(5), bytes."""
    kib = dict(re.findall(r"^(\w+):\s+(\d+) kB", probe.text("/proc/meminfo"), re.M))
    names = ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree")
    total, available, swap, swap_free = (int(kib.get(name, 0)) << 10 for name in names)
    return {"total": total, "available": available, "swap_total": swap, "swap_free": swap_free}


def unit_memory(unit: str) -> Optional[Facts]:
    """The unit's own bound and how often the kernel killed there (cgroup v2, memory.events);
    None without that."""
    folders = glob.glob(CGROUPS + "/*.slice/" + glob.escape(unit))
    if not folders:
        return None
    most = probe.text(os.path.join(folders[0], "memory.max")).strip()
    current = probe.text(os.path.join(folders[0], "memory.current")).strip()
    kills = re.search(r"^oom_kill (\d+)", probe.text(folders[0] + "/memory.events"), re.M)
    return {
        "current": int(current) if current.isdigit() else None,
        "max": int(most) if most.isdigit() else None,
        "oom_kills": int(kills.group(1)) if kills else None,
    }


def _places(site: Facts, weights: Dict[str, str]) -> List[List[Any]]:
    """The file systems that the service can fail for, as [role, path, whether weights are there].

    The package's is its environment's: to ask its Python would take longer than all of this.
    """
    persistent = "/var/log/journal"
    places = {
        "state": os.path.join(site["state_dir"], site["service"]),
        "package": os.path.dirname(os.path.dirname(site["python"])),
        "tmp": "/tmp",  # noqa: S108 - looked at
        "journal": persistent if os.path.isdir(persistent) else "/run/log/journal",
        "shm": "/dev/shm",  # noqa: S108 - looked at
        "root": "/",
        "home": os.path.expanduser("~"),
    }
    found: List[List[Any]] = [[role, path, False] for role, path in places.items()]
    return found + [[role, path, True] for role, path in weights.items()]


def filesystems(places: List[List[Any]], seconds: float) -> Facts:
    """Size, free space and inodes where each place is, by its role; see `facts`."""
    argv = [sys.executable, "-I", "-S", "-c", _LOOK]
    said = bounded.lines(argv, seconds, json.dumps(places))
    mounts = _mounts()
    found: Facts = {
        role: {
            "path": path,
            "fault": "%s (%s) gave no answer within %.1f s" % (path, _mount(mounts, path), seconds),
        }
        for role, path, _ in places
    }
    for line in said:
        if line.endswith("}"):
            place = json.loads(line)
            place["mount"], place["type"], place["source"] = _at(mounts, place["path"])
            found[place.pop("role")] = place
    return found


def _mounts() -> List[List[str]]:
    """[mount point, type, source] from proc_pid_mountinfo(5), which no dead server holds up."""
    found = []
    for line in probe.text("/proc/self/mountinfo").splitlines():
        mount, _, source = line.partition(" - ")
        words, rest = mount.split(), source.split()
        if len(words) > 4 and len(rest) > 1:
            found.append([words[4].replace("\\040", " "), rest[0], rest[1]])
    return found


def _at(mounts: List[List[str]], path: str) -> List[str]:
    """The mount that `path` lies below, by its name: the last of the longest."""
    within = [m for m in mounts if (path + "/").startswith(m[0].rstrip("/") + "/")]
    longest = max((len(m[0]) for m in within), default=0)
    return next((m for m in reversed(within) if len(m[0]) == longest), ["", "", ""])


def _mount(mounts: List[List[str]], path: str) -> str:
    point, kind, source = _at(mounts, path)
    return "%s of %s at %s" % (kind, source, point) if point else "no mount is known"


def kernel(since: float, seconds: float) -> Facts:
    """The telling messages since then, oldest first: from the journal, which has those before
    the last boot too, else from the kernel's own ring.

    Raises:
        HostFault: neither can be read, as in a container (`kernel_unseen`).
    """
    argv = ["journalctl", "--output=json", "--output-fields=MESSAGE", "--no-pager", "-q"]
    argv += ["--all", "_TRANSPORT=kernel"]
    try:
        seen = bounded.output([*argv, "--lines=1"], seconds)
    except HostFault as fault:
        if fault.code == "tool_hangs":
            raise
        seen = ""
    if not seen:
        return {"source": "kmsg", "since": since, "lines": _ring(since)}
    # Without a match --grep exits 1.
    argv += ["--since=@%.0f" % since, "--lines=%d" % _LINES, "--grep=" + TELLING]
    said = bounded.lines([*argv, "--case-sensitive=true"], seconds)
    found = [_line(json.loads(line)) for line in said if line.endswith("}")]
    return {"source": "journal", "since": since, "lines": found}


def _line(entry: Facts) -> Facts:
    message = entry.get("MESSAGE")
    if isinstance(message, list):
        message = bytes(message).decode("utf-8", "replace")
    return {"time": int(entry["__REALTIME_TIMESTAMP"]) / 1e6, "text": str(message)[:500]}


def _ring(since: float) -> List[Facts]:
    """From /dev/kmsg (dmesg's own source): `priority,number,microseconds since boot,…;text`."""
    unseen = HostFault("kernel_unseen", "the kernel's messages are not to be seen here")
    try:
        descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        raise unseen from None
    try:
        if not stat.S_ISCHR(os.fstat(descriptor).st_mode):  # a container's stand-in
            raise unseen
        return _telling(descriptor, since)
    finally:
        os.close(descriptor)


def _telling(descriptor: int, since: float) -> List[Facts]:
    booted = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    telling = re.compile(TELLING)
    found: List[Facts] = []
    while True:
        try:
            record = os.read(descriptor, 8192).decode("utf-8", "replace")
        except BrokenPipeError:  # it was overwritten under us: go on with the next
            continue
        except OSError:  # EAGAIN: that was all
            return found[-_LINES:]
        head, _, text = record.partition(";")
        fields = head.split(",")
        text = text.split("\n", 1)[0]
        if len(fields) < 3 or not telling.search(text):
            continue
        at = booted + int(fields[2]) / 1e6
        if at >= since:
            found.append({"time": at, "text": text[:500]})


def gpus(seconds: float) -> List[Facts]:
    """Every GPU that the driver names; see `facts`. Raises HostFault: as `bounded.output`."""
    argv = ["nvidia-smi", "--query-gpu=" + ",".join(_GPU_FIELDS), "--format=csv,noheader,nounits"]
    found = []
    for line in bounded.output(argv, seconds).splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != len(_GPU_FIELDS) or not fields[0].isdigit():
            continue
        total, used, utilization, temperature, ecc = map(_number, fields[3:])
        found.append(
            {
                "index": int(fields[0]),
                "uuid": fields[1],
                "name": fields[2],
                "memory_total_mib": total,
                "memory_used_mib": used,
                "utilization": utilization,
                "temperature": temperature,
                "ecc": ecc,
            }
        )
    if not found:
        raise HostFault("gpu_unseen", "nvidia-smi names no GPU")
    return found


def gpu_processes(unit: str, seconds: float) -> List[Facts]:
    """Processes that hold GPU memory, an entry for each GPU. Raises HostFault: as
    `bounded.output`."""
    query = "--query-compute-apps=gpu_uuid,pid,process_name,used_memory"
    found = []
    argv = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    for line in bounded.output(argv, seconds).splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) < 4 or not fields[1].isdigit():
            continue
        pid = int(fields[1])
        found.append(
            {
                "pid": pid,
                "gpu": fields[0],
                "command": ",".join(fields[2:-1]),
                "memory_mib": _number(fields[-1]),
                "own": probe.in_unit(pid, unit),
            }
        )
    return found


def _number(field: str) -> Optional[int]:
    """None for what nvidia-smi does not know: [N/A], [Not Supported], [Insufficient…]."""
    return int(float(field)) if re.match(r"\d+(\.\d+)?\Z", field) else None
