"""What the core says while it works.

The core never prints. Every long operation takes an `Emit`, and the terminal, `--json`
and the tests are three readers of the same events.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["start", "progress", "ok", "info", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Event:
    """One step's change of state. `at` is Unix time in seconds on this machine."""

    step: str
    state: State
    message: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    at: float = field(default_factory=time.time)


Emit = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The reader that does not listen."""
