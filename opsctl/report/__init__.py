"""The result of a command: one JSON object with a versioned schema, the same for all."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from opsctl import errors
from opsctl.events import Event

SCHEMA = "opsctl.report/1"

Verdict = Literal["pass", "fail", "inconclusive", "refused", "error"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Reason(_Model):
    """Why a verdict is what it is. `code` is stable, for scripts."""

    code: str
    message: str
    remedy: str = ""


class EventRecord(_Model):
    """One event of the run; `at` is Unix time in seconds on the machine that ran opsctl."""

    step: str
    state: str
    message: str
    at: float
    data: dict[str, Any] = Field(default_factory=dict)


class Report(_Model):
    """What every command prints with --json. `data` holds what is particular to the command.

    `refused` means that nothing was changed; `error` that there is no conversation with the
    host, or that the command line or a configuration file is wrong.
    """

    schema_: Annotated[str, Field(alias="schema")] = SCHEMA
    command: str
    host: str | None = None
    service: str | None = None
    verdict: Verdict
    exit_code: int
    summary: str
    reasons: tuple[Reason, ...] = ()
    generation: int | None = None
    started_at: float = Field(default_factory=time.time)
    duration_s: float = 0.0
    data: dict[str, Any] = Field(default_factory=dict)
    events: tuple[EventRecord, ...] = ()

    def dump(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)


def record(event: Event) -> EventRecord:
    return EventRecord(
        step=event.step,
        state=event.state,
        message=event.message,
        at=round(event.at, 3),
        data=dict(event.data),
    )


def of_error(
    command: str, error: errors.OpsctlError, *, host: str | None = None, service: str | None = None
) -> Report:
    """The report of a command that ended in an exception of the error tree."""
    unchanged = isinstance(error, errors.Refused | errors.LockHeld)
    return Report(
        command=command,
        host=host,
        service=service,
        verdict="refused" if unchanged else "error",
        exit_code=error.exit_code,
        summary=error.message,
        reasons=(Reason(code=error.code, message=error.message, remedy=error.remedy),),
    )
