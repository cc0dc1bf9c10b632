"""systemd, by systemctl. Properties keep systemd's own names."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any, Dict, List, Sequence

from .errors import HostFault

PROPERTIES = (
    "Id LoadState LoadError ActiveState SubState Result InvocationID NRestarts MainPID "
    "ExecMainStatus ExecMainCode NeedDaemonReload FragmentPath DropInPaths UnitFileState "
    "StartLimitBurst StartLimitIntervalUSec TimeoutStartUSec TimeoutStopUSec Type Restart "
    "RestartUSec User ControlGroup ActiveEnterTimestampMonotonic InactiveEnterTimestampMonotonic "
    "InactiveExitTimestampMonotonic "
    "SuccessExitStatus KillMode ExecStart Environment LogRateLimitIntervalUSec"
).split()

VERBS = frozenset({"start", "stop", "restart", "reset-failed", "daemon-reload"})


def environment() -> Dict[str, str]:
    """What a tool gets of ours: its output is read, and goes by no setting of whoever connects."""
    path = os.environ.get("PATH") or os.defpath
    return {"PATH": path, "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}


def run(argv: Sequence[str], timeout: float = 30.0) -> "subprocess.CompletedProcess[str]":
    """`argv` with its output captured; a tool that is missing or hangs is a named fault."""
    try:
        return subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=timeout,
            encoding="utf-8",
            errors="replace",
        )
    except FileNotFoundError:
        raise HostFault(
            "tool_missing", "%s is not installed on the host" % argv[0], "install it"
        ) from None
    except subprocess.TimeoutExpired:
        raise HostFault(
            "tool_hangs", "`%s` gave no answer within %.0f s" % (" ".join(argv), timeout)
        ) from None


def show(unit: str) -> Dict[str, Any]:
    """The properties of `unit`, as `systemctl show` prints them, and the host's clock."""
    argv = ["systemctl", "show", "--no-pager", "--property=" + ",".join(PROPERTIES), "--", unit]
    done = run(argv)
    if done.returncode != 0:
        raise HostFault(
            "systemd_unreachable",
            "systemctl show failed: %s" % done.stderr.strip(),
            "check that systemd is PID 1 on the host: `systemctl is-system-running`",
        )
    properties: Dict[str, Any] = {"time": time.time(), "monotonic_us": time.monotonic_ns() // 1000}
    for line in done.stdout.splitlines():
        key, separator, value = line.partition("=")
        if separator:
            properties[key] = value
    return properties


def control(unit: str, verb: str) -> Dict[str, Any]:
    """Queue the job `verb` and return at once: a load may take eleven minutes.

    A manual restart counts against StartLimitBurst, so `start` and `restart` clear the
    counter first; otherwise the deploy's own restarts could end in start-limit-hit.
    """
    if verb not in VERBS:
        raise HostFault("unknown_verb", "no systemctl verb %r here" % verb)
    commands: List[List[str]] = []
    if verb in ("start", "restart"):
        commands.append(["systemctl", "reset-failed", "--", unit])
    if verb == "daemon-reload":
        commands.append(["systemctl", "daemon-reload"])
    else:
        commands.append(["systemctl", "--no-block", verb, "--", unit])
    for argv in commands:
        done = run(argv)
        # reset-failed fails for a unit that is not loaded, which the next command reports.
        if done.returncode != 0 and argv[1] != "reset-failed":
            raise HostFault("unit_job_failed", done.stderr.strip() or "%s failed" % " ".join(argv))
    return show(unit)
