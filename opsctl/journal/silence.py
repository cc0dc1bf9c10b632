"""What should have been said and was not: hangs, and health checks that say the wrong thing.

Times are Unix seconds by one clock; 0.0 is a line without a time. Where the input is finished,
what does not follow never came; where the start still runs, silence counts up to now.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from opsctl.sglang import lines as ln

# `GET /health 200`, `10.0.0.14:60288 - "GET /health_generate HTTP/1.1" 503 Service Unavailable`.
ACCESS: Final = re.compile(
    r"(?:[^\"]{0,120}?\")?(?P<method>GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS) (?P<path>/\S*)"
    r"(?: HTTP/[\d.]+)?\"?:? (?:-> ?)?(?P<status>\d{3})\b"
)
NCCL: Final = "sglang is using nccl"
# Ranks find each other in less than a minute when all is well.
_RENDEZVOUS: Final = 120.0
# The longest load on record took 11 minutes, most of it in silence.
_LOAD: Final = 1800.0
_HEALTHY_ANSWERS: Final = 3  # without a batch between them
# Of those in a row so many first ones are kept, or last ones: a reader must not leave these out.
KEPT_ANSWERS: Final = 2 * _HEALTHY_ANSWERS
_PROBED_FOR: Final = 15.0
# Decode lines come every 40 steps: seconds, even at one request and long contexts.
_UNDER_LOAD: Final = 60.0
_DEATH: Final = 3.0
_WAITING: Final = 3  # health checks that fail
_ABORTED_PROBE: Final = 1  # new tokens of a health check's prefill


@dataclass(frozen=True, slots=True)
class Silent:
    """A kind that silence gives, and the lines around it."""

    kind: str
    lines: tuple[int, ...]
    remedy: str = ""
    severity: str = ""
    action: str = ""


@dataclass(slots=True)
class Silence:
    """Fed with progress, batches and health checks in their order."""

    begun: dict[str, int] = field(default_factory=dict)  # rank: line of its distributed begin
    ended: set[str] = field(default_factory=set)
    _progress: tuple[int, float] = (-1, 0.0)  # line and time of the last that moved the load
    _rendezvous: int = -1  # the last line of that phase
    _last: tuple[int, float] = (-1, 0.0)  # of any line with a time
    _ready: bool = False
    _serving: bool = False
    _batch: tuple[int, float, int] = (-1, 0.0, 0)  # line, time, requests that go on
    _answers: list[tuple[int, float]] = field(default_factory=list)  # /health_generate 200
    _answers_under_load: list[int] = field(default_factory=list)  # any /health 200
    # Health checks that failed since the load last moved: times of the first and last, count.
    _failing: tuple[float, float, int] | None = None
    _crashed: tuple[int, float] | None = None  # a child's death
    _healthy_after: tuple[int, ...] = ()
    _probe_prefill: bool = False
    _aborted: int | None = None

    def starts_again(self) -> None:
        """Another start begins in the same input."""
        last = self._last
        self.__init__()  # type: ignore[misc]
        self._last = last

    def seen(self, line: int, at: float) -> None:
        """Any line at all."""
        if at:
            self._last = (line, max(at, self._last[1]))

    def progress(self, line: int, at: float, parsed: ln.LogLine) -> None:
        """A line that moves the load on."""
        self._progress = (line, at)
        self._failing = None
        match parsed:
            case ln.DistributedBegin(rank=rank):
                self.begun[rank] = self._rendezvous = line
            case ln.DistributedEnd(rank=rank):
                self.ended.add(rank)
            case ln.ServerReady():
                self._ready = True

    def nccl(self, line: int, at: float) -> None:
        """NCCL's version, printed between the begin and the end of the rendezvous."""
        self._rendezvous = line
        self._progress = (line, at)

    def batch(self, line: int, at: float, running: int, new_tokens: int | None = None) -> None:
        """A decode line, or a prefill line with `new_tokens`."""
        self._serving = True
        self._batch = (line, at, running)
        self._answers.clear()
        self._answers_under_load.clear()
        self._probe_prefill = new_tokens == _ABORTED_PROBE
        self._aborted = None

    def health(self, line: int, at: float, path: str, status: int) -> None:
        if status != 200:
            first = self._failing[0] if self._failing else at
            self._failing = (first, at, self._failing[2] + 1 if self._failing else 1)
            return
        if path.startswith("/health_generate"):
            del self._answers[KEPT_ANSWERS:]
            self._answers.append((line, at))
        _, since, running = self._batch
        if running and since and at - since > _UNDER_LOAD:
            self._answers_under_load = [*self._answers_under_load[1 - KEPT_ANSWERS :], line]
        crashed = self._crashed
        # It may answer for seconds until its parent, too, is gone.
        if crashed and not self._healthy_after and not 0 < at - crashed[1] < _DEATH:
            self._healthy_after = (crashed[0], line)

    def child_died(self, line: int, at: float) -> None:
        self._crashed = self._crashed or (line, at)

    def aborted(self, line: int) -> None:
        if self._probe_prefill:
            self._aborted = line

    def verdicts(self, now: float | None, *, trace_at: int) -> list[Silent]:
        """What silence says in the end. `trace_at` is the line of the last traceback without
        an exception, -1 without one."""
        found: list[Silent] = []
        if self._healthy_after:
            found.append(Silent("false_healthy", self._healthy_after))
        found += self._healthy(now)
        if self._aborted is not None and trace_at > self._aborted:
            lines = (self._aborted,)
            found.append(Silent("health_hang", lines, severity="error", action="change_config"))
        if not self._ready and not self._serving:
            found += self._hang(now) or self._stall(now)
        return found

    def _healthy(self, now: float | None) -> list[Silent]:
        answers = self._answers
        span = answers[-1][1] - answers[0][1] if answers else 0.0
        timed = bool(answers and answers[0][1])
        if len(answers) >= _HEALTHY_ANSWERS and (not timed or span >= _PROBED_FOR):
            return [Silent("false_healthy", tuple(line for line, _ in answers))]
        if len(self._answers_under_load) >= _HEALTHY_ANSWERS:
            return [Silent("false_healthy", (self._batch[0], *self._answers_under_load))]
        return []

    def _hang(self, now: float | None) -> list[Silent]:
        """The ranks began to find each other, and nothing came after."""
        if self._rendezvous < 0 or self._progress[0] > max(self._rendezvous, *self._begins()):
            return []
        since = self._progress[1]
        until = now if now is not None else self._last[1]
        waited = until - since if since and until else 0.0
        silent = sorted(self.begun.keys() - self.ended)
        if now is not None and waited < _RENDEZVOUS:
            return []
        # A finished input that ends right there: several ranks, or NCCL's own line, must show
        # that the phase was really entered.
        if self.ended and waited < _RENDEZVOUS:
            return []
        who = f"Ranks that began and did not end: {', '.join(silent)}. " if any(silent) else ""
        return [Silent("nccl_hang", (self._rendezvous,), remedy=who)]

    def _begins(self) -> tuple[int, ...]:
        return tuple(self.begun.values()) or (-1,)

    def _stall(self, now: float | None) -> list[Silent]:
        """No progress for longer than any load took, and somebody waiting all the time."""
        line, since = self._progress
        until = now
        if until is None and self._failing is not None and self._failing[2] >= _WAITING:
            until = self._failing[1]
        if line < 0 or not since or until is None or until - since < _LOAD:
            return []
        return [Silent("startup_timeout", (line,), action="investigate")]
