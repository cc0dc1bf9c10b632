"""One start of the service, as its lines tell it: progress, figures, diagnosis."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from opsctl.acceptance import Measured, Sample
from opsctl.journal import Diagnoser, Diagnosis, Entry
from opsctl.journal.acceptance import Speakers, data_parallel_rank
from opsctl.rollout.metering import Start as Arguments
from opsctl.sglang import DecodeBatch, LoadProgress, LogLine, PrefillBatch, ServerArgs
from opsctl.watch.heard import Asked

# Figures are of so many seconds up to the last decode line.
LATELY: Final = 60.0
_SAMPLES: Final = 2000  # decode lines that are kept for them
# Without a new line only silence can make a difference, which counts in minutes.
_JUDGE_EVERY: Final = 10.0
# What numbers say of a start as a whole comes and goes with its first few lines, and with other
# prompts: while it is watched, only what is found for so long without a break is told, seconds.
_STEADY: Final = 60.0
_NOTHING: Final = Diagnosis(incident=False)


@dataclass(slots=True)
class Now:
    """What is under way, by whoever said so last: a line of the journal or the endpoint. Of
    data-parallel ranks, each with requests and a pool of its own, the sum and the fullest pool."""

    running: int | None = None
    queued: int | None = None
    usage: float | None = None
    source: str = ""
    at: float = 0.0  # Unix seconds, by the host's clock
    _ranks: dict[str, tuple[int | None, int | None, float | None]] = field(default_factory=dict)

    def of_line(self, line: DecodeBatch | PrefillBatch, at: float) -> None:
        running = line.running
        if isinstance(line, PrefillBatch) and running is not None:
            running += line.new_seqs or 0  # it counts those that run beside the new ones
        self._ranks[data_parallel_rank(line)] = (running, line.queue, line.usage)
        runs, waits, pools = (
            [value for value in column if value is not None]
            for column in zip(*self._ranks.values(), strict=True)
        )
        self._take(
            int(sum(runs)) if runs else None,
            int(sum(waits)) if waits else None,
            max(pools, default=None),
            "journal",
            at,
        )

    def of_answer(self, answer: Asked, at: float) -> None:
        self._ranks.clear()
        self._take(answer.running, answer.queued, answer.usage, "endpoint", at)

    def _take(
        self,
        running: int | None,
        queued: int | None,
        usage: float | None,
        source: str,
        at: float,
    ) -> None:
        # What one source leaves out, the other may have said.
        self.running = self.running if running is None else running
        self.queued = self.queued if queued is None else queued
        self.usage = self.usage if usage is None else usage
        self.source, self.at = source, at


@dataclass(slots=True)
class Start:
    """Fed with the entries of one invocation. `number` counts the starts that were seen, from 0;
    `patched` is as of `Diagnoser`. Bounded: a start may run for months."""

    number: int
    invocation: str
    patched: Collection[str] = ()
    progress: LoadProgress = field(default_factory=LoadProgress)
    now: Now = field(default_factory=Now)
    answer: Asked | None = None  # of the endpoint, the last
    answered_at: float = 0.0
    diagnosis: Diagnosis = _NOTHING
    last_at: float = 0.0  # of its last entry, Unix seconds
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    _arguments: Arguments = field(default_factory=Arguments)
    _speakers: Speakers = field(default_factory=Speakers)
    _diagnoser: Diagnoser = field(init=False)
    _measured: Measured | None = None
    _judged_at: float = 0.0
    _news: bool = False
    _suspected: tuple[str, float] = ("", 0.0)  # a kind, and since when (host's clock)

    def __post_init__(self) -> None:
        self._diagnoser = Diagnoser(patched=self.patched)

    def feed(self, number: int, entry: Entry, lines: Sequence[LogLine]) -> list[Sample]:
        """Take in the entry `number`, which says `lines`; the decode lines that count in it."""
        self._diagnoser.feed(number, entry)
        self._news = True
        self.last_at = max(self.last_at, entry.realtime)
        found = []
        for line in lines:
            self.progress.feed(line, entry.realtime)
            if isinstance(line, ServerArgs):
                self._arguments = Arguments.of(line.values)
            elif isinstance(line, DecodeBatch | PrefillBatch):
                self.now.of_line(line, entry.realtime)
            if isinstance(line, DecodeBatch) and self._speakers.first(line):
                steps = self._arguments.interval
                found.append(Sample(entry.realtime, self.invocation, line, steps))
        self.samples += found
        if found:
            self._measured = None
        return found

    def asked(self, answer: Asked, at: float) -> None:
        """Take in what the endpoint said at `at` (Unix seconds, by the host's clock)."""
        if not answer.fault:
            self.now.of_answer(answer, at)
        elif not self.ready:  # nothing listens yet
            return
        self.answer, self.answered_at = answer, at

    @property
    def ready(self) -> bool:
        """It has said so, or has decoded: of a long start the first lines may be gone."""
        return self.progress.ready_at is not None or bool(self.samples)

    @property
    def no_answer(self) -> str:
        """Why the endpoint does not answer; empty where it does, or where the journal has shown
        since that the server works."""
        stands = self.answer is not None and self.answered_at >= self.now.at
        return self.answer.fault if self.answer is not None and stands else ""

    @property
    def draft_tokens(self) -> int | None:
        return self._arguments.draft_tokens

    @property
    def measured(self) -> Measured:
        """Of its decode lines of late: the last `LATELY` seconds before the last of them."""
        if self._measured is None:
            since = self.samples[-1].at - LATELY if self.samples else 0.0
            late = [sample for sample in self.samples if sample.at >= since]
            self._measured = Measured.of(late, draft_tokens=self.draft_tokens)
        return self._measured

    def judge(self, host_now: float | None) -> Diagnosis:
        """What its lines say as a whole. `host_now` is the host's time, up to which silence
        counts; None where the start is over or may be, and its silence says nothing."""
        now = self.last_at if host_now is None else host_now
        if not self._news and now - self._judged_at < _JUDGE_EVERY:
            return self.diagnosis
        self._diagnoser.goes_on(now)
        found = self._diagnoser.result()
        first, self._judged_at, self._news = not self._judged_at, now, False
        self.diagnosis = found if self._steady(found, now, first=first) else _NOTHING
        return self.diagnosis

    def _steady(self, found: Diagnosis, now: float, *, first: bool) -> bool:
        """Whether to tell of it; one look at a start that has long run is no fleeting one."""
        if not found.incident or found.crash:
            self._suspected = ("", 0.0)
            return True
        if self._suspected[0] != found.kind:
            self._suspected = (found.kind, now - _STEADY if first else now)
        return now - self._suspected[1] >= _STEADY

    def ended(self) -> Diagnosis:
        """What it ended with."""
        return self.judge(None)
