"""What a diagnosis is. How it is reached: `opsctl.journal.diagnoser`."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Literal

# A traceback's frame, by the package's own path where it has one.
_FRAME = re.compile(r'File "(?:[^"]*site-packages/)?([^"]+)", line (\d+)')

Severity = Literal["fatal", "hardware", "error", "degraded", "warn", "info", "ok"]
Confidence = Literal["high", "medium", "low"]

# Kinds that numbers on decode lines give: the server lives, and answers.
ACCEPTANCE_KINDS = frozenset(
    {
        "zero_acceptance",
        "implausible_acceptance",
        "acceptance_decay",
        "acceptance_collapse",
        "throughput_collapse",
    }
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What lines of a journal say, as a whole.

    `kind` is set with and without an incident (``ready``, ``decode_stats``, …), and empty only
    where no line says anything. `decisive` are the numbers (from 0) of the lines that decide,
    `lines` their text with user text and secrets redacted, `also` what else was seen
    (consequences and side findings). `last_traceback` is empty without one.

    `confidence` is ``high`` where a cause names itself, ``medium`` where a symptom is seen
    without its cause or numbers decide, ``low`` where something that should be there is not,
    or the words are not a log's. docs/diagnosis.md explains every kind.
    """

    incident: bool
    kind: str = ""
    also: tuple[str, ...] = ()
    severity: Severity = "ok"
    phase: str = ""
    action: str = "none"
    decisive: tuple[int, ...] = ()
    lines: tuple[str, ...] = ()
    remedy: str = ""
    confidence: Confidence = "low"
    last_traceback: str = ""

    @property
    def crash(self) -> bool:
        """An incident that is more than low acceptance, with which the server works on."""
        return self.incident and self.kind not in ACCEPTANCE_KINDS

    @property
    def summary(self) -> str:
        """Kind, decisive line and where it was raised, in one line; empty without an incident."""
        if not self.incident:
            return ""
        line = self.lines[0] if self.lines else self.remedy
        frames = _FRAME.findall(self.last_traceback)
        where = f" (raised at {frames[-1][0]}:{frames[-1][1]})" if frames else ""
        return f"{self.kind}: {line}{where}"

    def to_json(self) -> dict[str, object]:
        return asdict(self)
