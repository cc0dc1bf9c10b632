"""The rule base of `signs/*.yaml`, read and checked once.

Each kind says what it means (cause, remedy, severity, phase, action, source), and below `signs`
how it is told:

``patterns``
    regular expressions, searched in a line after its prefix; case matters unless ``(?i)`` leads
``needles``
    plain lower-case text; every match of a pattern contains at least one of them, in any case
``examples``
    lines that match; tests diagnose each of them
``tier``
    ``cause`` (the default) is the reason itself; ``symptom`` an end state that names a kind only
    where no cause is seen; ``late`` what follows of itself minutes later; ``notice`` a death
    notice or an echo on another rank, never the kind; ``python_error`` a crash in words that
    fit no kind; ``quiet`` no incident. The lowest tier wins, then the earliest line, then the
    order here.
``phase``, ``severity``, ``action``
    in place of the kind's own, for this sign
``shadows``
    nothing else is searched in a line that matches: it quotes users, or skips what failed
``unless_alive``
    void where batches follow
``prose``
    an operator's words in place of a log: confidence low

A kind without signs is judged by numbers, by absence or by the grammar, in code (`judged`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final, Literal, get_args

import yaml

from opsctl.journal import outputs, patched
from opsctl.journal.diagnosis import Severity
from opsctl.sglang import grammar

Tier = Literal["cause", "symptom", "python_error", "output", "late", "absence", "notice", "quiet"]
# What code finds stands in these tiers, too; only such findings are in output.
TIERS: Final = {tier: place for place, tier in enumerate(get_args(Tier))}
# The files. In this order kinds are ranked that tie in tier and line.
AREAS: Final = ("machine", "model", "install", "work", "ends", "output", "transport", "quiet")
# SGLang's arguments hold "crash", "nan", "watchdog" and "timeout"; the advice under a failed
# capture is printed whatever the cause; the rest is what CUDA adds to every error.
_SAYS_NOTHING: Final = re.compile(
    r"\bserver_args=ServerArgs\(|^Possible solutions:|^\d\. (?:set --|disable )"
    r"|CUDA kernel errors might be asynchronously|^Search for `(?:cuda|hip)"
)
# Needles of the lines that a busy server prints all the time. Such lines count one by one: they
# open no traceback, so a reader need not look at what follows them.
STEADY_NEEDLES: Final = (
    "decode batch", "prefill batch", "accept len", "post /", "get /",
)  # fmt: skip
# What tracebacks, numbers, silence and the start's progress need, beside the signs' own.
_OWN_NEEDLES: Final = (
    *STEADY_NEEDLES, "put /", "patch /", "delete /", "head /", "options /",
    "traceback (most recent call last)", "error", "exception", '  file "', "timeout", "warn",
    "acceptance", "accept_", "/model_info", "/get_model_info", "sglang is using nccl",
    "sigterm", "stopping ", "gracefully exiting", "bort request", "interrupt", "refused",
    "socket.gaierror", "incomplete", "avail", "max_total_num_tokens", "server process",
    "application startup", "started ", "graph addresses", "cuda graph bs", *outputs.NEEDLES,
    *patched.NEEDLES,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kind:
    """What a kind means. `judged` is empty for a kind that is told by signs."""

    name: str
    area: str  # the file it stands in
    order: int
    incident: bool
    severity: Severity
    phase: str
    action: str
    cause: str
    remedy: str
    source: str
    judged: str
    signs: tuple[Sign, ...] = ()


@dataclass(frozen=True, slots=True)
class Sign:
    """One way in which a kind shows; empty `phase`, `severity` and `action` are the kind's."""

    kind: str
    tier: Tier
    pattern: re.Pattern[str]
    patterns: tuple[str, ...]
    needles: tuple[str, ...]
    examples: tuple[str, ...]
    phase: str = ""
    severity: Severity | None = None
    action: str = ""
    shadows: bool = False
    unless_alive: bool = False
    prose: bool = False

    def found_in(self, text: str, lowered: str) -> bool:
        """Whether `text` shows it; `lowered` is `text.lower()`, made once a line."""
        return (
            any(needle in lowered for needle in self.needles)
            and self.pattern.search(text) is not None
        )


