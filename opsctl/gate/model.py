"""What a gate found, as values: everything that its outputs show, and nothing of how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Outcome = Literal["pass", "fail", "inconclusive", "skipped"]
# Where a check was made, in the order of a gate.
Phase = Literal["deploy", "smoke", "soak", "compare"]
# What became of the new version: "untouched" is a gate that ended before any change, or of a set
# that was in place already.
Ending = Literal["kept", "rolled back", "not restored", "untouched"]


@dataclass(frozen=True, slots=True)
class GateCheck:
    """One question. `kind` names what a failure shows (docs/smoke.md); `policy` is the
    threshold that it was held against, as the policy file has it, such as
    `soak.error_rate <= 0.01`."""

    phase: Phase
    name: str
    outcome: Outcome
    reason: str
    kind: str = ""
    policy: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None  # how long it took, where that is known


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the start, in seconds since it began: `loading weights`, `graph capture`, …"""

    name: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Series:
    """One figure over time: `points` are (seconds since the gate's first request, value)."""

    name: str
    unit: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Of one figure over the soak's requests."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class Soak:
    """A load of `at_once` requests for `seconds`. Latencies in seconds: `latency` of whole
    answers, `first_token` from sending to the first piece of a stream."""

    seconds: float
    at_once: int
    seed: int
    requests: int
    errors: int
    tokens: int
    throughput: float  # tokens a second, over all requests
    latency: Quantiles | None = None
    first_token: Quantiles | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """An answer beside the baseline's, from output token `begin` on. `index` is the first that
    differs, `gap` its distance in nats, None where it is not known."""

    stage: str
    prompt: str
    outcome: Literal["near_tie", "unknown", "wrong"]
    index: int
    gap: float | None
    begin: int
    expected_ids: tuple[int, ...]
    got_ids: tuple[int, ...]
    expected_text: str
    got_text: str


@dataclass(frozen=True, slots=True)
class GateResult:
    """One run of `opsctl gate`. Times are Unix seconds; `accept_lens` are of the decode lines
    of the soak, in tokens a verify step, `accept_lens_before` of the version before, under the
    same load."""

    host: str
    service: str
    outcome: Outcome
    ending: Ending
    exit_code: int
    summary: str
    started_at: float
    duration_s: float
    patch_set: str  # name@version
    generation: int | None = None  # that is in place at the end
    before: str = ""  # what was there: `generation 3 (ddtree 1.0.0)`
    version: str = ""  # SGLang's
    baseline: str = ""
    policy: str = ""  # its name or file
    remedy: str = ""
    checks: tuple[GateCheck, ...] = ()
    load: tuple[Span, ...] = ()
    series: tuple[Series, ...] = ()
    accept_lens: tuple[float, ...] = ()
    accept_lens_before: tuple[float, ...] = ()
    divergences: tuple[Shown, ...] = ()
    soak: Soak | None = None

    def of(self, outcome: Outcome) -> tuple[GateCheck, ...]:
        """The checks that ended so."""
        return tuple(check for check in self.checks if check.outcome == outcome)

    @property
    def reasons(self) -> tuple[GateCheck, ...]:
        """The checks that say why it is not a pass, failures first."""
        return (*self.of("fail"), *self.of("inconclusive"))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
