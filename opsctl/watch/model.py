"""What is known of one host: fed with what its feed hears and with the clock. Pure.

Everything that a start says is kept with that start (`Start`), so that figures of one that is
over cannot pass for those of the next; only plots and the journal's tail go on across starts,
with the restart marked in them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from opsctl.acceptance import Sample
from opsctl.journal import Diagnosis, Entry, redact
from opsctl.rollout import diagnosing
from opsctl.sglang import DecodeBatch, PrefillBatch, estimate_remaining, parse_all
from opsctl.units.properties import Unit
from opsctl.watch import heard
from opsctl.watch.routine import is_routine
from opsctl.watch.series import Series
from opsctl.watch.start import Start

# Rows of the journal's tail: those that say something, and the last of all.
_TOLD: Final = 2000
_ALL: Final = 500
_LONGEST: Final = 500  # characters of a row
_RESTARTS: Final = 100
# The host speaks every two seconds; so much later what is shown counts as old, seconds.
STALE: Final = 6.0

Link = Literal["connecting", "up", "lost"]
RowKind = Literal["line", "restart", "link", "note"]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the tail. `at` is Unix seconds by the host's clock; `start` is the number of the
    start that it belongs to, `number` the entry's, -1 for a row that is no entry."""

    kind: RowKind
    at: float
    text: str
    start: int
    number: int = -1


@dataclass(frozen=True, slots=True)
class Ended:
    """A start that is over, and what its lines say of why."""

    number: int
    invocation: str
    at: float  # its last entry, Unix seconds
    diagnosis: Diagnosis


@dataclass(slots=True)
class Plots:
    """The figures that are kept over time."""

    accept_len: Series = field(default_factory=Series)
    throughput: Series = field(default_factory=Series)  # tokens per second
    running: Series = field(default_factory=Series)
    usage: Series = field(default_factory=Series)

    def take(self, sample: Sample, start: int) -> None:
        line = sample.line
        if not isinstance(line, DecodeBatch):
            return
        weight = float(max(line.running, 1) * sample.steps)  # as `Acceptance` weighs
        for series, value, heavy in (
            (self.accept_len, line.accept_len, weight),
            (self.throughput, line.gen_throughput, 1.0),
            (self.running, line.running, 1.0),
            (self.usage, line.usage, 1.0),
        ):
            if value is not None:
                series.add(sample.at, float(value), start=start, weight=heavy)


