"""Probes, checks and the verdict, as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from opsctl.journal.acceptance import Acceptance
from opsctl.sglang import ChatAnswer, GenerateAnswer, ServerError

Verdict = Literal["pass", "fail", "inconclusive"]
# A check that does not apply, or that a level leaves out, is said to be skipped and counts nothing.
CheckVerdict = Literal["pass", "fail", "inconclusive", "skipped"]

# What a failed check can show, the nearer to the cause the earlier: a dead server answers nothing
# right either, and drafts that are all believed make wrong text. docs/smoke.md describes each.
KINDS: Final = (
    "crash_at_concurrency", "crash_on_shrinking_batch", "crash_on_hang_up", "crash",
    "false_healthy", "hang", "nan_output", "implausible_acceptance", "zero_acceptance",
    "verify_path_unused", "cache_divergence", "graph_divergence", "batch_divergence",
    "verify_divergence", "degenerate_output", "text_divergence", "empty_output", "truncated_output",
    "wrong_answer", "bad_finish", "not_streamed", "stream_divergence", "kv_pool_leak",
    "acceptance_collapse", "acceptance_regression", "cuda_graph_unused",
)  # fmt: skip


# Every check by its name, in the order in which they are made.
CHECKS: Final = (
    "chat_answered", "chat_tokens", "chat_text", "generate_answered", "generate_tokens",
    "generate_text", "answers_agree", "verify_path", "accept_length", "unit_active", "same_start",
    "no_restart", "journal", "answered", "finish", "text", "short_answers", "streaming", "hang_up",
    "context_limit", "lossless", "nan", "canary", "cuda_graphs", "verify_steps", "acceptance",
    "acceptance_in_batches", "acceptance_before", "kv_pool",
)  # fmt: skip


def _rank(kind: str) -> int:
    return KINDS.index(kind) if kind in KINDS else len(KINDS)


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
    """One question with its own verdict. `note` is worth saying although the check passes;
    `kind` names what a failure shows, in the words of docs/diagnosis.md and docs/smoke.md."""

    name: str
    verdict: CheckVerdict
    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    kind: str = ""

    def to_json(self) -> dict[str, object]:
        shown: dict[str, object] = {
            "name": self.name,
            "verdict": self.verdict,
            "reason": self.reason,
            "evidence": dict(self.evidence),
        }
        more = {"note": self.note, "kind": self.kind}
        return shown | {key: value for key, value in more.items() if value}


def overall(checks: Iterable[Check]) -> Verdict:
    """Fail if any check fails, else inconclusive if any is (or none was made), else pass."""
    verdicts = {check.verdict for check in checks} - {"skipped"}
    if "fail" in verdicts:
        return "fail"
    return "inconclusive" if "inconclusive" in verdicts or not verdicts else "pass"


def reasons(checks: Sequence[Check]) -> tuple[str, ...]:
    """Why it is not a pass, failures first; empty for a pass."""
    ranked = [c for v in ("fail", "inconclusive") for c in checks if c.verdict == v]
    return tuple(f"{check.name}: {check.reason}" for check in ranked)


@dataclass(frozen=True, slots=True)
class SmokeResult:
    """Fail if any check fails, else inconclusive if any is, else pass."""

    checks: tuple[Check, ...]
    probes: Probes
    acceptance: Acceptance | None = None
    level: str = "quick"
    exam: Mapping[str, Any] | None = None  # of the further levels: see `exam.Seen.to_json`

    @property
    def verdict(self) -> Verdict:
        return overall(self.checks)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not a pass, failures first; empty for a pass."""
        return reasons(self.checks)

    @property
    def kind(self) -> str:
        """What the failures show, by the first of `KINDS` that one of them names."""
        found = {check.kind for check in self.checks if check.verdict == "fail"} - {""}
        return min(found, key=_rank, default="")

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
            "level": self.level,
            "kind": self.kind or None,
            "reasons": list(self.reasons),
            "notes": list(self.notes),
            "tokens": self.tokens,
            "verify_steps": self.verify_steps,
            "accept_len": self.accept_len,
            "checks": [check.to_json() for check in self.checks],
            "acceptance": self.acceptance.to_json() if self.acceptance else None,
            "exam": self.exam,
        }
