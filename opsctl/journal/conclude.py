"""From everything found and seen to one diagnosis."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, cast

from opsctl.journal.context import Surroundings, refined
from opsctl.journal.diagnosis import Diagnosis, Severity
from opsctl.journal.findings import Finding, Findings, finding, kinds_of
from opsctl.journal.redact import redact
from opsctl.journal.remedies import specific_remedy
from opsctl.journal.rules import RuleBase, Tier
from opsctl.journal.seen import Seen
from opsctl.journal.units import unit_of

_LOADING: Final = ("load", "capture", "start")
# Without an incident, what is most worth saying. Then what the lines are, then these.
_NOTEWORTHY: Final = (
    "exit_code_lies", "false_unhealthy", "retract_warning", "journal_gap", "client_error"
)  # fmt: skip
_FAINT: Final = ("request_payload", "benign_warning", "listening_not_ready")
# Said beside an incident; the other quiet kinds would be noise there.
_BESIDE: Final = frozenset({*_NOTEWORTHY, "ready", "listening_not_ready"})
_OF_A_CHILD: Final = re.compile(r"(?i)sigquit|\bsubprocess\b|\bchild\b|\bscheduler\b")
_SHARED_MEMORY: Final = re.compile(r"\bmultiprocessing/(?:shared_memory|reductions)\.py$")
_MOST_DECISIVE: Final = 9


def conclude(base: RuleBase, findings: Findings, seen: Seen) -> Diagnosis:
    """The diagnosis of all that was fed; `findings` is used up by it."""
    judgement = _Judgement(base, findings, seen)
    judgement.judge()
    return judgement.diagnosis()


class _Judgement:
    def __init__(self, base: RuleBase, findings: Findings, seen: Seen) -> None:
        self.base, self.found, self.seen = base, findings, seen
        self.remedies: dict[str, str] = {}  # before the kind's own

    def judge(self) -> None:
        """Drop what was survived, and add what only the whole shows."""
        units = self.seen.units
        self.found.remove(lambda f: f.incident and units.is_other(unit_of(f.text)))
        self._relent()
        self._shared_memory()
        self.found.remove(self._survived)
        self._python_errors()
        self._bare_exceptions()
        self._outputs()
        self._silence()
        self._left_over()
        self._state()
        if self.seen.killed_at >= 0:
            self._add("exit_code_lies", -1, tier="quiet")

    def diagnosis(self) -> Diagnosis:
        traces = self.seen.tracebacks.found
        trace = self.seen.last_traceback()
        around = Surroundings(
            traces=traces,
            patched=self.seen.patched,
            ready_at=self.seen.ready_at,
            decoded_at=self.seen.decoded_at,
            kinds=frozenset(found.kind for found in self.found),
            capturing=any(f.phase == "capture" for f in self.found.of("graph_capture_failure")),
        )
        incidents = [found for found in self.found if found.incident]
        if not incidents:
            return self._no_incident()
        first = min(incidents, key=lambda found: found.rank)
        if first.tier == "notice":  # somebody died, nobody said why
            # Its parent at least saw a child go; of the main process only the manager tells.
            own = "child_died" if _OF_A_CHILD.search(first.text) else "unknown"
            first = replace(
                finding(self.base.kinds[own], first.line, first.text, tier="notice"),
                phase=first.phase or self.seen.phase() or "serve",
                confidence="low",
            )
        known = next((f for f in self.found.of(first.kind) if f.phase_known), first)
        first = replace(first, phase=known.phase, phase_known=known.phase_known)
        first = refined(first, around)
        decisive = self._decisive(first)
        remedy = self.remedies.get(first.kind, "") + self.base.kinds[first.kind].remedy
        others = [f for f in self.found if self._worth_also(f, first)]
        return Diagnosis(
            incident=True,
            kind=first.kind,
            also=tuple(kind for kind in kinds_of(others) if kind != first.kind),
            severity=first.severity,
            phase=first.phase or self.seen.phase(),
            action=first.action,
            decisive=tuple(decisive),
            lines=tuple(decisive.values()),
            remedy=specific_remedy(first.kind, first.text) or remedy,
            confidence=first.confidence,
            last_traceback=redact(trace.text) if trace else "",
        )

    def _worth_also(self, found: Finding, first: Finding) -> bool:
        """Not what only words the same line in general terms, nor a guess beside a cause."""
        if not found.incident:
            return found.kind in _BESIDE
        same = (
            found.tier == first.tier == "cause"
            and found.line == first.line
            and found.order > first.order
        )
        guessed = found.tier == "absence" and found.kind == "python_error"
        return not same and not guessed and found.kind != "unknown"

    def _no_incident(self) -> Diagnosis:
        quiet = list(self.found)
        kinds = {found.kind for found in quiet}
        notable = {found.kind for found in quiet if found.order < 0}
        state = self._state_kind()
        if self.seen.benign >= max(self.seen.telling, 1):
            notable.add("benign_warning")  # mostly that, and they sound like trouble
        order = [*_NOTEWORTHY, *sorted(notable), *([state] if state else []), *_FAINT]
        kind = next((name for name in order if name in kinds or name == state), "")
        if not kind and self.seen.warned:
            kind = "benign_warning"  # a warning that no rule knows, and nothing went wrong
        if not kind:
            return Diagnosis(incident=False)
        first = min(
            (found for found in quiet if found.kind == kind),
            key=lambda found: found.line,
            default=finding(self.base.kinds[kind], -1, "", tier="quiet"),
        )
        silent = kind in {"benign_warning", "request_payload", state}
        decisive = {} if silent else self._decisive(first)
        beside = {"journal_gap"} if self.seen.begins_midway else set()
        also = [k for k in kinds_of(quiet) if k not in {kind, *beside} and k in _BESIDE]
        return Diagnosis(
            incident=False,
            kind=kind,
            also=(*also, *(["journal_gap"] if self.seen.begins_midway else [])),
            severity=first.severity,
            phase=first.phase or self.base.kinds[kind].phase,
            action=first.action,
            decisive=tuple(decisive),
            lines=tuple(decisive.values()),
            remedy=self.base.kinds[kind].remedy,
            confidence=first.confidence if kind in kinds or kind == state else "low",
        )

    def _decisive(self, first: Finding) -> dict[int, str]:
        """The lines of the kind, with the exception that its traceback ends in."""
        lines = {f.line: f.text for f in self.found if f.kind == first.kind and f.line >= 0}
        lines.setdefault(first.line, first.text)
        trace = next((t for t in self.seen.tracebacks.found if t.start == first.line), None)
        if trace is not None and trace.exception:
            lines.setdefault(trace.exception_at, redact(trace.exception))
        if first.kind == "restart_loop":  # what it dies of each time
            lines |= {f.line: f.text for f in self.found.of("python_error")}
        return {line: lines[line] for line in sorted(lines)[:_MOST_DECISIVE] if line >= 0}

    def _relent(self) -> None:
        """A failed health check says nothing where a batch follows, or a start's progress."""
        seen = self.seen
        signs = [sign for sign in self.base.signs if sign.unless_alive]
        relenting = {sign.kind for sign in signs}
        self.found.remove(lambda f: f.kind in relenting and seen.before_start(f.line))
        dropped = self.found.remove(
            lambda f: f.kind in relenting and seen.died_at < f.line < seen.batch_at
        )
        for each in dropped:
            self._add("false_unhealthy", each.line, each.text, tier="quiet")

    def _shared_memory(self) -> None:
        """No space, said of shared memory by the frame that asked for it."""
        for full in self.found.of("disk_full"):
            traces = (t for t in self.seen.tracebacks.found if t.covers(full.line))
            if any(_SHARED_MEMORY.search(file) for t in traces for file, _ in t.frames):
                self._add("shm_exhausted", full.line, full.text, tier="cause", first=True)

    def _survived(self, found: Finding) -> bool:
        """Raised in a traceback that did not end its process, or by a process that was none of
        the server's, and batches followed."""
        if found.kind == "unknown":
            return self.seen.goes_on_after(found.line)
        trace = next((t for t in self.seen.tracebacks.found if t.covers(found.line)), None)
        unharmed = trace is not None and not trace.fatal and found.incident
        return unharmed and self.seen.alive_after(found.line)

    def _python_errors(self) -> None:
        """Exceptions that no rule knows, of processes that did not outlive them."""
        for trace in self.seen.tracebacks.found:
            if trace.handled or trace.explained:
                continue
            if trace.fatal or (trace.exception and not self.seen.alive_after(trace.start)):
                line = trace.exception_at if trace.exception else trace.start
                patched = self.seen.patched.raises(trace)
                self._timed_out(line, trace.exception, trace.phase) or self._add(
                    "python_error_after_patch" if patched else "python_error",
                    line,
                    redact(trace.exception or trace.lines[0]),
                    # Ranks that lose this one fail with errors of NCCL: the first to speak decides.
                    tier="symptom" if trace.fatal else "python_error",
                    phase=trace.phase,
                )

    def _bare_exceptions(self) -> None:
        banner = self.found.of("ssh_banner_timeout")
        for each in self.seen.exceptions:
            if self.seen.alive_after(each.line) or each.line < self.seen.ready_at:
                continue
            if banner and "timeout" in each.text and each.line > banner[0].line:
                self._add("ssh_proxy_failure", banner[0].line, banner[0].text, tier="symptom",
                          first=True)  # fmt: skip
                continue
            if self._timed_out(each.line, each.text, each.phase):
                continue
            moved = not each.tagged and self.seen.progress_at > each.line
            if not banner and not moved:
                tier: Tier = "python_error" if each.tagged else "absence"
                self._add("python_error", each.line, each.text, tier=tier, phase=each.phase)

    def _timed_out(self, line: int, exception: str, phase: str) -> bool:
        """Somebody waited for the load, and gave up."""
        name = exception.partition(":")[0].rpartition(".")[2].rpartition(" ")[2]
        if phase not in _LOADING or name not in {"TimeoutError", "TimeoutExpired"}:
            return False
        self._add("startup_timeout", line, redact(exception), tier="symptom", phase=phase)
        return True

    def _outputs(self) -> None:
        outputs, numbers = self.seen.outputs, self.seen.numbers
        divergent = list(dict.fromkeys(outputs.compared()))
        for line in divergent:
            self._add("graph_divergence", line, tier="output")
        for line in outputs.unlike:
            if line in outputs.degenerate:  # not rounding
                self._add("graph_divergence", line, tier="output")
                continue
            self._add("graph_divergence", line, tier="output", severity="warn",
                      action="investigate")  # fmt: skip
        degenerate = [line for line in outputs.alone() if line not in divergent]
        if numbers.full and (outputs.loops or degenerate):
            for line in (*numbers.full, *outputs.loops):
                self._add("implausible_acceptance", line, tier="output")
        for line in degenerate:
            self._add("degenerate_output", line, tier="output")
        for verdict in numbers.verdicts():
            for line in verdict.lines:
                self._add(verdict.kind, line, numbers.shown(line), tier="output",
                          action=verdict.action)  # fmt: skip

    def _silence(self) -> None:
        if self.seen.stopped_at is not None:
            return
        open_ended = [t.start for t in self.seen.tracebacks.found if not t.exception]
        for silent in self.seen.silence.verdicts(
            self.seen.now, trace_at=max(open_ended, default=-1)
        ):
            # A health check that contradicts a death outweighs how the child died.
            contradicts = silent.kind == "false_healthy" and self.found.of("child_died")
            for line in silent.lines:
                self._add(
                    silent.kind,
                    line,
                    tier="symptom" if contradicts else "absence",
                    severity=cast("Severity | None", silent.severity or None),
                    action=silent.action,
                    first=bool(contradicts),
                )
            self.remedies[silent.kind] = silent.remedy

    def _left_over(self) -> None:
        """Want of memory or of a port, before any work, where an earlier start's process lives."""
        earlier = self.found.of("orphan_processes")
        wanting = self.found.of("cuda_oom", "kv_pool_exhausted", "port_in_use")
        if not earlier or not wanting or earlier[0].line < self.seen.batch_at < wanting[0].line:
            return
        first, at = earlier[0], min(earlier[0].line, wanting[0].line)
        if first.tier != "cause":
            self._add("orphan_processes", first.line, first.text, tier="cause")
            self.found.remove(lambda f: f in wanting and f.line == at)

    def _state(self) -> None:
        seen = self.seen
        if seen.ready_at >= 0:
            self._add("ready", seen.ready_at, tier="quiet")
        elif seen.uvicorn_at >= 0:
            self._add("listening_not_ready", seen.uvicorn_at, tier="quiet")

    def _state_kind(self) -> str:
        seen = self.seen
        if seen.ready_at >= 0 and not seen.decoded_since_ready:
            return "ready"
        if seen.batch_at >= 0:
            return "decode_stats"
        return "load_progress" if seen.progress_at >= 0 or seen.starting else ""

    def _add(
        self,
        kind: str,
        line: int,
        text: str = "",
        *,
        tier: Tier,
        phase: str = "",
        severity: Severity | None = None,
        action: str = "",
        first: bool = False,
    ) -> bool:
        rule = self.base.kinds[kind]
        shown = text or self.seen.shown.get(line, "")
        self.found.add(
            finding(
                rule,
                line,
                shown,
                tier=tier,
                phase=phase,
                severity=severity,
                action=action,
                first=first,
            )
        )
        return True
