"""The check before a start (ExecStartPre): can this start come to anything?

A file of its own, installed beside the unit and run as ``python -I -S FILE ARGUMENTS`` by the
service's Python (3.10 or newer, as SGLang's) as the service's user, without anything else of
opsctl's. ARGUMENTS are those of ``sglang.launch_server``.

It looks at the GPUs (what an earlier start left must be gone: the driver gives memory back some
seconds after a process is dead), the port, the weights and /dev/shm. It refuses, with exit status
1 and a line for each reason, only what cannot go well. What it cannot know it says in a note, and
the start goes on: a check that is wrong would keep a healthy service down. `SKIP` in the unit's
environment leaves parts out.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

NAME = "opsctl-prestart"
SKIP = "OPSCTL_PRESTART_SKIP"  # some of PARTS, or "all"
PARTS = ("gpu", "port", "weights", "shm")
# Seconds; in all well below the unit's TimeoutStartSec.
GPU_PATIENCE, PORT_PATIENCE = 30.0, 5.0
SMI_BOUND = 10.0  # for one nvidia-smi, which hangs where the driver does
# Bytes free. One of NCCL's segments takes 9.6 MB, and each rank has several; a container of
# Docker's has 64 MB, and NVIDIA asks for 1 GB (NCCL's page on troubleshooting).
SHM_LEAST, SHM_ENOUGH = 60 << 20, 1 << 30

_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
# Of --load-format: those that do not read what the index names.
_OTHER_FORMATS = frozenset({"dummy", "pt", "npcache", "gguf", "remote", "remote_instance"})
# The kernel's number of the first PID namespace (PROC_PID_INIT_INO, include/linux/proc_ns.h).
_FIRST_NAMESPACE = "pid:[4026531836]"
_SHM = "/dev/shm"  # noqa: S108 - looked at only

_Asked: TypeAlias = "subprocess.Popen[str] | None"
Holder: TypeAlias = tuple[int, str, str]  # pid, the GPU's UUID, and MiB where nvidia-smi says


class Check:
    """One look. `refused` are reasons not to start, `notes` what could not be known."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.arguments = list(arguments)
        self.refused: list[str] = []
        self.notes: list[str] = []
        self.well: list[str] = []

    def option(self, *names: str) -> str | None:
        """The value of an option of SGLang's; the last one counts, as with argparse."""
        found = None
        for word, after in zip(self.arguments, [*self.arguments[1:], None], strict=False):
            name, separator, value = word.partition("=")
            if name in names:
                found = value if separator else after
        return found

    def number(self, default: int, *names: str) -> int:
        value = self.option(*names)
        return int(value) if value and value.isdecimal() else default

    def ranks(self) -> int:
        """How many GPUs of this machine the server takes, by its arguments."""
        ranks = self.number(1, "--tp-size", "--tensor-parallel-size", "--tp")
        ranks *= self.number(1, "--pp-size", "--pipeline-parallel-size")
        if "--enable-dp-attention" not in self.arguments:  # which divides the ranks there are
            ranks *= self.number(1, "--dp-size", "--data-parallel-size", "--dp")
        return ranks // max(1, self.number(1, "--nnodes"))

    def weights(self) -> None:
        """Each folder that is named is there, and in it each shard that its index names."""
        self._weights("model", self.option("--model-path", "--model") or "")
        draft = ("--speculative-draft-model-path", "--speculative-draft-model")
        self._weights("drafter", self.option(*draft) or "")

    def _weights(self, what: str, place: str) -> None:
        if not place.startswith("/"):  # the name of a repository
            self.notes += [f"{what} {place} is no path: not looked at"] if place else []
            return
        before, shards = len(self.refused), 0
        try:
            shards = self._folder(what, place)
        except OSError as error:  # as the service's user, which can then not read it either
            self.refused.append(f"{what} path not found or not readable: {error}")
        if len(self.refused) == before:
            self.well.append(f"{what} {place}" + (f", {shards} shards" if shards else ""))

    def _folder(self, what: str, place: str) -> int:
        """How many shards there are; 0 where nothing says how many there should be."""
        os.stat(place)
        if not os.path.isdir(place):
            return 0  # one file, as GGUF is
        names = set(os.listdir(place))
        if not names:
            self.refused.append(f"{what} path {place}: no weights found, it is empty (a mount?)")
        if self.option("--load-format") in _OTHER_FORMATS:
            return 0
        shards = [_SINGLE] if _SINGLE in names else []
        if _INDEX in names:
            shards = self._indexed(what, os.path.join(place, _INDEX))
        missing = [name for name in shards if not os.path.exists(os.path.join(place, name))]
        if missing:
            share = f"{len(missing)} of {len(shards)} shards not found"
            self.refused.append(f"{what} path {place}: {share}: {_some(missing)}")
        there = [name for name in shards if name not in missing]
        broken = [name for name in there if not _is_shard(os.path.join(place, name))]
        if broken:
            self.refused.append(f"{what} path {place}: not a safetensors file: {_some(broken)}")
        return len(shards)

    def _indexed(self, what: str, path: str) -> list[str]:
        with open(path, encoding="utf-8") as f:
            try:
                return sorted(set(json.load(f)["weight_map"].values()))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                why = f"{type(error).__name__}: {error}"
                self.refused.append(f"{what} weights index file is corrupt: {path}: {why}")
                return []

    def port(self) -> None:
        """Nobody listens where the server will: it would find that out after the whole load."""
        host, port = self.option("--host") or "127.0.0.1", self.number(30000, "--port")
        until = time.monotonic() + PORT_PATIENCE
        while True:
            try:
                _bind(host, port)
            except OSError as error:
                taken = error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL)
                if not taken:
                    self.notes.append(f"port {port} at {host} was not tried: {error}")
                elif time.monotonic() < until:
                    time.sleep(0.25)
                    continue
                else:
                    self.refused.append(_port_text(host, port, error))
                return
            self.well.append(f"port {port} free")
            return

    def gpus(self, asked: _Asked) -> None:
        """Nothing of an earlier start holds GPU memory; `asked` is the first nvidia-smi, begun."""
        until = time.monotonic() + GPU_PATIENCE
        told = False
        while True:
            answer, why = _answer(asked)
            if answer is None:
                self.notes.append(f"{why}: GPU memory was not looked at")
                return
            held = list(_holders(answer))
            left = self._left_over(held)
            if not left:
                others = _some([_held_text(each, "") for each in held])
                self.notes += (
                    [f"others use GPU memory, and are left alone: {others}"] if held else []
                )
                self.well.append("no GPU memory held by an earlier start")
                return
            said = f"GPU memory is still held by what an earlier start left: {'; '.join(left)}"
            if time.monotonic() > until:
                self.refused.append(f"orphan process: {said}")
                return
            if not told:
                _say(f"waiting up to {GPU_PATIENCE:.0f} s: {said}")
            told = True
            time.sleep(1.0)
            asked = _smi()

    def _left_over(self, held: Sequence[Holder]) -> list[str]:
        """Those of `held` that an earlier start left, in words.

        That is: what is in this unit's own cgroup; a rank whose parent is dead; and what is dead
        itself. Others' live processes on the same GPUs are their own business.
        """
        own = _cgroup("self")
        ours, others = [], []
        for each in held:
            pid = each[0]
            if own.endswith(".service") and _cgroup(pid) == own and pid != os.getpid():
                ours.append(_held_text(each, ", of this unit's earlier start"))
            elif _is_gone(pid):
                others.append((each[1], _held_text(each, ", dead, the driver has it still")))
            elif _is_orphan(pid):
                others.append((each[1], _held_text(each, ", its server is dead")))
        gpus = self._own_gpus() if others else None
        return ours + [text for gpu, text in others if gpus is None or gpu in gpus]

    def _own_gpus(self) -> set[str] | None:
        """The UUIDs of the GPUs that this server will take; None where that cannot be told."""
        answer, _ = _answer(_smi("--query-gpu=index,uuid"))
        rows = [line.partition(", ") for line in (answer or "").splitlines()]
        first, step = self.number(0, "--base-gpu-id"), self.number(1, "--gpu-id-step")
        names = {str(first + step * rank) for rank in range(self.ranks())}
        listed = os.environ.get("CUDA_VISIBLE_DEVICES")
        if listed:
            names = {name.strip() for name in listed.split(",")}
        prefixes = tuple(name for name in names if name.startswith("GPU-"))
        found = {
            uuid.strip()
            for index, _, uuid in rows
            if index in names or (prefixes and uuid.startswith(prefixes))
        }
        return found or None  # none: MIG, or a way to count that is not known here

    def shm(self) -> None:
        """Room in /dev/shm for the ranks' segments."""
        found = os.statvfs(_SHM)
        free, size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        text = f"{_SHM} has {free >> 20} of {size >> 20} MiB free"
        if free < SHM_LEAST:
            self.refused.append(f"{text}: too small for the ranks' shared memory")
        else:
            scarce = free < SHM_ENOUGH and self.ranks() > 1
            (self.notes if scarce else self.well).append(text)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def _cgroup(pid: int | str) -> str:
    """ "" where the process is gone or hidden."""
    return _read(f"/proc/{pid}/cgroup").strip()


