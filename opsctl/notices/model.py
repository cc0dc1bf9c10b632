"""What a notice says, and the two forms it is sent in."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from opsctl.hostside import notice_form
from opsctl.inventory.notices import Form, Occasion

# `test` is of `opsctl notices test` alone, and goes to every webhook.
Happening = Occasion | Literal["test"]


@dataclass(frozen=True, slots=True)
class Side:
    """Where a rollout began, or where it was going: a generation, and `NAME VERSION` of its set."""

    generation: int | None = None
    set: str | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that happened to one service. `at` is Unix time, `duration_s` seconds."""

    event: Happening
    command: str
    host: str
    service: str
    at: float
    who: str = ""
    why: str = ""
    origin: Side = field(default_factory=Side)
    goal: Side = field(default_factory=Side)
    generation: int | None = None  # in place at the end, where that is known
    verdict: str | None = None
    exit_code: int | None = None
    duration_s: float | None = None
    summary: str = ""
    code: str = ""  # of the cause, stable, for scripts
    cause: str = ""
    remedy: str = ""
    next: str = ""  # a command

    def record(self) -> dict[str, Any]:
        """As `hostside.notice_form` takes it."""
        found = asdict(self)
        found["from"], found["to"] = found.pop("origin"), found.pop("goal")
        return found


def body(notice: Notice, form: Form) -> bytes:
    """The request's body, UTF-8 JSON, within the receiver's limits."""
    return notice_form.body(notice.record(), form)


def headline(notice: Notice) -> str:
    return notice_form.headline(notice.record())
