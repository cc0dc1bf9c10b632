"""`opsctl metrics`: a span of the host's journal and the endpoints, measured; changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opsctl import errors
from opsctl.acceptance import (
    DEFAULT_INTERVAL,
    Endpoints,
    Measured,
    Placement,
    Sample,
    before,
    latest,
    placements,
    reconcile,
    samples_of,
)
from opsctl.errors import Refused
from opsctl.journal import Diagnosis, Entry
from opsctl.report import Reason, Report
from opsctl.rollout import diagnosing
from opsctl.rollout.reports import plain_report
from opsctl.rollout.serving import READY_TEXT
from opsctl.rollout.session import Session
from opsctl.sglang import ServerArgs, ServerError, parse_all
from opsctl.text import clock, counted
from opsctl.units.properties import Unit

# Filtered on the host, so that a day of journal does not travel.
_GREP = "Decode batch|DDTREE metrics"
_LINES = 20_000
# A crash is at the end of its start.
_TAIL = 1000
_LOG = 5000  # entries of the audit log, of which a deploy makes some ten
# A journal entry is stamped by its sender and received a little later, seconds.
_OVERLAP = 2.0
_PROVED = {"confirmed", "found"}

NOTHING = "no decode line in this span: send traffic or widen it"


@dataclass(frozen=True, slots=True)
class Scope:
    """Of what: the present start, or since a generation's start, or the last so many seconds."""

    generation: int | None = None
    last: float | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """One look. `truncated` says that the journal has more lines than were read."""

    unit: Unit
    label: str
    measured: Measured
    endpoints: Endpoints
    generation: int | None
    since: float | None
    truncated: bool
    incident: Diagnosis


@dataclass(frozen=True, slots=True)
class Previous:
    """The generation before, in its last start that became ready; `note` where there is none."""

    stay: Placement | None = None
    invocation: str = ""
    measured: Measured | None = None
    record: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def label(self) -> str:
        chosen = self.record.get("set")
        name = f"{chosen['name']} {chosen['version']}" if chosen else "no patch set"
        return f"generation {self.stay.number} ({name})" if self.stay else ""

    def to_json(self) -> dict[str, Any] | None:
        if self.stay is None:
            return None
        return {
            "generation": self.stay.number,
            "set": self.record.get("set"),
            "version": self.record.get("version"),
            "since": self.stay.since,
            "until": self.stay.until,
            "invocation": self.invocation or None,
            "measured": self.measured.to_json() if self.measured else None,
        }


@dataclass(frozen=True, slots=True)
class Start:
    """What a start's server arguments say of its lines."""

    interval: int = DEFAULT_INTERVAL
    draft_tokens: int | None = None

    @classmethod
    def of(cls, arguments: Mapping[str, object]) -> Start:
        return cls(
            _whole(arguments, "decode_log_interval") or DEFAULT_INTERVAL,
            _whole(arguments, "speculative_num_draft_tokens"),
        )


