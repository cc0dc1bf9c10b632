"""audit.jsonl in the state folder: what was done to a service, by whom and when; only appended."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, Dict, List

from .install import read_bytes
from .state import State

FILE = "audit.jsonl"
# When it grows past this, the older half of its lines goes.
_LIMIT = 4 << 20


def note(state: State, event: str, **details: Any) -> None:
    """Append one line. That it cannot be written, on a full disk say, must stop nothing."""
    entry = dict({k: v for k, v in details.items() if v not in (None, "")}, event=event)
    entry["time"] = time.time()
    with contextlib.suppress(OSError):
        state.prepare()
        path = state.path(FILE)
        _shorten(path)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, json.dumps(entry, sort_keys=True).encode() + b"\n")
        finally:
            os.close(descriptor)


def entries(state: State, last: int) -> List[Dict[str, Any]]:
    """The last lines that can be read, oldest first."""
    found = []
    for line in (read_bytes(state.path(FILE)) or b"").splitlines()[-last:]:
        with contextlib.suppress(ValueError):  # a torn line of a crash
            entry = json.loads(line)
            if isinstance(entry, dict):
                found.append(entry)
    return found


def _shorten(path: str) -> None:
    try:
        if os.path.getsize(path) <= _LIMIT:
            return
    except FileNotFoundError:
        return
    lines = (read_bytes(path) or b"").splitlines(keepends=True)
    draft = path + ".new"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as f:
        f.writelines(lines[len(lines) // 2 :])
    os.replace(draft, path)
