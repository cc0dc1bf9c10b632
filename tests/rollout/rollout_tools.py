"""Facts of a healthy host, as the host program's `inspect` gives them."""

from __future__ import annotations

import copy
from typing import Any

from opsctl.inventory import Service

SERVICE = Service.model_validate(
    {
        "unit": "serve.service",
        "python": "/opt/venv/bin/python",
        "port": 30001,
        "model": {"path": "/m", "served_name": "tiny"},
        "load": {"budget": "15m"},
    }
)

_HEALTHY: dict[str, Any] = {
    "host": {"hostname": "ct200", "uid": 0, "python": "3.11.2"},
    "unit": {
        "Id": "serve.service",
        "LoadState": "loaded",
        "ActiveState": "active",
        "SubState": "running",
        "Result": "success",
        "InvocationID": "i1",
        "NeedDaemonReload": "no",
        "StartLimitBurst": "5",
        "StartLimitIntervalUSec": "1h",
        "TimeoutStartUSec": "infinity",
        "TimeoutStopUSec": "1min 30s",
        "Type": "exec",
        "Restart": "on-failure",
        "ExecStart": "{ path=/x ; argv[]=/x --speculative-algorithm=DFLASH ; ignore_errors=no }",
    },
    "port": {"pid": 7, "command": "sglang", "own": True},
    "strays": [],
    "gpu": [],
    "disk": {
        "state": {"path": "/var/lib/opsctl", "free": 10 << 30, "writable": True},
        "package": {"path": "/opt/venv/sglang", "free": 10 << 30, "writable": True},
    },
    "lock": None,
    "guard": {"terms": None, "report": None},
    "generation": None,
    "swap": None,
    "generations": [],
    "loads": [],
    "install": {
        "version": "0.5.12.post1",
        "package_dir": "/opt/venv/sglang",
        "editable": False,
        "files": {},
        "audit": {"modified": [], "missing": [], "extra": []},
    },
}


def facts(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """A healthy host's facts but for `changes`, each by its dotted path."""
    found = copy.deepcopy(_HEALTHY)
    for path, value in (changes or {}).items():
        *above, last = path.split(".")
        place = found
        for key in above:
            place = place[key]
        place[last] = value
    return found
