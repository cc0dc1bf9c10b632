"""Facts of a healthy service, to be bent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from opsctl.journal import Diagnosis
from opsctl.triage import Facts, Start
from opsctl.units.properties import Unit

NOW = 1_800_000_000.0
HOUR = 3600.0

SHOWN = {
    "Id": "serve.service",
    "LoadState": "loaded",
    "ActiveState": "active",
    "SubState": "running",
    "Result": "success",
    "InvocationID": "now",
    "NRestarts": "0",
    "MainPID": "7",
    "time": NOW,
    "monotonic_us": int(100 * HOUR * 1e6),
    "ActiveEnterTimestampMonotonic": str(int(99 * HOUR * 1e6)),
}
DOWN = {"ActiveState": "failed", "SubState": "failed", "Result": "exit-code"}
LOOPING = {"ActiveState": "activating", "SubState": "auto-restart", "NRestarts": "4"}

HEALTHY = Diagnosis(incident=False, kind="decode_stats")


def unit(**changes: str) -> Unit:
    return Unit.from_show({**SHOWN, **changes})


def start(invocation: str = "now", began: float = NOW - HOUR, **changes: Any) -> Start:
    up = Start(
        invocation=invocation,
        began=began,
        ended=began + HOUR - 1,
        lines=500,
        diagnosis=HEALTHY,
        ready_at=began + 600,
        phase="ready",
        moved_at=began + 600,
        batch_at=began + HOUR - 5,
        decode_lines=50,
        accept_len=4.2,
    )
    return replace(up, **changes)


def crash(kind: str, *lines: str, **changes: Any) -> Diagnosis:
    found = Diagnosis(
        incident=True, kind=kind, severity="fatal", lines=lines, remedy="mend it", confidence="high"
    )
    return replace(found, **changes)


def failed(kind: str, *lines: str, invocation: str = "now", **changes: Any) -> Start:
    """A start that ended before it was ready."""
    dead = start(invocation, ready_at=None, phase="starting", decode_lines=0, accept_len=None)
    return replace(dead, batch_at=None, diagnosis=crash(kind, *lines, **changes))


def place(**changes: Any) -> dict[str, Any]:
    return {
        "path": "/x",
        "exists": True,
        "device": 1,
        "mount": "/",
        "type": "ext4",
        "source": "/dev/vda",
        "size": 100 << 30,
        "free": 50 << 30,
        "inodes": 1000,
        "inodes_free": 900,
        "read_only": False,
        **changes,
    }


def weights(**changes: Any) -> dict[str, Any]:
    return place(weights={"files": 12, "bytes": 1 << 40, "config": True}, **changes)


def machine(**changes: Any) -> dict[str, Any]:
    return {
        "time": NOW,
        "boot": {"id": "b", "booted": NOW - 100 * HOUR, "uptime_s": 100 * HOUR},
        "memory": {"total": 1 << 40, "available": 1 << 39, "swap_total": 0, "swap_free": 0},
        "load": [1.0, 1.0, 1.0],
        "cpus": 128,
        "filesystems": {"state": place(), "tmp": place(), "target": weights(device=2)},
        "kernel": {"source": "journal", "since": NOW - 24 * HOUR, "lines": []},
        "gpus": [],
        "gpu_processes": [],
        "missing": {},
        **changes,
    }


def kernel(*texts: str, at: float = NOW - 60) -> dict[str, Any]:
    lines = [{"time": at, "text": text} for text in texts]
    return machine(kernel={"source": "journal", "since": 0.0, "lines": lines})


def facts(**changes: Any) -> Facts:
    healthy = Facts(
        host="ct200",
        now=NOW,
        unit=unit(),
        starts=(start(), start("before", NOW - 30 * HOUR)),
        http="answers",
        http_text="serving tiny",
        healthy=True,
        machine=machine(),
        weights={"target": "/models/k2"},
        floor=2.0,
        generation={"number": 2, "set": {"name": "ddtree", "version": "1.1.0"}, "files": {}},
    )
    return replace(healthy, **changes)
