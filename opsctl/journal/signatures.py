"""From the entries of one start to what went wrong in it, by the rules of `rules.yaml`.

A kind is chosen by tier (causes before wrappers before consequences; a death notice never),
then by time (the first rank to speak before its echoes), then by the rules' order. An
exception that no rule knows is `python_error`; a death without words is `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from opsctl.journal.diagnosis import Diagnosis, Severity
from opsctl.journal.entry import Entry
from opsctl.journal.redact import redact
from opsctl.journal.remedies import specific_remedy
from opsctl.journal.rules import TIERS, Rule, rule_base
from opsctl.journal.traceback import EXCEPTION, Collector, Traceback
from opsctl.sglang import lines as ln
from opsctl.sglang.grammar import parse, split_lines, split_prefix
from opsctl.sglang.progress import LoadProgress, Phase

_PHASES: Final[dict[Phase, str]] = {
    "starting": "start",
    "loading weights": "load",
    "kv cache": "load",
    "graph capture": "capture",
    "draft model": "load",
    "warm-up": "warmup",
    "ready": "serve",
}
# Decode steps at accept length 1 before that is a finding: two lines at the default interval.
_ZERO_STEPS: Final = 64
_DEFAULT_INTERVAL: Final = 40  # --decode-log-interval
_NOTHING_ACCEPTED: Final = 1.05
_PYTHON_ERROR_REMEDY: Final = (
    "An exception that opsctl has no rule for ended a process of the server. Its traceback "
    "says where; if a patched file is in it, roll the patch set back."
)
_UNKNOWN_REMEDY: Final = (
    "The server died without a word of its own in this journal. Look in the kernel's log (OOM "
    "killer, Xid) and for lines lost to rate limiting."
)


@dataclass(frozen=True, slots=True)
class _Finding:
    kind: str
    tier: int
    index: int
    order: int
    severity: Severity
    phase: str
    action: str
    remedy: str

    @property
    def incident(self) -> bool:
        return self.severity != "warning"


@dataclass(slots=True)
class _Reader:
    """Goes once through the entries and keeps what the judgement needs."""

    findings: list[_Finding] = field(default_factory=list)
    tracebacks: Collector = field(default_factory=Collector)
    progress: LoadProgress = field(default_factory=LoadProgress)
    exceptions: list[int] = field(default_factory=list)  # with a record's own prefix
    last_alive: int = -1  # entry that shows work done
    stopped_at: int | None = None  # entry that asks it to stop: its end is no incident then
    interval: int = _DEFAULT_INTERVAL
    lengths: list[tuple[int, float]] = field(default_factory=list)

    def read(self, index: int, entry: Entry) -> None:
        for line in split_lines(entry.message):
            self._line(index, entry, line)

    def _line(self, index: int, entry: Entry, line: str) -> None:
        parsed = parse(line)
        if parsed is not None:
            self._log_line(index, entry, parsed)
            # Most lines of a long journal, and they say nothing else, unless another rank
            # wrote into the middle of one.
            steady = isinstance(parsed, ln.DecodeBatch | ln.PrefillBatch)
            if steady and "rror" not in line and "Traceback" not in line:
                return
        base = rule_base()
        rank, text = split_prefix(line)
        if base.ignore.search(text):
            if "POST /" in text and text.rstrip().endswith("200 OK"):
                self.last_alive = index
            return
        if self.tracebacks.feed(index, entry.pid, line):
            return  # source code
        if base.any_sign.search(text):
            self._match(index, entry, text)
        elif rank and EXCEPTION.match(text):
            self.exceptions.append(index)
        self._stop(index, entry, text)

    def _match(self, index: int, entry: Entry, text: str) -> None:
        origin = "manager" if entry.from_manager else entry.identifier
        for rule in rule_base().rules:
            if rule.origin and rule.origin != origin:
                continue
            if rule.pattern.search(text):
                self.findings.append(self._finding(rule, index))

    def _finding(self, rule: Rule, index: int) -> _Finding:
        return _Finding(
            kind=rule.kind,
            tier=TIERS[rule.tier],
            index=index,
            order=rule.order,
            severity=rule.severity,
            phase=self.phase() or rule.phase,
            action=rule.action,
            remedy=rule.remedy,
        )

    def phase(self) -> str:
        """Where the start stood, empty if no line has said so yet."""
        return "" if self.progress.phase == "starting" else _PHASES[self.progress.phase]

    def _log_line(self, index: int, entry: Entry, parsed: ln.LogLine) -> None:
        self.progress.feed(parsed, entry.realtime)
        match parsed:
            case ln.ServerArgs(values=values):
                interval = values.get("decode_log_interval")
                self.interval = interval if isinstance(interval, int) else self.interval
            case ln.DecodeBatch(accept_len=length):
                self.last_alive = index
                if length is not None:
                    self.lengths.append((index, length))
            case ln.PrefillBatch() | ln.ServerReady():
                self.last_alive = index

    def _stop(self, index: int, entry: Entry, text: str) -> None:
        asked = (entry.from_manager or entry.identifier == "systemd") and text.startswith(
            "Stopping "
        )
        if self.stopped_at is None and (asked or text.startswith("SIGTERM received")):
            self.stopped_at = index


def diagnose(entries: Sequence[Entry]) -> Diagnosis:
    """What the journal of one start says as a whole; entries in their order, of that start only.

    Lines that quote users (request logs) are never searched, and what is shown of any line is
    redacted.
    """
    reader = _Reader()
    for index, entry in enumerate(entries):
        reader.read(index, entry)
    findings = _judged(reader)
    trace = _last_traceback(reader.tracebacks.found)
    incidents = [finding for finding in findings if finding.incident]
    if not incidents:
        also = _unique(finding.kind for finding in findings)
        return _zero_acceptance(reader, entries, also) or Diagnosis(incident=False, also=also)
    first = min(incidents, key=lambda finding: (finding.tier, finding.index, finding.order))
    if first.tier == TIERS["notice"]:  # somebody died, nobody said why
        first = _Finding(
            kind="unknown",
            tier=first.tier,
            index=first.index,
            order=first.order,
            severity="fatal",
            phase=first.phase,
            action="investigate",
            remedy=_UNKNOWN_REMEDY,
        )
        findings.append(first)
    decisive = tuple(dict.fromkeys(f.index for f in findings if f.kind == first.kind))
    return Diagnosis(
        incident=True,
        kind=first.kind,
        also=tuple(kind for kind in _unique(f.kind for f in findings) if kind != first.kind),
        severity=first.severity,
        phase=first.phase or reader.phase(),
        action=first.action,
        decisive=decisive,
        lines=tuple(redact(entries[index].message) for index in decisive),
        remedy=specific_remedy(first.kind, entries[first.index].message) or first.remedy,
        last_traceback=redact(trace.text) if trace else "",
    )


def _judged(reader: _Reader) -> list[_Finding]:
    """Findings that count: a wanted stop, signs of life and handled requests regarded."""
    stopped_at = float("inf") if reader.stopped_at is None else reader.stopped_at
    relenting = {rule.kind for rule in rule_base().rules if rule.unless_alive}
    handled = [trace for trace in reader.tracebacks.found if trace.handled]
    findings = [
        finding
        for finding in reader.findings
        if not (finding.kind in relenting and finding.index < reader.last_alive)
        and not (finding.kind == "child_died" and finding.index > stopped_at)
        and not any(trace.covers(finding.index) for trace in handled)
    ]
    return findings + list(_python_errors(reader, findings))


def _python_errors(reader: _Reader, findings: Sequence[_Finding]) -> Iterator[_Finding]:
    """Exceptions that no rule knows, of processes that did not outlive them."""
    last_death = max((f.index for f in findings if f.kind == "child_died"), default=-1)
    known = [f.index for f in findings if f.tier < TIERS["late"] and f.incident]

    def survived(index: int) -> bool:
        return index < reader.last_alive and index > last_death

    for trace in reader.tracebacks.found:
        if trace.handled or any(trace.covers(index) for index in known):
            continue
        if trace.fatal or (trace.exception and not survived(trace.start)):
            yield _python_error(trace.exception_at if trace.exception else trace.start)
    for index in reader.exceptions:
        if index not in known and not survived(index):
            yield _python_error(index)


def _python_error(index: int) -> _Finding:
    return _Finding(
        kind="python_error",
        tier=TIERS["python_error"],
        index=index,
        order=0,
        severity="fatal",
        phase="",
        action="investigate",
        remedy=_PYTHON_ERROR_REMEDY,
    )


def _zero_acceptance(
    reader: _Reader, entries: Sequence[Entry], also: tuple[str, ...]
) -> Diagnosis | None:
    """Every decode line at accept length 1, over enough steps to mean it."""
    lengths = reader.lengths
    if len(lengths) < 2 or len(lengths) * reader.interval < _ZERO_STEPS:
        return None
    if any(length > _NOTHING_ACCEPTED for _, length in lengths):
        return None
    shown = (lengths[0][0], lengths[-1][0])
    return Diagnosis(
        incident=True,
        kind="zero_acceptance",
        also=also,
        severity="error",
        phase="serve",
        action="change_config",
        decisive=shown,
        lines=tuple(redact(entries[index].message) for index in shown),
        remedy=(
            "No drafted token is ever accepted: the drafter does not see what the target sees. "
            "Check that it belongs to this target, the layers it reads, its rope theta and mask "
            "token. Answers are right but slower than without speculation."
        ),
    )


def _last_traceback(found: Iterable[Traceback]) -> Traceback | None:
    candidates = [trace for trace in found if not trace.handled]
    fatal = [trace for trace in candidates if trace.fatal]
    return next(reversed(fatal or candidates), None)


def _unique(kinds: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(kinds))
