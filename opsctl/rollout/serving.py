"""What the present start and the ones before it say: serving, loading, or the last incident."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from opsctl.errors import Refused
from opsctl.journal import Diagnosis, Entry, diagnose
from opsctl.report import Verdict
from opsctl.rollout.session import Session
from opsctl.sglang import LoadProgress, ServerError, parse_all
from opsctl.text import clock
from opsctl.units.properties import Unit

# Of srt/entrypoints/http_server.py, the same in 0.5.11, 0.5.12.post1 and 0.5.23.
READY_TEXT = "The server is fired up and ready to roll!"

# Where an incident is looked for, and how much of the start that it ended is then read: the
# telling lines of weeks are few, and a status must not ship megabytes to find none.
_TELLING_LINES = 500
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
    """Over all starts of the unit in its last lines and in those before them that may tell."""
    entries = session.read("", _TELLING_LINES).entries
    starts = groupby(entries, key=lambda entry: entry.invocation)
    for invocation, lines in reversed([(key, list(lines)) for key, lines in starts]):
        found = _crash(lines)
        if found is not None and invocation:
            # Without the lines between those that tell, a traceback lacks its frames.
            found = _crash(session.read(invocation, _INCIDENT_LINES).entries)
        if found is not None:
            return found
    return None


def _crash(lines: Sequence[Entry]) -> Incident | None:
    if not lines:  # vacuumed away meanwhile
        return None
    found = diagnose(lines, now=lines[-1].realtime)
    if not found.crash:
        return None
    first = lines[found.decisive[0]] if found.decisive else lines[-1]
    return Incident(first.realtime, first.invocation, found)


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


def not_running(session: Session, unit: Unit) -> Refused:
    """With the last crash as the cause, where the journal tells of one."""
    incident = last_incident(session) if unit.exists else None
    cause = f"; last incident: {incident.text}" if incident else ""
    return Refused(
        f"{unit.name} is {unit.state}: there is no server to ask{cause}",
        remedy=f"{incident.diagnosis.remedy if incident else ''} "
        f"Start it with: opsctl restart {session.host.name}".strip(),
        code="not_running",
    )


def require_ready(session: Session, unit: Unit) -> None:
    """Raises Refused: the unit is not running, or is still loading."""
    if not unit.active:
        raise not_running(session, unit)
    if not announced(session, unit):
        raise Refused(
            f"{unit.name} is still loading: {load_label(session, unit)}",
            remedy=f"opsctl wait {session.host.name}",
            code="loading",
        )
