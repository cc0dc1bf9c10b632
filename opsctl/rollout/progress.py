"""How far a playbook came that was begun on this machine: for whoever goes on after a lost client.

The host needs none of this: its guard puts the service right by itself.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import platformdirs


@dataclass(frozen=True, slots=True)
class Entry:
    """The step that was begun last. `at` is Unix time, seconds."""

    playbook: str
    step: str
    at: float


@dataclass(frozen=True, slots=True)
class Log:
    """Written before each step. A disk that takes none is no reason to end a rollout."""

    host: str
    service: str
    playbook: str

    def begin(self, step: str) -> None:
        path = _path(self.host, self.service)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(asdict(Entry(self.playbook, step, time.time()))), "utf-8")

    def forget(self) -> None:
        with contextlib.suppress(OSError):
            _path(self.host, self.service).unlink()


def read(host: str, service: str) -> Entry | None:
    """The last one that was not forgotten; None where there is none, or it cannot be read."""
    try:
        found = json.loads(_path(host, service).read_text(encoding="utf-8"))
        return Entry(str(found["playbook"]), str(found["step"]), float(found["at"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _path(host: str, service: str) -> Path:
    return platformdirs.user_state_path("opsctl") / "playbooks" / f"{host} {service}.json"
