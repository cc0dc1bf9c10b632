"""Greedy text against a reference whose logprobs are known.

In bf16 a correct server may take another of two near-equal tokens, and the texts part for good;
so only the first divergence is judged, by the reference's logprobs at that place: how far below
its best token is the one that was taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Answer = dict[str, Any]  # of /generate, with `output_ids` and `meta_info`


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """Where two texts part, their end included; None where they are one."""
    for at, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return at
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))


def standing(reference: Answer, at: int, token: int) -> dict[str, Any]:
    """Rank of `token` (1 is the best) and its gap to the best in nats, by the reference.

    A token outside the recorded ones has no rank, and `gap` is the least that it can be.
    """
    tops = sorted(reference["meta_info"]["output_top_logprobs"][at], key=lambda t: -t[0])
    best = tops[0][0]
    for rank, (logprob, known, *_) in enumerate(tops, start=1):
        if known == token:
            return {"rank": rank, "gap": round(best - logprob, 4)}
    return {"rank": None, "gap": round(best - tops[-1][0], 4)}


def judge(reference: Answer, answer: Answer) -> dict[str, Any] | None:
    """The first divergence from the reference: place, rank and gap of the token taken."""
    expected, got = reference["output_ids"], answer["output_ids"]
    at = first_difference(expected, got)
    if at is None:
        return None
    if at >= min(len(expected), len(got)):
        return {"at": at, "rank": None, "gap": None}  # one of them ended: nothing was taken
    return {"at": at, **standing(reference, at, got[at])}


def judge_two(reference: Answer, one: Answer, other: Answer) -> dict[str, Any] | None:
    """Where two answers part, and the greater gap of the two tokens, if the reference knows it.

    It does while the text before is the reference's own.
    """
    at = first_difference(one["output_ids"], other["output_ids"])
    if at is None:
        return None
    expected = reference["output_ids"]
    shortest = min(len(one["output_ids"]), len(other["output_ids"]), len(expected))
    if at >= shortest or one["output_ids"][:at] != expected[:at]:
        return {"at": at, "gap": None}
    gaps = [standing(reference, at, x["output_ids"][at])["gap"] for x in (one, other)]
    return {"at": at, "gap": max(gaps)}


def steps_of(answer: Answer) -> int:
    """Passes of the target after prefill: verify steps, or tokens where nothing is drafted."""
    meta = answer["meta_info"]
    return int(meta.get("spec_verify_ct") or meta["completion_tokens"] - 1)


class Tally:
    """Answers of one server against the reference's, and what they cost."""

    def __init__(self) -> None:
        self.equal = 0
        self.diverged: list[dict[str, Any]] = []
        self.kinds: dict[str, dict[str, int]] = {}

    def add(self, kind: str, prompt: int, reference: Answer, answer: Answer) -> None:
        counts = self.kinds.setdefault(kind, {"tokens": 0, "steps": 0})
        counts["tokens"] += answer["meta_info"]["completion_tokens"]
        counts["steps"] += steps_of(answer)
        found = judge(reference, answer)
        if found is None:
            self.equal += 1
        else:
            self.diverged.append({"prompt": prompt, **found})

    def to_json(self) -> dict[str, Any]:
        return {"equal": self.equal, "diverged": self.diverged, "kinds": self.kinds}