def _comm(pid: int) -> str:
    """The kernel's short name of it; never its arguments, which may hold a key."""
    return _read(f"/proc/{pid}/comm").strip() or "?"


def _stat(pid: int) -> list[str]:
    """State, parent and so on of proc_pid_stat(5); the name before them may hold anything."""
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _is_gone(pid: int) -> bool:
    """Dead, and not only out of sight: in a container nvidia-smi gives the host's numbers."""
    try:
        if os.readlink("/proc/self/ns/pid") != _FIRST_NAMESPACE:
            return False
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _stat(pid)[:1] == ["Z"]


def _is_orphan(pid: int) -> bool:
    """A rank of SGLang's, by the name that it gives itself, whose server is dead."""
    fields = _stat(pid)
    if not fields or not _comm(pid).startswith("sglang::") or _cgroup(pid).endswith(".service"):
        return False  # the last: another unit's, whose own business it is
    parent = int(fields[1])
    return parent == 1 or _comm(parent) in ("systemd", "init")


def _held_text(held: Holder, why: str) -> str:
    pid, _, mib = held
    return f"pid {pid} ({_comm(pid)}{why}) holds {mib} MiB"


def _smi(query: str = "--query-compute-apps=pid,gpu_uuid,used_memory") -> _Asked:
    """nvidia-smi, begun, so that other looks go on beside it; None where there is none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    return subprocess.Popen(
        [program, query, "--format=csv,noheader,nounits"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )


def _answer(asked: _Asked) -> tuple[str | None, str]:
    """What nvidia-smi printed, or None and why it did not."""
    if asked is None:
        return None, "no nvidia-smi"
    try:
        text, _ = asked.communicate(timeout=SMI_BOUND)
    except subprocess.TimeoutExpired:
        asked.kill()  # and not waited for: in the driver it may not be killable
        return None, f"nvidia-smi gave no answer within {SMI_BOUND:.0f} s"
    if asked.returncode != 0:
        return None, f"nvidia-smi ended with status {asked.returncode}"
    return text, ""


def _holders(answer: str) -> Iterator[Holder]:
    for line in answer.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 3 and fields[0].isdecimal():
            yield int(fields[0]), fields[1], fields[2]


def _is_shard(path: str) -> bool:
    """It begins with its header's length, which is within it; Git LFS's pointer does not."""
    if not path.endswith(".safetensors"):
        return True
    with open(path, "rb") as f:
        head, size = f.read(8), os.fstat(f.fileno()).st_size
    return len(head) == 8 and 8 + int.from_bytes(head, "little") <= size


def _bind(host: str, port: int) -> None:
    """As uvicorn does, with SO_REUSEADDR: of sockets only a listener stands in its way then."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))


