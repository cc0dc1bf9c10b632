"""Probes, checks and the verdict, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from opsctl.journal.acceptance import Acceptance
from opsctl.sglang.client import ChatAnswer, GenerateAnswer, ServerError

Verdict = Literal["pass", "fail", "inconclusive"]

# How much of an answer the evidence quotes.
QUOTE = 200


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """The properties of the systemd unit that tell one start from another."""

    active_state: str
    sub_state: str
    invocation_id: str
    n_restarts: int


@dataclass(frozen=True, slots=True)
class Probes:
    """What the server answered, or why it did not.

    `algorithm` is `speculative_algorithm` as /server_info gives it: "" where the server says
    that it has none, None where it could not be asked. `version` is SGLang's own.
    """

    chat: ChatAnswer | ServerError
    generate: GenerateAnswer | ServerError
    prompt: str
    max_tokens: int
    algorithm: str | None = None
    version: str | None = None
    draft_tokens: int | None = None  # the most tokens a verify step can yield, by configuration


@dataclass(frozen=True, slots=True)
class Check:
    """One question with its own verdict. `note` is worth saying although the check passes."""

    name: str
    verdict: Verdict
    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    def to_json(self) -> dict[str, object]:
        shown: dict[str, object] = {
            "name": self.name,
            "verdict": self.verdict,
            "reason": self.reason,
            "evidence": dict(self.evidence),
        }
        return shown | ({"note": self.note} if self.note else {})


@dataclass(frozen=True, slots=True)
class SmokeResult:
    """Fail if any check fails, else inconclusive if any is, else pass."""

    checks: tuple[Check, ...]
    probes: Probes
    acceptance: Acceptance | None = None

    @property
    def verdict(self) -> Verdict:
        verdicts = {check.verdict for check in self.checks}
        if "fail" in verdicts:
            return "fail"
        return "inconclusive" if "inconclusive" in verdicts or not verdicts else "pass"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not a pass, failures first; empty for a pass."""
        ranked = [c for v in ("fail", "inconclusive") for c in self.checks if c.verdict == v]
        return tuple(f"{check.name}: {check.reason}" for check in ranked)

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(check.note for check in self.checks if check.note)

    @property
    def tokens(self) -> int | None:
        """Completion tokens of the native request."""
        answer = self.probes.generate
        return answer.completion_tokens if isinstance(answer, GenerateAnswer) else None

    @property
    def verify_steps(self) -> int | None:
        answer = self.probes.generate
        return answer.meta.verify_steps if isinstance(answer, GenerateAnswer) else None

    @property
    def accept_len(self) -> float | None:
        """Tokens a verify step of the native request, the bonus token included."""
        answer = self.probes.generate
        return answer.meta.accept_len if isinstance(answer, GenerateAnswer) else None

    def to_json(self) -> dict[str, object]:
        return {
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "notes": list(self.notes),
            "tokens": self.tokens,
            "verify_steps": self.verify_steps,
            "accept_len": self.accept_len,
            "checks": [check.to_json() for check in self.checks],
            "acceptance": self.acceptance.to_json() if self.acceptance else None,
        }
