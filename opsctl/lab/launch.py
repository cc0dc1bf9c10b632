"""Start `contain.py`, the lab's supervisor, in a mount namespace and a cgroup of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_SUPERVISOR = Path(__file__).with_name("contain.py")

# No registration with systemd-machined (it may not run here), no name lookups, no journal
# link: the machine outside stays as it was. --keep-unit: the cgroup is ours already.
NSPAWN = ("--register=no", "--keep-unit", "--quiet", "--link-journal=no", "--timezone=off")


def systemd_runs_here() -> bool:
    """The test of sd_booted(3): is PID 1 of this machine systemd?"""
    return Path("/run/systemd/system").is_dir()


def command(name: str, spec_path: Path, spec: Mapping[str, Any]) -> list[str]:
    """Write `spec` for the supervisor and return the command that starts it.

    Where systemd runs, a delegated scope `name` holds the container's cgroup; elsewhere the
    supervisor makes one of that name.
    """
    scope: list[str] = []
    content = dict(spec)
    if systemd_runs_here():
        scope = ["systemd-run", "--scope", "--quiet", "--collect", f"--unit={name}"]
        scope += ["--property=Delegate=yes", "--"]
    else:
        content["cgroup"] = name
    spec_path.write_text(json.dumps(content, indent=1), encoding="utf-8")
    namespace = ["unshare", "--mount", "--propagation=private", "--"]
    # -I: neither the working directory nor PYTHON* variables reach a process run as root.
    return [*scope, *namespace, sys.executable, "-I", str(_SUPERVISOR), str(spec_path)]


def detached(argv: Sequence[str], log: Path) -> int:
    """Start `argv` in a session of its own, its output in `log`; returns its process id.

    Not subprocess.Popen, which wants to be waited for: this process outlives its starter. It
    keeps nothing of what that has open: a lock of the caller's would be held, and who reads a
    pipe to its end would wait, for as long as the lab runs.
    """
    read, write = os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, read, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), write, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    ours = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    actions += [(os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in ours if descriptor > 2]
    return os.posix_spawnp(argv[0], list(argv), os.environ, file_actions=actions, setsid=True)
