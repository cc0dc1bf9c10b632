"""How far a start has come, from its log lines alone.

Shard counts reach the journal late: SGLang redraws its bar with a carriage return and no
newline (BAR_FORMAT, srt/utils/common.py:125 in 0.5.12.post1), and journald keeps what a stream
wrote until a newline or 48 KiB. Silence while weights load is therefore no stall by itself.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from opsctl.sglang import lines as ln

Phase = Literal[
    "starting",
    "loading weights",
    "kv cache",
    "graph capture",
    "draft model",
    "warm-up",
    "ready",
]

# A phase is left only forwards; "draft model" covers the drafter's own weights, KV cache and
# graphs, which print the same lines as the target's a second time.
_ORDER: tuple[Phase, ...] = (
    "starting",
    "loading weights",
    "kv cache",
    "graph capture",
    "draft model",
    "warm-up",
    "ready",
)

_ENTERED_BY: dict[type[ln.LogLine], Phase] = {
    ln.KvCacheAllocated: "kv cache",
    ln.MemoryPoolEnd: "kv cache",
    ln.GraphCapture: "graph capture",
    ln.DraftRunnerReady: "draft model",
    ln.UvicornRunning: "warm-up",
    ln.ServerReady: "ready",
}


@dataclass(slots=True)
class LoadProgress:
    """Fed with every parsed line of one start; pure, so that a test can replay a log.

    `fraction` is that of the current phase (0 to 1), None where the log gives none.
    `last_progress_at` is the `at` of the last line that moved anything: a stall is measured
    from there. Lines of several ranks count once each, which never moves a phase back.
    """

    phase: Phase = "starting"
    fraction: float | None = None
    last_progress_at: float | None = None
    started_at: float | None = None
    ready_at: float | None = None
    kv_tokens: int | None = None
    weights_s: float | None = None  # of the slowest rank
    entered: dict[Phase, float] = field(default_factory=dict)  # when, by the lines' own times
    _detail: str = ""
    _loads: tuple[str, ...] = ()  # ranks that finished the target's weights

    @property
    def label(self) -> str:
        """The phase and its count: `loading weights 43/64 shards 67 %`."""
        return f"{self.phase} {self._detail}".strip()

    def feed(self, line: ln.LogLine, at: float) -> bool:
        """Take in one line, written at `at` (Unix seconds). True if it was progress."""
        if self.started_at is None:
            self.started_at = at
            self.entered[self.phase] = at
        before = self.phase
        moved = self._take(line, at)
        if moved:
            self.last_progress_at = at
        if self.phase != before:
            self.entered[self.phase] = at
        return moved

    @property
    def spans(self) -> list[tuple[Phase, float, float]]:
        """(phase, begin, end) of what is behind it, in seconds since the first line."""
        began = self.started_at or 0.0
        return [
            (phase, self.entered[phase] - began, end - began)
            for phase, end in zip(self.entered, [*self.entered.values()][1:], strict=False)
        ]

    def _take(self, line: ln.LogLine, at: float) -> bool:
        if isinstance(line, ln.WeightShards):
            phase: Phase = "draft model" if self._past("loading weights") else "loading weights"
            return self._count(phase, line.done, line.total, "shards")
        if isinstance(line, ln.CapturingBatches):
            phase = "draft model" if self._past("graph capture") else "graph capture"
            return self._count(phase, line.done, line.total, "batch sizes")
        if isinstance(line, ln.DdtreeMetrics):
            return False
        if isinstance(line, ln.LoadWeightBegin):
            self._enter("draft model" if line.rank in self._loads else "loading weights")
        elif isinstance(line, ln.LoadWeightEnd):
            self._weights_loaded(line)
        elif isinstance(line, ln.KvCacheAllocated):
            self.kv_tokens = self.kv_tokens or line.tokens  # the target's comes first
        elif isinstance(line, ln.ServerReady):
            self.ready_at = at
        if (entered := _ENTERED_BY.get(type(line))) is not None:
            self._enter(entered)
        return True

    def _past(self, phase: Phase) -> bool:
        return _ORDER.index(self.phase) > _ORDER.index(phase)

    def _weights_loaded(self, line: ln.LoadWeightEnd) -> None:
        if line.rank in self._loads:  # the second load on a rank is the drafter's
            self._enter("draft model")
            return
        self._loads += (line.rank,)
        if line.elapsed_s is not None:
            self.weights_s = max(self.weights_s or 0.0, line.elapsed_s)
        self._enter("loading weights")

    def _enter(self, phase: Phase) -> None:
        if _ORDER.index(phase) > _ORDER.index(self.phase):
            self.phase, self.fraction, self._detail = phase, None, ""

    def _count(self, phase: Phase, done: int, total: int, unit: str) -> bool:
        self._enter(phase)
        if self.phase != phase or total <= 0:
            return False
        fraction, before = min(done / total, 1.0), self.fraction
        self.fraction = fraction
        self._detail = f"{done}/{total} {unit} {fraction:.0%}".replace("%", " %")
        return before is None or fraction != before


def estimate_remaining(history: Sequence[float], elapsed: float) -> float | None:
    """Seconds until ready, by the median of earlier loads' durations (seconds).

    None without history; 0.0 once `elapsed` has passed that median.
    """
    if not history:
        return None
    return max(statistics.median(history) - elapsed, 0.0)
