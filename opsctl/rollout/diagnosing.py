"""`opsctl diagnose`: what a journal says, of a host's present start or from a file."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

from opsctl import errors, resources
from opsctl.journal import Diagnoser, Diagnosis, Entry, entry_from_text
from opsctl.report import DiagnosisReport, Reason
from opsctl.rollout.session import Session
from opsctl.units.properties import Unit


def of_host(session: Session) -> DiagnosisReport:
    """The journal of the present start, or of the last one where the unit is down."""
    began = time.time()
    facts = session.inspect()
    unit = Unit.from_show(facts["unit"])
    generation = facts["generation"]
    patched = generation["files"] if generation and generation.get("set") else ()
    # A unit that still loads or serves: silence counts up to now.
    diagnoser = Diagnoser(now=None if unit.down else unit.time, patched=list(patched))
    count = _fed(diagnoser, session.journal(unit.invocation_id or None))
    data = {"source": "host", "invocation": unit.invocation_id}
    report = _report(diagnoser.result(), session.host.name, count, began, data)
    return report.model_copy(update={"host": session.host.name, "service": session.service.name})


def of_lines(lines: Iterable[bytes], name: str) -> DiagnosisReport:
    """What a finished input says: `journalctl -o json`, its short forms, kubectl logs, docker
    compose, or bare lines. `name` is what the report calls it."""
    began = time.time()
    diagnoser = Diagnoser(patched=_modules_of_sets())
    count = _fed(diagnoser, _entries(lines))
    return _report(diagnoser.result(), name, count, began, {"source": name})


def _modules_of_sets() -> list[str]:
    """Files that only patch sets bring: in a traceback they tell that one is in place."""
    folders = resources.bundled("patches").glob("*/*/files")
    return [
        path.relative_to(folder).as_posix() for folder in folders for path in folder.rglob("*.py")
    ]


def _fed(diagnoser: Diagnoser, entries: Iterable[Entry]) -> int:
    count = 0
    for number, entry in enumerate(entries):
        diagnoser.feed(number, entry)
        count = number + 1
    return count


def _entries(lines: Iterable[bytes]) -> Iterator[Entry]:
    for raw in lines:
        fields = _object(raw) if raw.startswith(b"{") else None
        text = raw.decode("utf-8", "replace")
        yield entry_from_text(text) if fields is None else Entry.from_json(fields)


def _object(raw: bytes) -> dict[str, Any] | None:
    """An object of journalctl's; None for whatever else begins with a brace."""
    try:
        fields = json.loads(raw)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) and "MESSAGE" in fields else None


def _report(
    found: Diagnosis, name: str, count: int, began: float, data: dict[str, Any]
) -> DiagnosisReport:
    shown = found.to_json()
    common: dict[str, Any] = {
        "command": "diagnose",
        "started_at": began,
        "duration_s": round(time.time() - began, 3),
        "data": {**data, "entries": count},
        **shown,
    }
    if found.incident:
        return DiagnosisReport(
            verdict="fail",
            exit_code=errors.EXIT_NOT_RESTORED,
            summary=f"{name}: {found.summary}",
            reasons=(Reason(code=found.kind, message=found.summary, remedy=found.remedy),),
            **common,
        )
    if not count:
        # Missing evidence is no evidence of health.
        text = f"{name}: there is no line to judge"
        return DiagnosisReport(
            verdict="inconclusive", exit_code=errors.EXIT_INCONCLUSIVE, summary=text, **common
        )
    text = f"{name}: no incident" + (f", {found.kind}" if found.kind else "")
    return DiagnosisReport(verdict="pass", exit_code=errors.EXIT_OK, summary=text, **common)
