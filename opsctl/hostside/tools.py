"""Programs of the host, run with a clean environment."""

from __future__ import annotations

import os
import subprocess
from typing import Dict, Sequence

from .errors import HostFault


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


def reload_units() -> None:
    """Have systemd read its files anew. Raises HostFault: it does not."""
    done = run(["systemctl", "daemon-reload"], timeout=60)
    if done.returncode != 0:
        raise HostFault("unit_job_failed", "systemctl daemon-reload: %s" % done.stderr.strip())
