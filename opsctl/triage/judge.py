"""The first rule that explains is the likely cause; the rest stands beside it."""

from __future__ import annotations

from opsctl.triage.causes import Judgement
from opsctl.triage.facts import Facts
from opsctl.triage.rules import RULES


def judge(facts: Facts) -> Judgement:
    """By `rules.RULES`, in their order."""
    found = [cause for rule in RULES if (cause := rule(facts)) is not None]
    main = next((cause for cause in found if cause.weight != "warn"), None)
    also = tuple(cause for cause in found if cause is not main)
    if main is None:
        return Judgement("pass", None, also)
    return Judgement("inconclusive" if main.weight == "inconclusive" else "fail", main, also)
