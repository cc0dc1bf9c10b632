"""Whether an answer is the reference's, by the first token in which they differ.

Speculative decoding must not change greedy output, but equal text is the wrong test: in bf16 a
batch of another shape rounds otherwise, and where two tokens are as likely as each other either
may win. Measured on one H200 (SmolLM2-135M, bf16, DFLASH against autoregressive): 8 of 10 texts
differ, each first at a gap of at most 0.25 between the two best logprobs, most at 0 or 0.125,
the step of bf16 logits between 16 and 32; a sound DDTREE that hardly accepted a draft once at
0.375, faults of its verify path at 1.0 and more (docs/validation/smoke-h200.md). In float32
equality is strict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from opsctl.sglang import Top

Outcome = Literal["equal", "near_tie", "wrong", "unknown"]

# In nats, by the type that logits are computed in: four steps at magnitudes of 16 to 32, where
# the logits of the likeliest tokens are (2^-3 with bf16's 8 bits, 2^-6 with float16's 11), as two
# logits may each be off by two. In float32 sums in another order differ by a hundredth of this.
TOLERANCE: Final = {"bfloat16": 4 * 2**-3, "float16": 4 * 2**-6, "float32": 1e-3}
_UNKNOWN: Final = TOLERANCE["bfloat16"]


def tolerance(precision: str) -> float:
    """The largest gap between two tokens that counts as a near tie, in nats."""
    return TOLERANCE.get(precision, _UNKNOWN)


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where an answer leaves the reference. Positions count output tokens from 0.

    `gap` is how much less likely than the reference's token the answer's is, in nats, by the
    reference; `at_least` says that it is only known to be more. `got` is None where the answer
    ends too early, `expected` where it does not end with the reference.
    """

    outcome: Outcome
    index: int | None = None
    expected: int | None = None
    got: int | None = None
    gap: float | None = None
    at_least: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def text(self) -> str:
        """For a person."""
        if self.outcome == "equal":
            return "equal"
        if self.got is None:
            return f"ends after {self.index} tokens, before token {self.expected}"
        if self.expected is None:
            return f"goes on with token {self.got} after {self.index} tokens, where it must stop"
        where = f"token {self.index} is {self.got} instead of {self.expected}"
        if self.gap is None:
            return where
        return f"{where}, {'at least ' * self.at_least}{self.gap:.3g} nats less likely"


EQUAL: Final = Divergence("equal")


def compare(
    expected: Sequence[int],
    top: Sequence[Top],
    got: Sequence[int],
    near: float,
    *,
    stopped: bool = False,
) -> Divergence:
    """The answer `got` against the reference `expected`, whose alternatives are `top` (none
    where they could not be had). After a near tie the texts go their own ways, so nothing of
    the rest is judged.

    The answer may be shorter by request: compare no more than was asked for. More tokens than
    the reference has cannot be judged, unless it `stopped` there of its own accord.
    """
    pairs = enumerate(zip(expected, got, strict=False))
    index = next((at for at, (ours, theirs) in pairs if ours != theirs), None)
    if index is None:
        if stopped and len(got) > len(expected):
            return Divergence("wrong", len(expected), None, got[len(expected)])
        if len(got) >= len(expected):
            return EQUAL
        return Divergence("wrong", len(got), expected[len(got)])
    wanted, other = expected[index], got[index]
    if index >= len(top) or not top[index]:
        return Divergence("unknown", index, wanted, other)
    known = dict(top[index])
    best = known.get(wanted, max(known.values()))
    if other in known:
        gap = best - known[other]
        # Below zero the reference's own token is not its likeliest: by rounding, or it is no tie.
        tie = abs(gap) <= near
        return Divergence("near_tie" if tie else "wrong", index, wanted, other, gap)
    gap = best - min(known.values())
    outcome: Outcome = "wrong" if gap > near else "unknown"
    return Divergence(outcome, index, wanted, other, gap, at_least=True)