class Meter:
    """Reads one span, and at each further `read` only what is new in it."""

    def __init__(self, session: Session, scope: Scope) -> None:
        self._session = session
        self._scope = scope
        self._records: dict[int, Mapping[str, Any]] = {}
        self._stays: list[Placement] = []
        self._samples: list[Sample] = []
        self._seen: set[str] = set()
        self._invocation = ""
        self._truncated = False
        self._starts: dict[str, Start] = {}
        self._incident = Diagnosis(incident=False)
        self._look_up()

    def _look_up(self) -> None:
        records: list[dict[str, Any]] = self._session.call("generations", damaged=True)
        self._records = {record["number"]: record for record in records}
        log: list[dict[str, Any]] = self._session.call("audit_log", last=_LOG)
        self._stays = placements(log, self._found(log))

    def _found(self, log: list[dict[str, Any]]) -> int | None:
        """What the first swap replaced, if the log goes back to it: the deploy after that."""
        found = min(self._records, default=None)
        stays = placements(log)
        if found is None or not stays:
            return found
        first = stays[0].number
        staged = any(e.get("event") == "stage" and e.get("number") == first for e in log)
        replaced = self._records.get(first, {}).get("predecessor")
        return found if staged and replaced == found else None

    @property
    def stay(self) -> Placement | None:
        """Of the generation that the span begins with.

        Raises:
            Refused: it was never in place.
        """
        number = self._scope.generation
        if number is None:
            return self._stays[-1] if self._stays else None
        stay = latest(self._stays, number)
        if stay is None:
            known = ", ".join(str(n) for n in sorted({stay.number for stay in self._stays}))
            raise Refused(
                f"generation {number} was never in place here",
                remedy=f"choose one of: {known}" if known else "deploy first; see opsctl history",
                code="generation_missing",
            )
        return stay

    def read(self) -> Reading:
        """Look at the host and its server.

        Raises:
            Refused: the scope's generation was never in place.
        """
        stay = self.stay
        unit = self._session.unit()
        since = self._since(unit, stay)
        changed = unit.invocation_id != self._invocation
        if changed and self._whole_start:
            self._samples, self._seen = [], set()
        if changed or not unit.active:
            self._incident = _incident(self._session, unit)
        self._invocation = unit.invocation_id
        self._take(self._fetch(unit, since), since)
        endpoints = ask(self._session) if unit.active else Endpoints()
        return Reading(
            unit=unit,
            label=self._label(stay),
            measured=Measured.of(self._samples, draft_tokens=self._drafts()),
            endpoints=endpoints,
            generation=stay.number if stay else None,
            since=since,
            truncated=self._truncated,
            incident=self._incident,
        )

    def _start(self, invocation: str) -> Start:
        if invocation not in self._starts:
            self._starts[invocation] = Start.of(arguments_of(self._session, invocation))
        return self._starts[invocation]

    def _drafts(self) -> int | None:
        """Drafted tokens a step and the bonus, where all starts of the span agree."""
        found = {self._start(sample.start).draft_tokens for sample in self._samples}
        return found.pop() if len(found) == 1 else None

    @property
    def _whole_start(self) -> bool:
        return self._scope.last is None and self._scope.generation is None

    @property
    def lifetime(self) -> bool:
        """The span is that of the server's own counters."""
        return self._whole_start

    def _since(self, unit: Unit, stay: Placement | None) -> float | None:
        if self._scope.last is not None:
            return unit.time - self._scope.last
        return stay.since if self._scope.generation is not None and stay else None

    def _fetch(self, unit: Unit, since: float | None) -> list[Entry]:
        if self._whole_start and not unit.invocation_id:
            return []
        newest = self._samples[-1].at - _OVERLAP if self._samples else None
        entries = self._session.journal(
            unit.invocation_id if self._whole_start else None,
            lines=_LINES,
            since=since if newest is None else max(newest, since or 0.0),
            grep=_GREP,
        )
        self._truncated = self._truncated or len(entries) >= _LINES
        return entries

    def _take(self, entries: Iterable[Entry], since: float | None) -> None:
        fresh = [entry for entry in entries if not entry.cursor or entry.cursor not in self._seen]
        self._seen.update(entry.cursor for entry in fresh)
        self._samples += samples_of(fresh, lambda start: self._start(start).interval)
        if since is not None:
            self._samples = [sample for sample in self._samples if sample.at >= since]

    def _label(self, stay: Placement | None) -> str:
        if self._scope.last is not None:
            return f"the last {self._scope.last:g} s"
        if self._scope.generation is None or stay is None:
            return "the present start"
        when = f", {clock(stay.since)}" if stay.since else ""
        return f"since the start of generation {stay.number}{when}"

    def previous(self) -> Previous:
        """The generation before the span's own, as it last ran."""
        stay = self.stay
        good = {n for n, record in self._records.items() if record.get("status") in _PROVED}
        other = before(self._stays, stay, good) if stay else None
        if other is None:
            return Previous(note="no generation that proved itself was in place before")
        record = self._records[other.number]
        starts = [
            entry
            for entry in self._session.journal(None, lines=200, since=other.since, grep=READY_TEXT)
            if other.until is None or entry.realtime < other.until
        ]
        if not starts:
            note = f"the journal has no start of generation {other.number} any more"
            return Previous(other, record=record, note=note)
        invocation = starts[-1].invocation
        entries = self._session.journal(invocation, lines=_LINES, grep=_GREP)
        start = self._start(invocation)
        measured = Measured.of(
            samples_of(entries, lambda _: start.interval), draft_tokens=start.draft_tokens
        )
        note = "" if measured.acceptance.count else "the journal has no decode line of it"
        return Previous(other, invocation, measured, record, note)


