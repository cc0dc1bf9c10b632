"""The result of a command: one JSON object with a versioned schema, the same for all."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from opsctl import errors
from opsctl.events import Event

SCHEMA: Final = "opsctl.report/1"

Verdict = Literal["pass", "fail", "inconclusive", "refused", "error"]


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", json_schema_serialization_defaults_required=True
    )


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

    schema_: Annotated[Literal["opsctl.report/1"], Field(alias="schema")] = SCHEMA
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


class DiagnosisReport(Report):
    """The report of `opsctl diagnose`: the diagnosis stands beside the fields of every report.

    The fields are those of `opsctl.journal.Diagnosis`. Where a diagnosis could not be made (the
    file does not exist, say) the report has none of them.
    """

    incident: bool
    kind: str
    also: tuple[str, ...]
    severity: Literal["fatal", "hardware", "error", "degraded", "warn", "info", "ok"]
    phase: str
    action: str
    decisive: tuple[int, ...]
    lines: tuple[str, ...]
    remedy: str
    confidence: Literal["high", "medium", "low"]
    last_traceback: str


def schema_text() -> str:
    """docs/report.schema.json: what a report is, as JSON Schema. What only diagnose adds is in
    it and not required."""
    schema = _plain(Report.model_json_schema(mode="serialization"))
    added = _plain(DiagnosisReport.model_json_schema(mode="serialization"))["properties"]
    schema["properties"] = {**added, **schema["properties"]}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _plain(schema: Any) -> Any:
    """Without what says nothing, and differs between versions of pydantic."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    says_nothing = (("title", str), ("additionalProperties", bool))
    return {
        key: _plain(value)
        for key, value in schema.items()
        if not any(key == name and isinstance(value, kind) and value for name, kind in says_nothing)
    }


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
