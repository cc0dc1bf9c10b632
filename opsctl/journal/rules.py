"""The rule base of `rules.yaml`, read and checked once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final, Literal

import yaml

from opsctl.journal.diagnosis import Severity

Tier = Literal["cause", "symptom", "late", "notice"]
# python_error, which is no rule, stands between symptom and late.
_ORDER: Final = ("cause", "symptom", "python_error", "late", "notice")
TIERS: Final = {tier: place for place, tier in enumerate(_ORDER)}
_KEYS: Final = {
    "kind", "tier", "severity", "phase", "action", "origin", "unless_alive", "patterns", "remedy"
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind by its signs. `order` is its place in the file, which breaks ties."""

    kind: str
    tier: Tier
    severity: Severity
    phase: str
    action: str
    remedy: str
    pattern: re.Pattern[str]
    order: int
    origin: str = ""
    unless_alive: bool = False


@dataclass(frozen=True, slots=True)
class RuleBase:
    """`any_sign` matches every line that some rule matches: one search rejects the others."""

    rules: tuple[Rule, ...]
    ignore: re.Pattern[str]
    any_sign: re.Pattern[str]


@cache
def rule_base() -> RuleBase:
    """The rules that come with opsctl."""
    text = resources.files("opsctl.journal").joinpath("rules.yaml").read_text(encoding="utf-8")
    data = yaml.safe_load(text)
    rules = tuple(_rule(order, entry) for order, entry in enumerate(data["rules"]))
    return RuleBase(
        rules=rules,
        ignore=_any_of(data["ignore"]),
        any_sign=_any_of([rule.pattern.pattern for rule in rules]),
    )


def _rule(order: int, entry: dict[str, Any]) -> Rule:
    if unknown := entry.keys() - _KEYS:
        raise ValueError(f"rules.yaml: {entry.get('kind')}: unknown keys {sorted(unknown)}")
    if entry["tier"] not in TIERS or entry["severity"] not in {"fatal", "error", "warning"}:
        raise ValueError(f"rules.yaml: {entry['kind']}: tier or severity is not one of its values")
    return Rule(
        kind=entry["kind"],
        tier=entry["tier"],
        severity=entry["severity"],
        phase=entry.get("phase", ""),
        action=entry["action"],
        remedy=" ".join(entry["remedy"].split()),
        pattern=_any_of(entry["patterns"]),
        order=order,
        origin=entry.get("origin", ""),
        unless_alive=entry.get("unless_alive", False),
    )


def _any_of(patterns: list[str]) -> re.Pattern[str]:
    # An inline (?i) may only stand first in an expression: make it hold for its own part.
    scoped = [f"(?i:{part[4:]})" if part.startswith("(?i)") else f"(?:{part})" for part in patterns]
    return re.compile("|".join(scoped))
