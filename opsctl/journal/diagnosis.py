"""What a diagnosis is. How it is reached: `opsctl.journal.signatures`."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Literal

# A traceback's frame, by the package's own path where it has one.
_FRAME = re.compile(r'File "(?:[^"]*site-packages/)?([^"]+)", line (\d+)')

Severity = Literal["fatal", "error", "warning", "none"]

# Kinds that numbers on decode lines give: the server lives, and answers.
ACCEPTANCE_KINDS = frozenset(
    {"zero_acceptance", "implausible_acceptance", "acceptance_decay", "acceptance_collapse"}
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The journal of one start, as a whole.

    `decisive` are indices of the entries that decide, `lines` their text with user text and
    secrets redacted, `also` what else was seen (consequences and side findings). `kind` is
    empty without an incident; `last_traceback` is empty without one.
    """

    incident: bool
    kind: str = ""
    also: tuple[str, ...] = ()
    severity: Severity = "none"
    phase: str = ""
    action: str = "none"
    decisive: tuple[int, ...] = ()
    lines: tuple[str, ...] = ()
    remedy: str = ""
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
        line = self.lines[0] if self.lines else ""
        frames = _FRAME.findall(self.last_traceback)
        where = f" (raised at {frames[-1][0]}:{frames[-1][1]})" if frames else ""
        return f"{self.kind}: {line}{where}"

    def to_json(self) -> dict[str, object]:
        return asdict(self)
