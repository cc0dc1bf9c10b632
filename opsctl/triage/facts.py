"""What was found out about a service, as values that rules can ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from opsctl.journal import Diagnosis
from opsctl.text import duration
from opsctl.units.properties import Unit

Http = Literal["answers", "silent", "refused", "unasked"]
Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Start:
    """One start of the unit, by what the journal still has of it. Times are Unix seconds by the
    host's clock; `accept_len` is the mean over `decode_lines`."""

    invocation: str
    began: float
    ended: float
    lines: int
    diagnosis: Diagnosis
    ready_at: float | None = None
    phase: str = ""
    moved_at: float | None = None  # the last sign of progress of its load
    batch_at: float | None = None  # the last batch that was computed
    decode_lines: int = 0
    accept_len: float | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)

    @property
    def worked(self) -> bool:
        return self.ready_at is not None

    @property
    def decode_steps(self) -> int:
        """A decode line stands for --decode-log-interval steps."""
        interval = self.arguments.get("decode_log_interval", "")
        return self.decode_lines * (int(interval) if interval.isdigit() else 40)


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one service on one host. What could not be had is None or empty, and `missing` says why.

    `starts` are the newest first. `machine` is the host's `machine`, `orphans` the list of its
    `find_orphans`, `generations` and `audit` its records, oldest first; `drift` are files that are
    not as recorded, of which `reinstalled` are the wheel's own again. `budget` and `stall`
    (seconds) and `floor` (tokens a verify step) are the inventory's.
    """

    host: str
    now: float
    unit: Unit | None = None
    starts: Sequence[Start] = ()
    http: Http = "unasked"
    http_text: str = ""
    healthy: bool | None = None
    machine: Record = field(default_factory=dict)
    orphans: Sequence[Record] = ()
    generation: Record | None = None
    generations: Sequence[Record] = ()
    audit: Sequence[Record] = ()
    loads: Sequence[float] = ()
    lock: Record | None = None
    guard: Record | None = None  # the terms of a rollout that lost its client
    swap: Record | None = None
    state_fault: Record | None = None
    drift: Sequence[str] = ()
    reinstalled: Sequence[str] = ()
    unit_drift: Sequence[str] = ()
    version: str = ""
    weights: Mapping[str, str] = field(default_factory=dict)
    budget: float = 900.0
    stall: float = 300.0
    floor: float | None = None
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def present(self) -> Start | None:
        """The start of now, or of a unit that is down the last one."""
        if self.unit is None:
            return None
        own = (s for s in self.starts if s.invocation == self.unit.invocation_id)
        return next(own, self.starts[0] if self.starts and self.down else None)

    @property
    def before(self) -> Start | None:
        """The newest start that is not the present one."""
        present = self.present
        return next((start for start in self.starts if start is not present), None)

    @property
    def last_worked(self) -> Start | None:
        """The newest start that came up, other than one that is up."""
        now = self.present if self.ready else None
        return next((start for start in self.starts if start.worked and start is not now), None)

    @property
    def down(self) -> bool:
        return self.unit is not None and self.unit.down

    @property
    def ready(self) -> bool:
        """It runs, and has said that it is ready, in its journal or by /health (503 before)."""
        said = self.present is not None and self.present.worked
        return self.unit is not None and self.unit.active and (said or self.healthy is True)

    @property
    def up(self) -> bool:
        """It runs, has said so itself, and answers."""
        return self.ready and self.http == "answers"

    @property
    def loading(self) -> bool:
        return self.unit is not None and not self.down and not self.ready

    @property
    def overdue(self) -> str:
        """Why a load takes too long; "" while it does not."""
        if self.unit is None:
            return ""
        since, present = self.unit.active_for or 0.0, self.present
        if since > self.budget:
            return "that is over its budget"
        still = self.now - present.moved_at if present and present.moved_at else since
        return f"no progress for {duration(still)}" if still > self.stall else ""

    @property
    def looping(self) -> bool:
        """systemd starts it again and again, or has given up doing so."""
        if self.unit is None or self.ready:
            return False
        return self.unit.n_restarts >= 2 or self.unit.result == "start-limit-hit"

    @property
    def incident(self) -> tuple[Start, Diagnosis] | None:
        """What the present start says, or, where that is fresh or silent and systemd made it after
        a crash, or it is down again, the last one."""
        present, before = self.present, self.before
        if present is not None and present.diagnosis.incident:
            return present, present.diagnosis
        fresh = not self.ready and not (present is not None and present.worked)
        again = self.down or (self.unit is not None and self.unit.n_restarts > 0)
        if fresh and again and before is not None and before.diagnosis.incident:
            return before, before.diagnosis
        return None

    @property
    def troubled_since(self) -> float:
        """From when on a message of the machine's may be the cause: five minutes before the start
        that failed, or, of one that had worked, the hour before it ended."""
        found = self.incident
        start = found[0] if found else self.present or self.before
        if start is None:
            return self.now - 3600.0
        return start.ended - 3600.0 if start.worked else start.began - 300.0

    @property
    def changed(self) -> Record | None:
        """The generation in place, where it was put there after the service last worked."""
        worked = self.last_worked
        if worked is None or self.ready or not (self.generation and self.generation.get("set")):
            return None
        swaps = [e for e in self.audit if e.get("event") == "swap"]
        at = float(swaps[-1]["time"]) if swaps else float(self.generation.get("created") or 0.0)
        return self.generation if at > worked.began else None