@dataclass(slots=True)
class HostModel:
    """`feed` takes everything in; `now` is monotonic seconds on this side. The attributes are for
    whoever shows them. `told` is the journal's tail without its routine lines, `all` with them;
    `counts` says how many rows either has had so far, by whether it is `all`."""

    name: str
    service: str
    budget: float = 0.0  # seconds that a load may take
    link: Link = "connecting"
    lost: heard.Lost | None = None
    attempt: int = 1
    heard_at: float | None = None  # when the host last spoke
    caught_up: bool = False  # the journal of before the watch has been read
    unit: Unit | None = None
    start: Start | None = None
    before: Start | None = None  # whose last words may still come
    ended: deque[Ended] = field(default_factory=lambda: deque(maxlen=_RESTARTS))
    restarts: deque[float] = field(default_factory=lambda: deque(maxlen=_RESTARTS))
    plots: Plots = field(default_factory=Plots)
    told: deque[Row] = field(default_factory=lambda: deque(maxlen=_TOLD))
    all: deque[Row] = field(default_factory=lambda: deque(maxlen=_ALL))
    loads: tuple[float, ...] = ()  # seconds of earlier ones
    generation: str = ""
    lock: str = ""
    guard: Mapping[str, Any] | None = None  # its terms, while it is armed
    counts: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    _patched: tuple[str, ...] = ()
    _numbers: int = 0
    _starts: int = 0
    _unit_at: float = 0.0

    def feed(self, what: heard.What, now: float) -> None:
        """Take in what the feed said at `now`."""
        match what:
            case heard.Connecting(attempt=attempt):
                self.attempt = attempt
                self.link = "connecting" if self.lost is None else "lost"
            case heard.Connected(where=where):
                self._connected(where, now)
            case heard.Lost():
                self._lost(what, now)
            case heard.Recorded(facts=facts):
                self._recorded(facts)
            case heard.UnitSeen(unit=unit):
                self.heard_at = now
                self._see(unit, now)
            case heard.Entries(entries=entries):
                self.heard_at = now
                self._read(entries)
            case _:
                self._aside(what, now)

    @property
    def settled(self) -> bool:
        """Whether all is known that a first look can find out."""
        if self.lost is not None:
            return True
        if not self.caught_up or self.unit is None:
            return False
        asked = self.start is not None and self.start.answer is not None
        return asked or not self.unit.active or self.loading

    # -- looks ---------------------------------------------------------------------------------

    def host_now(self, now: float) -> float:
        """The host's clock, Unix seconds, as far as its last word tells."""
        return 0.0 if self.unit is None else self.unit.time + max(now - self._unit_at, 0.0)

    def age(self, now: float) -> float | None:
        """Seconds since the host last spoke; None if it never has."""
        return None if self.heard_at is None else max(now - self.heard_at, 0.0)

    def fresh(self, now: float) -> bool:
        """Whether what is shown is how it is now."""
        age = self.age(now)
        return self.link == "up" and age is not None and age < STALE

    def active_for(self, now: float) -> float | None:
        """Seconds that the unit has been active, counted on while nothing is heard."""
        if self.unit is None or not self.unit.active or self.unit.active_for is None:
            return None
        return self.unit.active_for + max(now - self._unit_at, 0.0)

    def remaining(self, now: float) -> float | None:
        """Seconds until it is ready, by earlier loads, as `opsctl wait` has it."""
        elapsed = self.active_for(now)
        return None if elapsed is None else estimate_remaining(self.loads, elapsed)

    @property
    def loading(self) -> bool:
        active = self.unit is not None and self.unit.active and self.caught_up
        return active and self.start is not None and not self.start.ready

    def judge(self, now: float) -> Diagnosis:
        """The diagnosis of the present start, brought up to date."""
        if self.before is not None:
            self.before.ended()
        if self.start is None:
            return Diagnosis(incident=False)
        goes_on = self.fresh(now) and self.unit is not None and not self.unit.down
        return self.start.judge(self.host_now(now) if goes_on else None)

    def last_incident(self) -> tuple[Diagnosis, float, bool] | None:
        """The present start's, else the last one of those before; when (Unix seconds, by the
        host's clock), and whether it is the present start's."""
        if self.start is not None and self.start.diagnosis.incident:
            found = self.start.diagnosis
            return found, self._time_of(found, self.start.last_at), True
        if self.before is not None and self.before.diagnosis.incident:
            found = self.before.diagnosis
            return found, self._time_of(found, self.before.last_at), False
        for ended in reversed(self.ended):
            if ended.diagnosis.incident:
                return ended.diagnosis, ended.at, False
        return None

    def marks(self) -> dict[int, Diagnosis]:
        """The numbers of the entries that decide an incident, and which it is."""
        found = [ended.diagnosis for ended in self.ended]
        found += [start.diagnosis for start in (self.before, self.start) if start is not None]
        return {number: each for each in found if each.incident for number in each.decisive}

    def _time_of(self, found: Diagnosis, otherwise: float) -> float:
        first = min(found.decisive, default=-1)
        rows = (row.at for row in self.told if row.number == first and first >= 0)
        return next(rows, otherwise)

    # -- what comes ----------------------------------------------------------------------------

    def _aside(self, what: heard.CaughtUp | heard.Asked | heard.Note, now: float) -> None:
        """What is no word of the host itself."""
        match what:
            case heard.CaughtUp():
                self.caught_up = True
            case heard.Asked():
                if self.start is not None:
                    self.start.asked(what, self.host_now(now))
            case heard.Note(text=text):
                self._say("note", text, now)

    def _connected(self, where: str, now: float) -> None:
        if self.lost is not None:
            age = self.age(now)
            gap = "" if age is None else f" after {age:.0f} s without a word"
            self._say("link", f"connected again to {where}{gap}", now)
        self.link, self.lost, self.attempt = "up", None, 0

    def _lost(self, lost: heard.Lost, now: float) -> None:
        if self.link == "up":
            self._say("link", f"connection lost: {lost.message}", now)
        self.link, self.lost = "lost", lost

    def _recorded(self, facts: Mapping[str, Any]) -> None:
        generation = facts.get("generation")
        self.loads = tuple(facts.get("loads") or ())
        holder = facts.get("lock") or {}
        self.lock = f"{holder.get('who')}: {holder.get('why') or '-'}" if holder else ""
        self.guard = (facts.get("guard") or {}).get("terms")
        self._patched = tuple(diagnosing.patched_by(facts))
        self.generation = ""
        if generation is not None:
            chosen = generation.get("set")
            label = f"{chosen['name']} {chosen['version']}" if chosen else "no patch set"
            self.generation = f"generation {generation['number']}, {label}"

    def _see(self, unit: Unit, now: float) -> None:
        before = 0 if self.unit is None else self.unit.n_restarts
        self.unit, self._unit_at = unit, now
        invocation = unit.invocation_id
        if not invocation or (self.start is not None and self.start.invocation == invocation):
            return
        if self.start is not None:
            self._close()
            by_itself = unit.n_restarts > before
            whose = f" by systemd, {unit.n_restarts} so far" if by_itself else ""
            text = f"restart{whose}: invocation {invocation[:8]}"
            began = unit.time - (unit.active_for or 0.0)
            self.restarts.append(began)
            self._row(Row("restart", began, text, self._starts))
        self.start = Start(self._starts, invocation, self._patched)
        self._starts += 1

    def _close(self) -> None:
        """The present start is over; the one before it has said all that it will."""
        if self.before is not None:
            last = self.before
            self.ended.append(Ended(last.number, last.invocation, last.last_at, last.ended()))
        self.before = self.start

    def _read(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            start = self._start_of(entry)
            if start is None:  # of a start that nobody saw, or before any
                continue
            number, self._numbers = self._numbers, self._numbers + 1
            lines = parse_all(entry.message)
            for sample in start.feed(number, entry, lines):
                self.plots.take(sample, start.number)
            steady = any(isinstance(line, DecodeBatch | PrefillBatch) for line in lines)
            text = redact(entry.message)[:_LONGEST]
            row = Row("line", entry.realtime, text, start.number, number)
            self._row(row, routine=steady or is_routine(entry.message))

    def _start_of(self, entry: Entry) -> Start | None:
        for start in (self.start, self.before):
            if start is not None and entry.invocation == start.invocation:
                return start
        return None if entry.invocation else self.start

    def _say(self, kind: RowKind, text: str, now: float) -> None:
        self._row(Row(kind, self.host_now(now), text, self._starts - 1))

    def _row(self, row: Row, *, routine: bool = False) -> None:
        _append(self.all, row)
        self.counts[True] += 1
        if not routine:
            _append(self.told, row)
            self.counts[False] += 1


def _append(rows: deque[Row], row: Row) -> None:
    """The last words of a start may come after the news of the next one; they stand before it."""
    later = []
    while rows and rows[-1].start > row.start:
        later.append(rows.pop())
    rows.append(row)
    rows.extend(reversed(later))