def arguments_of(session: Session, invocation: str) -> Mapping[str, object]:
    """The server arguments that a start printed; empty where the journal has none."""
    if not invocation:
        return {}
    for entry in session.journal(invocation, lines=1, grep="server_args=ServerArgs"):
        for line in parse_all(entry.message):
            if isinstance(line, ServerArgs):
                return line.values
    return {}


def ask(session: Session) -> Endpoints:
    """`/server_info` and `/metrics`, each for itself."""
    info: dict[str, Any] | None = None
    metrics: dict[str, float] | None = None
    faults: list[str] = []
    with session.client() as client:
        try:
            info = client.server_info()
        except ServerError as error:
            faults.append(error.message)
        try:
            metrics = client.metrics()
        except ServerError as error:
            missing = error.status == 404
            faults.append("/metrics: not served (--enable-metrics)" if missing else error.message)
    return Endpoints(info, metrics, tuple(faults))


def _incident(session: Session, unit: Unit) -> Diagnosis:
    if not unit.invocation_id:
        return Diagnosis(incident=False)
    return diagnosing.of_start(session.read(unit.invocation_id, lines=_TAIL), unit)


def _whole(arguments: Mapping[str, object], name: str) -> int | None:
    value = arguments.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def report_of(session: Session, reading: Reading, previous: Previous, *, lifetime: bool) -> Report:
    """fail for a dead or crashed start, inconclusive without a decode line, else pass."""
    measured = reading.measured
    questions = reconcile(measured, reading.endpoints, lifetime=lifetime)
    report = plain_report(
        session,
        "metrics",
        _summary(reading),
        generation=reading.generation,
        data={
            "invocation": reading.unit.invocation_id,
            "span": {
                "label": reading.label,
                "since": reading.since,
                "now": reading.unit.time,
                "truncated": reading.truncated,
            },
            "sglang": reading.endpoints.version,
            "acceptance": measured.acceptance.to_json(),
            "measured": measured.to_json(),
            "sources": [question.to_json() for question in questions],
            "previous": previous.to_json(),
            "previous_note": previous.note,
            "prometheus": dict(reading.endpoints.metrics or {}),
            "endpoint_faults": list(reading.endpoints.faults),
            "incident": reading.incident.to_json() if reading.incident.incident else None,
        },
    )
    if not reading.unit.active or reading.incident.crash:
        remedy = f"opsctl status {session.host.name}"
        code = reading.incident.kind if reading.incident.crash else "not_running"
        reason = Reason(code=code, message=report.summary, remedy=remedy)
        exit_code = errors.EXIT_NOT_RESTORED
        return report.model_copy(
            update={"verdict": "fail", "exit_code": exit_code, "reasons": (reason,)}
        )
    if measured.acceptance.count == 0:
        remedy = "a decode line comes every --decode-log-interval steps, 40 by default"
        reason = Reason(code="no_decode_lines", message=NOTHING, remedy=remedy)
        exit_code = errors.EXIT_INCONCLUSIVE
        return report.model_copy(
            update={"verdict": "inconclusive", "exit_code": exit_code, "reasons": (reason,)}
        )
    return report


def _summary(reading: Reading) -> str:
    acceptance = reading.measured.acceptance
    length, lines = acceptance.accept_len, counted(acceptance.count, "decode line")
    if not acceptance.count:
        text = NOTHING
    elif length is None:
        text = f"no speculation in {lines}"
    else:
        text = f"accept len {length.mean:.2f} (p50 {length.p50:.2f}) over {lines}"
    if reading.truncated:
        text += ", the last that were read"
    if reading.incident.crash:
        return f"this start crashed: {reading.incident.kind}; {text}"
    if not reading.unit.active:
        return f"{reading.unit.name} is {reading.unit.state}; {text}"
    return text
