"""What the present start and the ones before it say: serving, loading, or the last incident."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from opsctl.journal import Diagnosis, Entry, diagnose
from opsctl.report import Verdict
from opsctl.rollout.session import Session
from opsctl.sglang import LoadProgress, ServerError, parse_all
from opsctl.text import clock
from opsctl.units.properties import Unit

# Of srt/entrypoints/http_server.py, the same in 0.5.11, 0.5.12.post1 and 0.5.23.
READY_TEXT = "The server is fired up and ready to roll!"

# How far back the last incident is looked for.
_INCIDENT_LINES = 5000


@dataclass(frozen=True, slots=True)
class Incident:
    """The last crash that the journal tells of, whichever start it ended."""

    at: float  # Unix seconds, by the host's clock
    invocation: str
    diagnosis: Diagnosis

    @property
    def text(self) -> str:
        return f"{clock(self.at)} {self.diagnosis.summary}"


def last_incident(session: Session) -> Incident | None:
    """Over all starts in the last `_INCIDENT_LINES` lines of the unit."""
    entries = session.journal(None, lines=_INCIDENT_LINES)
    starts: list[list[Entry]] = [
        list(lines) for _, lines in groupby(entries, key=lambda entry: entry.invocation)
    ]
    for lines in reversed(starts):
        found = diagnose(lines, now=lines[-1].realtime)
        if found.crash:
            first = lines[found.decisive[0]] if found.decisive else lines[-1]
            return Incident(first.realtime, first.invocation, found)
    return None


@dataclass(frozen=True, slots=True)
class Serving:
    """Whether the server of this start is up, in the verdicts of a report."""

    verdict: Verdict
    code: str
    text: str
    models: tuple[str, ...] = ()


def serving_of(session: Session, unit: Unit) -> Serving:
    if unit.sub_state == "auto-restart":
        return Serving("fail", "unit_failed", "it died, and systemd is about to start it again")
    if not unit.active:
        return Serving("fail", "not_running", "not running")
    try:
        with session.client() as client:
            models = client.models()
    except ServerError as error:
        if announced(session, unit):
            return Serving("fail", "never_answered", f"loaded, but no answer: {error.message}")
        return Serving("inconclusive", "loading", f"loading: {load_label(session, unit)}")
    if not announced(session, unit):  # the port answers before the warm-up
        text = f"loading: {load_label(session, unit)}"
        return Serving("inconclusive", "loading", text, models)
    return Serving("pass", "", f"serving {', '.join(models)}", models)


def announced(session: Session, unit: Unit) -> bool:
    """The server's own word of readiness in this start's journal, wherever in it."""
    return session.first(unit.invocation_id, READY_TEXT) is not None


def load_label(session: Session, unit: Unit) -> str:
    progress = LoadProgress()
    for entry in session.journal(unit.invocation_id):
        for line in parse_all(entry.message):
            progress.feed(line, entry.realtime)
    since = f", {unit.active_for:.0f} s so far" if unit.active_for else ""
    return progress.label + since
