"""The wait as a state machine: fed by unit states, journal lines and the clock. Pure.

Ready means that *this* start said so and the server answered. A looping unit reads
active/running between two crashes; only its InvocationID and NRestarts betray it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from opsctl.journal import Entry
from opsctl.sglang import LoadProgress, ServerReady, estimate_remaining, parse_all
from opsctl.units.properties import Unit

# A queued start that systemd drops (start-limit-hit, a failed dependency) makes no new
# invocation; this long without one, in a stopped state, is an answer too.
START_GRACE = 5.0

# Reading so many bytes from disk is progress even while the log is silent: SGLang draws its
# shard bar with carriage returns, which journald holds back until a newline.
READ_STEP = 64 << 20

Cause = Literal[
    "start_refused",
    "unit_failed",
    "unit_stopped",
    "restarted_itself",
    "budget_exceeded",
    "stalled",
    "never_answered",
    "port_taken",
]

# uvicorn binds after the whole load, logs this, and then waits for its own shutdown for ever:
# the unit stays active and never gets ready (seen with 0.5.12.post1).
_BIND_FAILED = re.compile(r"\[Errno 98\] .*address already in use")


@dataclass(frozen=True, slots=True)
class Failed:
    """Why the wait is over without a ready server."""

    cause: Cause
    message: str
    remedy: str = ""


@dataclass(slots=True)
class Readiness:
    """`now` is monotonic seconds on this side; `budget` and `stall` are seconds from `started`.

    Feed it with `see_unit`, `see_entries` and `tick`; then `failed` or `announced` tells. The
    HTTP answer, the last condition, is the caller's to add.
    """

    previous_invocation: str
    budget: float
    stall: float
    started: float
    history: list[float] = field(default_factory=list)
    restarts_before: int = 0  # NRestarts that is no news; a start by hand resets it to 0
    progress: LoadProgress = field(default_factory=LoadProgress)
    invocation: str = ""
    failed: Failed | None = None
    announced: Entry | None = None
    announced_at: float | None = None
    announced_delay: float = 0.0  # on the host, from the word to its sending
    entries: list[Entry] = field(default_factory=list)
    _moved_at: float = field(init=False)
    _read_bytes: int = 0

    def __post_init__(self) -> None:
        self._moved_at = self.started

    def see_unit(self, unit: Unit, now: float) -> None:
        """Take in one look at the unit."""
        if self.failed is not None:
            return
        if not self.invocation:
            if unit.invocation_id and unit.invocation_id != self.previous_invocation:
                self.invocation = unit.invocation_id
                self._moved_at = now
            elif unit.down and now - self.started > START_GRACE:
                self._fail(
                    "start_refused",
                    f"systemd did not start {unit.name}: it is {unit.state}",
                    f"see `systemctl status {unit.name}` on the host",
                )
                return
            else:
                return
        if unit.invocation_id != self.invocation or unit.n_restarts > self.restarts_before:
            self._fail(
                "restarted_itself",
                f"{unit.name} died and systemd started it again "
                f"({unit.n_restarts} automatic restarts): a crash loop, not a slow start",
            )
        elif unit.active_state == "failed" or unit.sub_state == "auto-restart":
            self._fail(
                "unit_failed",
                f"{unit.name} died while loading: {unit.state}, exit status "
                f"{unit.exec_main_status}",
            )
        elif unit.active_state in {"inactive", "deactivating"}:
            self._fail("unit_stopped", f"{unit.name} was stopped while it loaded: {unit.state}")
        elif unit.read_bytes - self._read_bytes >= READ_STEP:
            self._read_bytes = unit.read_bytes
            self._moved_at = now

    def see_entries(self, entries: list[Entry], now: float, host_time: float | None = None) -> None:
        """Take in journal entries; those of any other start do not count.

        `host_time` is the host's clock (Unix seconds) when it sent them.
        """
        for entry in entries:
            if not self.invocation and entry.invocation != self.previous_invocation:
                self.invocation = entry.invocation
            if not entry.invocation or entry.invocation != self.invocation:
                continue
            self.entries.append(entry)
            if entry.from_manager:
                continue
            if self.failed is None and _BIND_FAILED.search(entry.message):
                self._fail("port_taken", "the server cannot listen: its port is taken")
            for line in parse_all(entry.message):
                if self.progress.feed(line, entry.realtime):
                    self._moved_at = now
                if isinstance(line, ServerReady) and self.announced is None:
                    self.announced, self.announced_at = entry, now
                    self.announced_delay = max(0.0, (host_time or 0.0) - entry.realtime)

    def tick(self, now: float) -> None:
        """Let time pass: the budget, and the bound on silence."""
        if self.failed is not None:
            return
        elapsed = now - self.started
        late = elapsed > self.budget or now - self._moved_at > self.stall
        if late and self.announced is not None:
            self._fail(
                "never_answered",
                "the server said ready but gave no HTTP answer",
                "check endpoint, listen and port of the service in the inventory",
            )
        elif elapsed > self.budget:
            self._fail(
                "budget_exceeded",
                f"not ready within the budget of {self.budget:.0f} s; it was at: "
                f"{self.progress.label}",
                "raise load.budget or --budget if loads on this host take longer",
            )
        elif now - self._moved_at > self.stall:
            self._fail(
                "stalled",
                f"no sign of progress for {self.stall:.0f} s; it was at: {self.progress.label}",
                "look at the host's disk and GPUs; raise load.stall or --stall if this is normal",
            )

    def remaining(self, now: float) -> float | None:
        """Estimated seconds until ready, from earlier loads on this host; None without any."""
        return estimate_remaining(self.history, now - self.started)

    def _fail(self, cause: Cause, message: str, remedy: str = "") -> None:
        self.failed = Failed(cause, message, remedy)