@dataclass(frozen=True, slots=True)
class RuleBase:
    """`signs` has those that shadow first, then the kinds' order."""

    kinds: dict[str, Kind]
    signs: tuple[Sign, ...]
    _index: tuple[tuple[str, tuple[int, ...]], ...]  # each needle once: the signs that have it

    @classmethod
    def of(cls, kinds: dict[str, Kind]) -> RuleBase:
        found = [sign for kind in kinds.values() for sign in kind.signs]
        signs = tuple(sorted(found, key=lambda sign: not sign.shadows))
        index: dict[str, list[int]] = {}
        for at, sign in enumerate(signs):
            for needle in sign.needles:
                index.setdefault(needle, []).append(at)
        return cls(kinds, signs, tuple((needle, tuple(ats)) for needle, ats in index.items()))

    def found_in(self, text: str) -> Iterator[Sign]:
        """The signs that `text` shows, in their order."""
        lowered = text.lower()
        hits = [ats for needle, ats in self._index if needle in lowered]
        for at in sorted({at for ats in hits for at in ats}):
            if self.signs[at].pattern.search(text) is not None:
                yield self.signs[at]

    def needles(self) -> tuple[str, ...]:
        """Lower-case texts, one of which is in every line (lower-cased) that can matter.

        A reader may leave out all other lines, except those that follow the head of a
        traceback or a user's text: see `opsctl.journal.windows`.
        """
        own = {needle for sign in self.signs for needle in sign.needles}
        lines = {rule.needle.lower() for rule in grammar.RULES}
        every = own | lines | set(_OWN_NEEDLES)
        shortest = {n for n in every if not any(m in n and m != n for m in every)}
        return tuple(sorted(shortest | set(STEADY_NEEDLES)))


def says_nothing(text: str) -> bool:
    """Whether a line is one of those whose words mean something else than they say."""
    return _SAYS_NOTHING.search(text) is not None


@cache
def rule_base() -> RuleBase:
    """The rules that come with opsctl.

    Raises:
        ValueError: a file is not as this module's docstring says.
    """
    kinds: dict[str, Kind] = {}
    for name in AREAS:
        text = resources.files("opsctl.journal").joinpath("signs", f"{name}.yaml")
        for kind, entry in _read(text.read_text(encoding="utf-8")).items():
            if kind in kinds:
                raise ValueError(f"{name}.yaml: {kind} stands twice")
            try:
                kinds[kind] = _kind(kind, name, len(kinds), entry)
            except (KeyError, TypeError, re.error) as error:
                raise ValueError(f"{name}.yaml: {kind}: {error!r}") from error
    return RuleBase.of(kinds)


def _read(text: str) -> Any:
    # libyaml reads this in a twentieth of the time, where PyYAML was built with it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(text, loader)  # noqa: S506  (both are safe)


def needles() -> tuple[str, ...]:
    """`RuleBase.needles` of the rules that come with opsctl."""
    return rule_base().needles()


def _kind(name: str, area: str, order: int, entry: dict[str, Any]) -> Kind:
    signs = tuple(_sign(name, sign) for sign in entry.pop("signs", ()))
    judged = entry.pop("judged", "")
    if bool(signs) == bool(judged):
        raise KeyError("either signs or judged")
    return Kind(
        name=name,
        area=area,
        order=order,
        incident=entry.pop("incident", True),
        phase=entry.pop("phase", ""),
        judged=judged,
        signs=signs,
        **entry,
    )


def _sign(kind: str, entry: dict[str, Any]) -> Sign:
    patterns = tuple(entry.pop("patterns"))
    tier: Tier = entry.pop("tier", "cause")
    if tier not in TIERS:
        raise KeyError(tier)
    return Sign(
        kind=kind,
        tier=tier,
        pattern=_any_of(patterns),
        patterns=patterns,
        needles=tuple(entry.pop("needles")),
        examples=tuple(entry.pop("examples")),
        **entry,
    )


def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    # An inline (?i) may only stand first in an expression: make it hold for its own part.
    scoped = [f"(?i:{part[4:]})" if part.startswith("(?i)") else f"(?:{part})" for part in patterns]
    return re.compile("|".join(scoped))