def _port_text(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host}, where the server is to listen, is no address of this machine"
    pid = _listener(port)
    by = "a process that this user may not see" if pid is None else f"pid {pid} ({_comm(pid)})"
    return f"port {port} is already in use at {host}, by {by}"


def _listener(port: int) -> int | None:
    """Who listens on `port`, where this user may see that."""
    import glob  # 5 ms, which only a refusal pays

    rows = (_read("/proc/net/tcp") + _read("/proc/net/tcp6")).splitlines()
    sockets = [row.split() for row in rows if "sl" not in row.split()]
    found = [row[9] for row in sockets if row[3] == "0A" and row[1].endswith(f":{port:04X}")]
    for link in glob.iglob("/proc/[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(link)[8:-1] in found:
                return int(link.split("/")[2])
    return None


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def look(arguments: Sequence[str], skipped: Sequence[str] = ()) -> Check:
    """Every part that is not skipped; nvidia-smi, the slowest, runs beside the others."""
    check = Check(arguments)
    asked = None
    with contextlib.suppress(OSError):
        asked = None if "gpu" in skipped else _smi()
    parts: dict[str, Callable[[], None]] = {
        "weights": check.weights,
        "shm": check.shm,
        "port": check.port,
        "gpu": lambda: check.gpus(asked),
    }
    for name, part in parts.items():
        if name in skipped:
            check.notes.append(f"{name}: skipped by {SKIP}")
            continue
        try:
            part()
        except Exception as error:  # a fault of the check's own keeps no service down
            check.notes.append(f"{name} was not looked at: {type(error).__name__}: {error}")
    return check


def _say(text: str, level: int = 6) -> None:
    """A line of the journal; `level` is sd-daemon(3)'s."""
    sys.stderr.write(f"<{level}>{NAME}: {text}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str]) -> int:
    """The exit status: 1 where the start is refused."""
    began = time.monotonic()
    given = os.environ.get(SKIP, "").replace(",", " ").split()
    check = look(arguments, PARTS if "all" in given else given)
    for note in check.notes:
        _say(note)
    for reason in check.refused:
        _say(f"not started: {reason}", 3)
    if not check.refused:
        _say(f"nothing in the way ({time.monotonic() - began:.2f} s): {'; '.join(check.well)}")
    return 1 if check.refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
