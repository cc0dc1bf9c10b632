"""Looks that may hang, each with a bound of its own: a dead NFS mount, a GPU off the bus.

What hangs in the kernel cannot be killed, and `subprocess.run` waits for what it killed. So a
tool that gives no answer is killed and left alone here, and a look that blocks is left to its
thread; nothing waits for either.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from typing import Any, Callable, Dict, List, Sequence, Tuple

from .errors import HostFault
from .tools import environment

# What one tool may print, bytes; more is cut off.
_MOST = 8 << 20

Looks = Dict[str, Callable[[], Any]]


def gather(looks: Looks, seconds: float) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """What each of `looks` returns, and why those that did not return anything did not.

    All of them run at once. One that is not done after `seconds` is left to itself.
    """
    found: Dict[str, Any] = {}
    missing: Dict[str, str] = {}
    lock = threading.Lock()

    def work(name: str, look: Callable[[], Any]) -> None:
        try:
            value = look()
        except HostFault as fault:
            with lock:
                missing[name] = fault.message
        except Exception as error:
            with lock:
                missing[name] = "%s: %s" % (type(error).__name__, error)
        else:
            with lock:
                found[name] = value

    threads = [
        threading.Thread(target=work, args=(name, look), daemon=True)
        for name, look in looks.items()
    ]
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    with lock:
        answered, failed = dict(found), dict(missing)
    for name in looks:
        if name not in answered and name not in failed:
            failed[name] = "no answer within %.1f s" % seconds
    return answered, failed


def output(argv: Sequence[str], seconds: float, given: str = "") -> str:
    """What `argv` prints on stdout, read to its end; it is given `given` on stdin.

    Raises:
        HostFault: it is not there (`tool_missing`), fails (`tool_failed`), or is not done within
            `seconds` (`tool_hangs`): then it is killed, and not waited for.
    """
    process = _started(argv, given)
    said, failed, done = _drained(process, time.monotonic() + seconds)
    if not done:
        raise HostFault("tool_hangs", "%s gave no answer within %.1f s" % (argv[0], seconds))
    if process.returncode != 0:
        why = (failed or said).strip()[-300:] or "exit status %d" % process.returncode
        raise HostFault("tool_failed", "%s failed: %s" % (argv[0], why))
    return said


def lines(argv: Sequence[str], seconds: float, given: str = "") -> List[str]:
    """The lines that `argv` had printed when it ended or `seconds` were over.

    Raises:
        HostFault: it is not there (`tool_missing`).
    """
    said, _, _ = _drained(_started(argv, given), time.monotonic() + seconds)
    return said.splitlines()


def _started(argv: Sequence[str], given: str) -> "subprocess.Popen[bytes]":
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            start_new_session=True,  # so that what it starts is killed with it
        )
    except FileNotFoundError:
        raise HostFault("tool_missing", "%s is not on the host" % argv[0]) from None
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # it is gone already, or does not read
        process.stdin.write(given.encode())
        process.stdin.close()
    return process


def _drained(process: "subprocess.Popen[bytes]", deadline: float) -> Tuple[str, str, bool]:
    """What it wrote to stdout and to stderr by then, and whether it ended; else it is killed."""
    assert process.stdout is not None
    assert process.stderr is not None
    texts = {process.stdout.fileno(): b"", process.stderr.fileno(): b""}
    still = list(texts)
    while still:
        ready, _, _ = select.select(still, [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            break
        for descriptor in ready:
            data = os.read(descriptor, 1 << 16)
            if not data or len(texts[descriptor]) > _MOST:
                still.remove(descriptor)
            texts[descriptor] += data
    done = not still
    try:
        process.wait(max(0.01, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        done = False
    said, failed = (text.decode("utf-8", "replace") for text in texts.values())
    for stream in (process.stdout, process.stderr):
        stream.close()
    if not done:
        _abandon(process)
    return said, failed, done


def _abandon(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    # Reaped where it can be, by a thread that nobody waits for.
    threading.Thread(target=process.wait, daemon=True).start()
