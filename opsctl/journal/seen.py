"""What the lines so far say beside signs of a kind: progress, life, stops, tracebacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from opsctl.journal.context import PHASES
from opsctl.journal.numbers import Numbers
from opsctl.journal.outputs import Outputs
from opsctl.journal.patched import Patched
from opsctl.journal.silence import Silence
from opsctl.journal.traceback import Collector, Traceback
from opsctl.journal.units import Units
from opsctl.sglang import lines as ln
from opsctl.sglang.progress import LoadProgress

_SHOWN: Final = 256  # lines kept for a judgement to show
_EXCEPTIONS: Final = 16
# The server's arguments that give the tokens of a verify step, the first that is set deciding.
_WIDTHS: Final = ("speculative_num_draft_tokens", "speculative_dflash_block_size")


@dataclass(frozen=True, slots=True)
class BareException:
    """An exception's line outside any traceback. `tagged`: in a record of SGLang's."""

    line: int
    text: str
    tagged: bool
    phase: str


@dataclass(slots=True)
class Seen:
    """Positions are line numbers, -1 for never."""

    now: float | None = None
    patched: Patched = field(default_factory=Patched)
    numbers: Numbers = field(default_factory=Numbers)
    outputs: Outputs = field(default_factory=Outputs)
    silence: Silence = field(default_factory=Silence)
    units: Units = field(default_factory=Units)
    tracebacks: Collector = field(default_factory=Collector)
    progress: LoadProgress = field(default_factory=LoadProgress)
    exceptions: list[BareException] = field(default_factory=list)
    shown: dict[int, str] = field(default_factory=dict)
    progress_at: int = -1
    ready_at: int = -1
    uvicorn_at: int = -1
    model_info_at: int = -1
    batch_at: int = -1
    decoded_at: int = -1
    answered_at: int = -1  # a POST with 200
    stopped_at: int | None = None  # asked to stop: what ends then ends as wanted
    killed_at: int = -1  # ended after that, by words that sound like a crash
    child_died_at: int = -1  # by its parent's words
    decoded_since_ready: bool = False
    starting: bool = False  # a line belongs to a start, and tells no progress
    warned: bool = False  # a line calls itself a warning
    served_at: int = -1  # the first sign that it serves, in the whole input
    begins_midway: bool = False  # the first lines of the start are not in the input
    benign: int = 0  # warnings that say nothing
    telling: int = 0  # lines of the start's progress, and decode lines

    def phase(self) -> str:
        """Where the start stands, empty if no line has said so yet."""
        if self.progress.phase != "starting":
            return PHASES[self.progress.phase]
        if self.batch_at >= 0:
            return "serve"
        return "warmup" if self.model_info_at >= 0 else ""

    @property
    def loading(self) -> bool:
        """Whether a start is under way, so that a health check has to fail."""
        return self.progress_at >= 0 > self.ready_at

    @property
    def died_at(self) -> int:
        """The last line that tells of a process's or the unit's end."""
        return max(self.child_died_at, self.units.died_at)

    def before_start(self, line: int) -> bool:
        """Whether a start's progress follows `line`, and nothing was served before that."""
        return line < self.progress_at and not 0 <= self.served_at < line

    def alive_after(self, line: int) -> bool:
        """Whether the server worked on after `line`, and no process died since."""
        alive = max(self.batch_at, self.answered_at, self.ready_at)
        return self.died_at < line < alive

    def goes_on_after(self, line: int) -> bool:
        """Whether batches follow `line` without another start, and no process died since."""
        return max(self.died_at, self.progress_at) < line < self.batch_at

    def batch(self, number: int, at: float, batch: ln.LogLine, text: str = "") -> None:
        if isinstance(batch, ln.DecodeBatch):
            self.decoded(number, at, batch, text)
        elif isinstance(batch, ln.PrefillBatch):
            self.batch_at = number
            self._serves(number)
            running = (batch.running or 0) + (batch.new_seqs or 0)
            self.silence.batch(number, at, running, batch.new_tokens)

    def decoded(
        self, number: int, at: float, batch: ln.DecodeBatch, text: str, alike: Sequence[float] = ()
    ) -> None:
        """A decode line, and the accept lengths of it and those that it stands for, if several."""
        self.batch_at = self.decoded_at = number
        self._serves(number)
        self.telling += len(alike) or 1
        self.decoded_since_ready = self.ready_at >= 0
        self.numbers.decode(number, batch, text, alike)
        if self.units.decoded(at, self.progress_at):
            self.stopped_at = None
        self.silence.batch(number, at, batch.running)

    def arguments(self, parsed: ln.ServerArgs) -> None:
        """A start begins: its own state anew, what was found before it stays."""
        values = parsed.values
        interval = values.get("decode_log_interval")
        self.numbers.interval = interval if isinstance(interval, int) else self.numbers.interval
        widths = (values.get(name) for name in _WIDTHS)
        self.numbers.drafted = next((n for n in widths if isinstance(n, int)), None)
        if self.ready_at >= 0 or self.stopped_at is not None or self.died_at >= 0:
            self.progress, self.stopped_at = LoadProgress(), None
            self.ready_at = self.model_info_at = self.uvicorn_at = -1
            self.silence.starts_again()

    def _serves(self, number: int) -> None:
        if self.served_at < 0:
            self.served_at = number

    def log_line(self, number: int, at: float, parsed: ln.LogLine) -> None:
        if isinstance(parsed, ln.DdtreeMetrics | ln.VerifyCompleted):
            return
        if isinstance(parsed, ln.DecodeBatch | ln.PrefillBatch):
            self.batch(number, at, parsed, "")
            return
        self.progress.feed(parsed, at)
        self.progress_at = number
        self.telling += 1
        self.silence.progress(number, at, parsed)
        if isinstance(parsed, ln.UvicornRunning):
            self.uvicorn_at = number
        if isinstance(parsed, ln.ServerReady):
            self.ready_at = number
            self._serves(number)
            self.decoded_since_ready = False

    def exception(self, number: int, text: str, *, tagged: bool) -> None:
        """An exception's line that no traceback and no rule accounts for."""
        if len(self.exceptions) < _EXCEPTIONS:
            self.exceptions.append(BareException(number, text, tagged, self.phase()))

    def show(self, number: int, text: str) -> None:
        """Keep a line that a judgement in the end may want to show."""
        if len(self.shown) >= _SHOWN:
            del self.shown[list(self.shown)[_SHOWN // 2]]
        self.shown[number] = text

    def last_traceback(self) -> Traceback | None:
        candidates = [trace for trace in self.tracebacks.found if not trace.handled]
        fatal = [trace for trace in candidates if trace.fatal]
        return next(reversed(fatal or candidates), None)
