"""What opsctl looks at on a host with GPUs, against a real driver: triage's facts and the check
before a start. Standard library only; no SGLang, no systemd.

    python3 validation/gpu_looks.py OUT.json

A process takes 1 GiB of GPU memory by the driver's own library, first as somebody else's, then as
a rank of SGLang's whose server is dead.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

_HELD: Final = 1 << 30  # bytes


def hold(name: str) -> None:
    """Take GPU memory under the kernel's name `name` until stdin ends."""
    cuda = ctypes.CDLL("libcuda.so.1")
    ctypes.CDLL(None).prctl(15, name.encode()[:15], 0, 0, 0)  # PR_SET_NAME
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    for status in (
        cuda.cuInit(0),
        cuda.cuDeviceGet(ctypes.byref(device), 0),
        cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device),
        cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(_HELD)),
    ):
        assert status == 0, status
    sys.stdout.write("held\n")
    sys.stdout.flush()
    time.sleep(600)


@contextmanager
def holder(name: str, *, orphan: bool) -> Iterator[int]:
    """The pid of a process that holds GPU memory; `orphan`: its parent is dead."""
    argv = [sys.executable, __file__, "--hold", name]
    if orphan:
        middle = "import subprocess, sys; p = subprocess.Popen(sys.argv[1:]); print(p.pid, flush=1)"
        argv = [sys.executable, "-c", middle, *argv]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    words = [process.stdout.readline().strip() for _ in range(1 + orphan)]
    assert "held" in words, words
    pid = next((int(word) for word in words if word.isdecimal()), process.pid)
    try:
        yield pid
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        process.wait()


def timed(function: Any, *args: Any) -> dict[str, Any]:
    began = time.monotonic()
    try:
        found = function(*args)
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    return {"seconds": round(time.monotonic() - began, 3), "found": found}


def prestart(*arguments: str) -> dict[str, Any]:
    """The check as the unit runs it, with a patience of 3 s instead of 30."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import prestart as p; "
        "p.GPU_PATIENCE = 3.0; sys.exit(p.main(sys.argv[2:]))"
    )
    argv = [sys.executable, "-c", code, str(_ROOT / "opsctl" / "units"), *arguments]
    began = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    seconds = round(time.monotonic() - began, 2)
    return {"exit": done.returncode, "seconds": seconds, "said": done.stderr.splitlines()}


def looks() -> dict[str, Any]:
    from opsctl.hostside import machine

    return {
        "gpus": timed(machine.gpus, machine.BOUND),
        "gpu_processes": timed(machine.gpu_processes, "no-such.service", machine.BOUND),
        "kernel": timed(machine.kernel, time.time() - machine.DAY, machine.BOUND),
        "prestart": prestart("--port", "30000"),
    }


def main() -> None:
    found: dict[str, Any] = {
        "python": sys.version.split()[0],
        "namespace": str(Path("/proc/self/ns/pid").readlink()),
        "idle": looks(),
    }
    with holder("python", orphan=False) as pid:
        found["somebody else's"] = {"pid": pid, **looks()}
    with holder("sglang::schedul", orphan=True) as pid:
        found["orphaned rank"] = {"pid": pid, **looks()}
    found["after both"] = looks()
    query = ["nvidia-smi", "--query-compute-apps=pid,gpu_uuid,used_memory", "--format=csv"]
    found["raw"] = subprocess.run(query, capture_output=True, text=True, check=False).stdout
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    hold(sys.argv[2]) if sys.argv[1] == "--hold" else main()
