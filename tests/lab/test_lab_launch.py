"""How the lab's supervisor is started: what it has of its starter."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from opsctl.lab import launch
from opsctl.lab.process import Process


def test_the_supervisor_keeps_nothing_open_of_its_callers(tmp_path: Path) -> None:
    """As after `exec 9>lock; flock 9; opsctl lab up` and `opsctl lab up 2> >(sed …)`."""
    reading, writing = os.pipe()
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    for descriptor in (writing, lock):
        os.set_inheritable(descriptor, True)
    pid = launch.detached(["sh", "-c", "echo up; exec sleep 60"], tmp_path / "log")
    started = Process.of(pid)
    assert started is not None
    try:
        os.close(writing)
        os.close(lock)
        os.set_blocking(reading, False)
        assert os.read(reading, 1) == b"", "who reads it to its end does not wait"
        again = os.open(tmp_path / "lock", os.O_RDWR)
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(again)
        deadline = time.monotonic() + 10
        while (tmp_path / "log").read_text() != "up\n" and time.monotonic() < deadline:
            time.sleep(0.01)
        assert (tmp_path / "log").read_text() == "up\n"
        assert started.alive()
    finally:
        os.close(reading)
        assert started.end(10)
