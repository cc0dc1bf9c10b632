"""What was found where, kept in bounded memory and ranked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from opsctl.journal.diagnosis import Confidence, Severity
from opsctl.journal.rules import TIERS, Kind, Sign, Tier

_CONFIDENCE: Final[dict[Tier, Confidence]] = {"cause": "high", "quiet": "high", "absence": "low"}
# Findings kept of one kind and tier: the first ones and the last.
_KEPT: Final = 8


@dataclass(frozen=True, slots=True)
class Finding:
    """One line that shows a kind. `text` is as it may be shown."""

    kind: str
    tier: Tier
    line: int
    order: int
    severity: Severity
    phase: str  # where the start stood, else where this kind strikes; empty if unknown
    action: str
    confidence: Confidence
    incident: bool
    text: str = ""
    phase_known: bool = False  # from the start's progress

    @property
    def rank(self) -> tuple[int, int, int]:
        """The least is the kind: by tier, then by line, then by the rule base's order."""
        # What is said of the output is said of all of it: there the order decides, not the line.
        line, order = self.line, self.order
        return (TIERS[self.tier], *((order, line) if self.tier == "output" else (line, order)))


def finding(
    kind: Kind,
    line: int,
    text: str,
    *,
    sign: Sign | None = None,
    tier: Tier = "cause",
    phase: str = "",
    action: str = "",
    severity: Severity | None = None,
    first: bool = False,
) -> Finding:
    """A finding of `kind`, by a sign or by judgement. `phase` is where the start stood; `first`
    puts it before others of its tier and line."""
    own_phase = (sign.phase if sign else "") or kind.phase
    # What happens to the machine's preparation, the stop and the connection is no phase that
    # the server's progress could tell.
    fixed = own_phase in {"stop", "transport", "preflight"}
    tier = sign.tier if sign else tier
    confidence = _CONFIDENCE.get(tier, "medium")
    if sign is not None and tier == "absence":
        confidence = "medium"  # the line says so, not its lack
    return Finding(
        kind=kind.name,
        tier=tier,
        line=line,
        order=-1 if first else kind.order,
        severity=severity or (sign.severity if sign else None) or kind.severity,
        phase=own_phase if fixed else phase or own_phase,
        action=action or (sign.action if sign else "") or kind.action,
        confidence="low" if sign is not None and sign.prose else confidence,
        incident=kind.incident,
        text=text,
        phase_known=fixed or bool(phase),
    )


@dataclass(slots=True)
class Findings:
    """Of each kind and tier the first findings and the last one."""

    _kept: dict[tuple[str, Tier], list[Finding]] = field(default_factory=dict)

    def add(self, new: Finding) -> None:
        kept = self._kept.setdefault((new.kind, new.tier), [])
        if len(kept) > _KEPT:
            kept[-1] = new
        else:
            kept.append(new)

    def remove(self, unwanted: Callable[[Finding], bool]) -> list[Finding]:
        """Take out what is unwanted, and return it."""
        removed: list[Finding] = []
        for key, kept in list(self._kept.items()):
            removed += [found for found in kept if unwanted(found)]
            self._kept[key] = [found for found in kept if not unwanted(found)]
        return removed

    def copy(self) -> Findings:
        return Findings({key: list(kept) for key, kept in self._kept.items()})

    def of(self, *kinds: str) -> list[Finding]:
        return sorted((f for f in self if f.kind in kinds), key=lambda found: found.line)

    def __iter__(self) -> Iterator[Finding]:
        for kept in self._kept.values():
            yield from kept


def kinds_of(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Their kinds, each once, by line."""
    ordered = sorted(findings, key=lambda found: (found.line, found.order))
    return tuple(dict.fromkeys(found.kind for found in ordered))
