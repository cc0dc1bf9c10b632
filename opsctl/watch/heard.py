"""What a feed says of its host: the events that the model is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsctl.journal import Entry
from opsctl.units.properties import Unit


@dataclass(frozen=True, slots=True)
class Connecting:
    """`attempt` counts from 1, anew after each connection that was made."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Connected:
    where: str


@dataclass(frozen=True, slots=True)
class Lost:
    """There is no connection, or none any more; it is tried again in `retry_in` seconds."""

    message: str
    remedy: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the state folder says, as of the host's operation `recorded`."""

    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UnitSeen:
    unit: Unit


@dataclass(frozen=True, slots=True)
class Entries:
    """Of the journal, oldest first, each once."""

    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """What was there before the feed came has been said; what follows is new."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The server's endpoint, asked what is under way. Where `fault` says why it did not answer,
    the rest is None. `usage` is the share of the KV pool that is in use, 0 to 1."""

    running: int | None = None
    queued: int | None = None
    usage: float | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """Something that the session had to say, such as what the guard did."""

    text: str


What = Connecting | Connected | Lost | Recorded | UnitSeen | Entries | CaughtUp | Asked | Note


@dataclass(frozen=True, slots=True)
class Heard:
    """`at` is monotonic seconds on this side."""

    host: str
    at: float
    what: What
