"""Run on the host: halt the program that swaps in the middle of its swap.

Waits for the file `swap` in the state folder and stops the holder of the lock the moment it is
there; prints `trapped PID`, or `missed` when the swap was over first. Standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path


def main(state: Path, wait: float) -> None:
    sys.stdout.write("waiting\n")
    sys.stdout.flush()
    swap, lock = state / "swap", state / "lock"
    deadline = time.monotonic() + wait
    while not swap.exists():
        if time.monotonic() > deadline:
            sys.exit("nothing was swapped")
        time.sleep(0.0002)
    time.sleep(0.004)  # some of the files
    pid = int(json.loads(lock.read_text(encoding="utf-8"))["pid"])
    os.kill(pid, signal.SIGSTOP)
    sys.stdout.write(f"{'trapped' if swap.exists() else 'missed'} {pid}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
