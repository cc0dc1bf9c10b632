"""What the kernel's messages mean for a service."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from opsctl.journal import Entry
from opsctl.text import clock

# The rules of the journal name GPU faults and the OOM killer; these are the machine's own.
_SIGNS: Final = (
    ("storage", re.compile(
        r"I/O error|EXT4-fs error|XFS \(.*\): .*(?:shut|Corruption)|BTRFS (?:error|critical)"
        r"|[Rr]emounting filesystem read-only|nvme.*(?:timeout|reset|abort)")),
    ("file_server", re.compile(r"server \S+ not responding")),
    ("stuck", re.compile(r"blocked for more than|soft lockup")),
    ("hardware", re.compile(r"Hardware Error|mce:|temperature above threshold")),
)  # fmt: skip
OOM: Final = "host_oom_killed"
GPU: Final = frozenset({"gpu_lost", "gpu_ecc", "gpu_hang"})


@dataclass(frozen=True, slots=True)
class Message:
    """`kind` is the journal rules' where they know the line, else `storage`, `file_server`,
    `stuck` or `hardware`."""

    at: float  # Unix seconds by the host's clock
    kind: str
    text: str

    def __str__(self) -> str:
        return f"kernel {clock(self.at)}: {self.text}"


def messages(lines: Iterable[Mapping[str, Any]], since: float = 0.0) -> list[Message]:
    """Those of the host's `machine` that mean something, oldest first."""
    found = []
    for line in lines:
        at, text = float(line["time"]), str(line["text"])
        kind = _kind(text) if at >= since else ""
        if kind:
            found.append(Message(at, kind, text))
    return found


@cache
def _kind(text: str) -> str:
    """Each rule asks again, and a broken disk says the same hundreds of times."""
    own = next((kind for kind, pattern in _SIGNS if pattern.search(text)), "")
    if own:
        return own
    from opsctl.journal import diagnose

    found = diagnose([Entry(0.0, text, identifier="kernel")], now=0.0)
    return found.kind if found.kind in GPU | {OOM, "gpu_xid_software"} else ""
