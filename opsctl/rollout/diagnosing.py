"""`opsctl diagnose`: what a journal says, of a host's present start or from a file."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from opsctl import errors, resources
from opsctl.journal import DecodeRun, Diagnoser, Diagnosis, Gap, Reader
from opsctl.journal.routine import selection
from opsctl.journal.rules import needles
from opsctl.report import DiagnosisReport, Reason
from opsctl.units.properties import Unit

if TYPE_CHECKING:  # a file needs no connection
    from opsctl.rollout.session import Session, StartJournal

# What a start says that has come through its load.
_UP = {"ready", "decode_stats"}


def of_host(session: Session) -> DiagnosisReport:
    """The journal of the present start, or of the last one where the unit is down; where systemd
    has started it again after a crash and it is not up yet, that of the start that crashed."""
    began = time.time()
    facts = session.inspect()
    unit = Unit.from_show(facts["unit"])
    patched = patched_by(facts)
    journal = session.read(unit.invocation_id)
    found = of_start(journal, unit, patched)
    if unit.n_restarts and not found.incident and found.kind not in _UP:
        from opsctl.rollout.serving import last_incident

        incident = last_incident(session)
        if incident is not None and incident.invocation:
            journal = session.read(incident.invocation)
            found = of_start(journal, unit, patched)
    data = {
        "source": "host",
        "invocation": journal.invocation,
        "gaps": [gap.to_json() for gap in journal.gaps],
        "left_out": journal.left_out,
    }
    report = _report(found, session.host.name, len(journal.entries), began, data)
    return report.model_copy(update={"host": session.host.name, "service": session.service.name})


def of_start(journal: StartJournal, unit: Unit, patched: Collection[str] = ()) -> Diagnosis:
    """What a start says, whose `unit` is as it is now; see `Diagnoser` for `patched`."""
    # Where it still loads or serves, silence counts up to now.
    goes_on = not unit.down and unit.invocation_id == journal.invocation
    diagnoser = Diagnoser(now=unit.time if goes_on else None, patched=patched)
    for number, entry in enumerate(journal.entries):
        diagnoser.feed(number, entry)
    _note(diagnoser, journal.gaps)
    return diagnoser.result()


def patched_by(facts: Mapping[str, Any]) -> list[str]:
    """The files of the patch set that is in place, by what the host says of itself."""
    generation = facts.get("generation")
    return list(generation["files"]) if generation and generation.get("set") else []


def _note(diagnoser: Diagnoser, gaps: Iterable[Gap]) -> None:
    for gap in gaps:
        if gap.loses_lines:
            diagnoser.note(gap)


def of_stream(stream: BinaryIO, name: str) -> DiagnosisReport:
    """What a finished input says, in any form that `opsctl.journal.Reader` knows. `name` is what
    the report calls it.

    Raises:
        UsageError: it is a journal in another form.
    """
    began = time.time()
    diagnoser = Diagnoser(patched=_modules_of_sets())
    reader = Reader(stream, selection(needles()))
    for number, item in reader:
        if isinstance(item, DecodeRun):
            diagnoser.feed_run(item)
        else:
            diagnoser.feed(number, item)
    diagnoser.end(reader.backwards())
    _note(diagnoser, reader.gaps)
    data = {"source": name, "gaps": [gap.to_json() for gap in reader.gaps]}
    return _report(diagnoser.result(), name, reader.lines, began, data)


def _modules_of_sets() -> list[str]:
    """Files that only patch sets bring: in a traceback they tell that one is in place."""
    folders = resources.bundled("patches").glob("*/*/files")
    return [
        path.relative_to(folder).as_posix() for folder in folders for path in folder.rglob("*.py")
    ]


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
