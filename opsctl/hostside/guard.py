"""The guard: a unit on the host that puts the service right when its deploy is lost.

Armed before the service stops and disarmed when the rollout has ended, one way or the other.
Until then the guard waits for the lock. It gets it only when the host program that held it is
gone: the client was killed, the connection died, the host rebooted. `guardian` is that process.

::

    guard.json       the terms, while armed; the unit does not start without it
    guard.py         the program, the same text that runs over SSH
    guard-report.json  what the guard last did, until the next rollout ends well
    guard-notices.json  whom it tells, while armed: see `notice`
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any, Dict, Optional

from . import notice, probe, tools
from . import unit as units
from .errors import HostFault
from .install import read_bytes
from .state import Record, State, write_atomically

TERMS, PROGRAM, REPORT = "guard.json", "guard.py", "guard-report.json"
_ARMING: Record = {"arming": True}
UNITS = "/etc/systemd/system"

# notify: `systemctl start` returns when the guard really watches. Before: after a reboot the
# service's start waits until the files are whole again, however long that takes: were this start
# to fail, the service would start on a mixture. Watchdog: one that is halted (SIGSTOP, a freezer)
# watches nothing. The condition: the unit stays
# installed, and starts at a boot only in the middle of a rollout.
_UNIT = """\
# Written by opsctl. Restores {unit} when the rollout that changes it is lost.
[Unit]
Description=opsctl's guard of {unit}
Before={unit}
RequiresMountsFor={root_word}
ConditionPathExists={terms}
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart={python} -I {program} {root_argument}
Restart=on-failure
RestartSec=2
WatchdogSec=1min
TimeoutStartSec=infinity
TimeoutStopSec=5
OOMScoreAdjust=-900

[Install]
WantedBy=multi-user.target
"""


def unit_name(service: str) -> str:
    return "opsctl-guard-%s.service" % service


def terms(state: State) -> Optional[Record]:
    """The terms while armed, else None. Damaged ones read as none: they restore nothing."""
    found = _read(state.path(TERMS))
    return None if found == _ARMING else found


def wanted(state: State) -> bool:
    """Whether the guard's process has something to watch: armed, or about to be."""
    return os.path.exists(state.path(TERMS))


def report(state: State) -> Optional[Record]:
    """What the guard last did: see `guardian`."""
    return _read(state.path(REPORT))


def write_report(state: State, content: Record) -> None:
    write_atomically(state.path(REPORT), json.dumps(content, indent=1).encode())


def clear_report(state: State) -> None:
    with contextlib.suppress(OSError):
        os.unlink(state.path(REPORT))


def arm(
    state: State,
    site: Dict[str, Any],
    given: Record,
    program: str,
    notices: Optional[Record] = None,
) -> None:
    """From now on the guard acts if this program ends without `disarm`. `notices`: see `notice`.

    `given` is {to, fallback, target, serving, budget, within, token, who, why, command}: the
    generation to restore (None to leave the files), the one for when that does not come up (None
    for no such), the one that a deploy puts there, whether the unit has to run then, the seconds
    that its load may take, and the seconds after which a holder of the lock that still lives
    counts as hung.

    Raises:
        HostFault: systemd does not start the guard; what was armed before is so still.
    """
    content = dict(
        given,
        site=site,
        boot_id=probe.boot_id(),
        armed=time.time(),
        deadline=time.monotonic() + given["within"],
    )
    _install(state, site, program)
    if (report(state) or {}).get("token") == given["token"]:
        clear_report(state)  # this rollout knows it, and must not take it for the next one
    notice.store(state, notices)
    path = state.path(TERMS)
    first, before = terms(state) is None, read_bytes(path)
    # The guard runs before its first terms stand: were this program to end between the two, terms
    # that nobody watches would be left. Later ones it has to find: those of another boot would
    # have it wait for this program's lock.
    write_atomically(path, json.dumps(_ARMING if first else content).encode())
    name = unit_name(site["service"])
    # restart: a guard that is about to exit, its last rollout done, would count as started.
    done = tools.run(["systemctl", "restart", "--", name], timeout=30)
    if done.returncode != 0:
        if first or before is None:
            disarm(state)
        else:
            write_atomically(path, before)
        raise HostFault(
            "guard_failed",
            "the guard on the host does not start: %s" % done.stderr.strip(),
            "see `systemctl status %s` there" % name,
        )
    if first:
        write_atomically(path, json.dumps(content).encode())


def disarm(state: State) -> None:
    """The rollout has ended. The guard's process sees it and ends by itself."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(state.path(TERMS))
    notice.forget(state)


def unit_text(unit: str, root: str, python: str) -> str:
    """The guard's unit for the service `unit` with the state folder `root`, run by `python`."""
    return _UNIT.format(
        unit=unit,
        root_word=_word(root),
        terms=_literal(os.path.join(root, TERMS)),
        python=_word(python),
        program=_argument(os.path.join(root, PROGRAM)),
        root_argument=_argument(root),
    )


# systemd reads a path in three ways (systemd.syntax(7), systemd.unit(5), systemd.service(5)).


def _literal(path: str) -> str:
    """For a setting that takes the rest of its line as one path, and specifiers in it."""
    return path.replace("%", "%%")


def _word(path: str) -> str:
    """For a setting that splits its line into words, and for the program of a command."""
    return '"%s"' % _literal(path).replace("\\", "\\\\").replace('"', '\\"')


def _argument(text: str) -> str:
    """For an argument of a command, where `$` would stand for a variable too."""
    return _word(text.replace("$", "$$"))


def _install(state: State, site: Dict[str, Any], program: str) -> None:
    """Program and unit, each only where it differs; they stay for the next rollout."""
    path = state.path(PROGRAM)
    if read_bytes(path) != program.encode():
        write_atomically(path, program.encode())
    name = unit_name(site["service"])
    text = unit_text(site["unit"], state.root, sys.executable)
    unit_path = os.path.join(UNITS, name)
    if read_bytes(unit_path) != text.encode():
        write_atomically(unit_path, text.encode(), 0o644)
    _load(name)


def _load(name: str) -> None:
    """Loaded as written, and enabled: the program that wrote it may have ended before that."""
    shown = units.show(name)
    if shown.get("NeedDaemonReload") == "yes" or shown.get("LoadState") != "loaded":
        _systemctl("daemon-reload")
    # Its UnitFileState is of the last reload; this looks at the disk.
    if tools.run(["systemctl", "is-enabled", "--", name]).stdout.strip() != "enabled":
        _systemctl("-q", "enable", "--", name)


def _systemctl(*words: str) -> None:
    done = tools.run(["systemctl", *words], timeout=60)
    if done.returncode != 0:
        said = " ".join(words), done.stderr.strip()
        raise HostFault("guard_failed", "`systemctl %s`: %s" % said)


def _read(path: str) -> Optional[Record]:
    data = read_bytes(path)
    if data is None:
        return None
    try:
        found = json.loads(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
