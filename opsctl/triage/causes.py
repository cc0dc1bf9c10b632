"""What a triage ends in: the likely cause, how sure that is, and the runbook."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from opsctl.journal.diagnosis import Confidence

# `warn` is worth a look and decides nothing.
Weight = Literal["fail", "inconclusive", "warn"]


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that is wrong. `name` is stable, for scripts; `runbook` is None where no runbook
    helps, and then `command`, or else `remedy`, says what does. `evidence` is in the words of the
    host."""

    name: str
    text: str
    runbook: str | None = None
    command: str = ""
    remedy: str = ""
    evidence: tuple[str, ...] = ()
    weight: Weight = "fail"
    confidence: Confidence = "high"

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Judgement:
    """`cause` is None where nothing is wrong; `also` is what else was found, in that order."""

    verdict: Literal["pass", "fail", "inconclusive"]
    cause: Cause | None = None
    also: tuple[Cause, ...] = ()
