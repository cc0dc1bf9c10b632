"""What a diagnosis is. How it is reached: `opsctl.journal.signatures`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

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

    def to_json(self) -> dict[str, object]:
        return asdict(self)
