"""What a journal does not hold, as far as it shows: lines lost, cut, hidden or out of time.

Sequence numbers (`__SEQNUM`, and `i=` in `__CURSOR`) are not judged: journald numbers the
entries of all units together, so those of one unit have holes in any sound journal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from opsctl.journal.entry import TOO_LONG, Entry

GapKind = Literal["suppressed", "rotated", "hidden", "cut", "midway", "clock"]

# What a line that tells of a gap contains, whatever else is searched for.
NEEDLES: Final = ("Suppressed ", "Journal has been rotated", "Vacuuming done", " blob data]")
_TELLING: Final = (*NEEDLES, TOO_LONG)
# systemd 252, src/journal/journald-rate-limit.c and journald-server.c; src/shared/logs-show.c.
_SUPPRESSED: Final = re.compile(r"Suppressed (\d+) messages")
_ROTATED: Final = re.compile(r"Journal has been rotated|Vacuuming done, freed ")
_BLOB: Final = re.compile(r"\[[\d.]+[KMGT]?B? blob data\]")
# Seconds that the clock may be set by before the silence around it means nothing: chrony and
# systemd-timesyncd slew smaller errors than that away.
_JUMP: Final = 2.0
_LATE: Final = 2.0  # seconds; the two clocks are read one after the other

_REMEDIES: Final[dict[GapKind, str]] = {
    "suppressed": "set LogRateLimitIntervalSec=0 in the unit, so that the next crash is whole",
    "rotated": "raise SystemMaxUse= in journald.conf, so that a start is kept whole",
    "hidden": "read it with journalctl --all --output=json",
    "cut": "make the export again, and let it end",
    "midway": "export the whole start: _SYSTEMD_INVOCATION_ID=ID + INVOCATION_ID=ID",
    "clock": "judge the silence around it by __MONOTONIC_TIMESTAMP",
}
# An excerpt is whole for what it shows, and no line is missing where a clock was set.
_WITHOUT_LOSS: Final[set[GapKind]] = {"midway", "clock"}


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that the journal lacks. `line` is that of the input, from 0; `count` in lines."""

    kind: GapKind
    line: int
    text: str
    count: int | None = None

    @property
    def remedy(self) -> str:
        return _REMEDIES[self.kind]

    @property
    def loses_lines(self) -> bool:
        """Whether lines are missing that were once written within what is here."""
        return self.kind not in _WITHOUT_LOSS

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "remedy": self.remedy}


def told_by(line: int, entry: Entry) -> Iterator[Gap]:
    """The gaps that the entry itself tells of."""
    message = entry.message
    if not any(text in message for text in _TELLING):  # nearly all
        return
    if (found := _SUPPRESSED.search(message)) is not None:
        count = int(found[1])
        yield Gap("suppressed", line, f"{count} lines were dropped by journald's rate limit", count)
    elif _ROTATED.search(message) is not None:
        yield Gap("rotated", line, "old entries were removed to make room")
    if TOO_LONG in message:
        yield Gap("hidden", line, "a line of 4096 bytes or more was left out by journalctl")
    elif _BLOB.search(message) is not None:
        yield Gap("hidden", line, "a line is shown as its size alone, not as its text")


def of_host(facts: Mapping[str, Any]) -> Iterator[Gap]:
    """The gaps that a host knows of: `facts` as of `opsctl.hostside.journal.facts`.

    systemd's own line about the start comes before the main process's first; where the first
    that is left is younger than the process, it is gone, and the lines after it.
    """
    started, begins = facts["started"], facts["begins"]
    if started is not None and begins is None:
        yield Gap("rotated", 0, "no line of this start is left in the journal")
    elif started is not None and begins - started > _LATE:
        yield Gap("rotated", 0, f"the first {begins - started:.0f} s of this start are gone")
    for each in facts["suppressed"]:
        count = each["count"]
        yield Gap("suppressed", 0, f"{count} lines were dropped by journald's rate limit", count)


@dataclass(slots=True)
class Clock:
    """The wall clock against the monotonic one, from stamps in microseconds."""

    _boot: str = ""
    _offset: float = field(default=0.0)

    def see(self, line: int, boot: str, realtime: int, monotonic: int) -> Gap | None:
        """A gap where the wall clock was set since the entry seen before, of the same boot."""
        offset = (realtime - monotonic) / 1e6
        jump = offset - self._offset if boot == self._boot else 0.0
        self._boot, self._offset = boot, offset
        if abs(jump) < _JUMP:
            return None
        direction = "forwards" if jump > 0 else "backwards"
        return Gap("clock", line, f"the host's clock was set {direction} by {abs(jump):.1f} s")
