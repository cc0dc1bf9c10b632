"""systemd, by systemctl. Properties keep systemd's own names."""

from __future__ import annotations

import time
from typing import Any, Dict, List

from . import plain
from .errors import HostFault
from .tools import run

PROPERTIES = (
    "Id LoadState LoadError ActiveState SubState Result InvocationID NRestarts MainPID "
    "ExecMainStatus ExecMainCode NeedDaemonReload FragmentPath DropInPaths UnitFileState "
    "StartLimitBurst StartLimitIntervalUSec TimeoutStartUSec TimeoutStopUSec Type Restart "
    "RestartUSec User ControlGroup ActiveEnterTimestampMonotonic InactiveEnterTimestampMonotonic "
    "InactiveExitTimestampMonotonic "
    "SuccessExitStatus KillMode ExecStart Environment LogRateLimitIntervalUSec"
).split()

VERBS = frozenset({"start", "stop", "restart", "reset-failed", "daemon-reload"})


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


def control(unit: str, verb: str, speculative: bool = True) -> Dict[str, Any]:
    """Queue the job `verb` and return at once: a load may take eleven minutes.

    A start is one as the unit's files say, unless it is to be without speculation: what an
    earlier one left for that is taken away (`plain`).

    A manual restart counts against StartLimitBurst, so `start` and `restart` clear the
    counter first; otherwise the deploy's own restarts could end in start-limit-hit.
    """
    if verb not in VERBS:
        raise HostFault("unknown_verb", "no systemctl verb %r here" % verb)
    commands: List[List[str]] = []
    if verb in ("start", "restart"):
        if speculative:
            plain.clear(unit)
        else:
            plain.apply(unit)
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
