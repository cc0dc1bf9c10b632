"""What a gate found, in the words that all its outputs share."""

from __future__ import annotations

import json
import re
import time
from typing import Final

from opsctl import errors
from opsctl.gate.model import GateCheck, GateResult, Outcome, Quantiles, Shown, Soak
from opsctl.journal.text import clean
from opsctl.text import counted, duration

# A sign beside each word: colour alone tells a part of the readers nothing.
SIGNS: Final[dict[Outcome, str]] = {"pass": "✓", "fail": "✗", "inconclusive": "?", "skipped": "○"}
_VERDICTS: Final[dict[Outcome, str]] = {
    "pass": "Passed",
    "fail": "Failed",
    "inconclusive": "Inconclusive",
    "skipped": "Skipped",
}
_NOT_BEGUN: Final = frozenset(
    {errors.EXIT_USAGE, errors.EXIT_REFUSED, errors.EXIT_LOCKED, errors.EXIT_UNREACHABLE}
)
# Direction marks and overrides (UAX 9, "Trojan Source"), what has no width but the joiners that
# emoji and several scripts need, and noncharacters, some of which XML and HTML forbid.
_UNSEEN: Final = re.compile(
    r"[\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufdd0-\ufdef\ufeff"
    r"\ufff9-\ufffb\U000e0000-\U000e007f"
    + "".join(
        f"{chr(plane | 0xFFFE)}{chr(plane | 0xFFFF)}" for plane in range(0, 17 << 16, 1 << 16)
    )
    + "]"
)


def visible(text: str) -> str:
    r"""`text` of anyone, with everything in it seen and nothing that XML 1.0 or HTML forbids.

    What is left of terminal codes and control characters is as in `opsctl.journal.text.clean`;
    what has no width or turns the direction of writing appears as ``\uNNNN``. Markup is for
    each output to escape.
    """
    return _UNSEEN.sub(_escape, clean(text))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cut(text: str, most: int) -> str:
    """`text`, or its first `most` characters and how many more there are."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text) - most:,} more characters)"


def figure(value: float) -> str:
    """Three significant digits: `0.0345`, `5.12`, `1,234`."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def share(part: int, whole: int) -> str:
    """`0.5%`; of nothing it is none."""
    return f"{figure(100 * part / whole)}%" if whole else "none"


def moment(at: float) -> str:
    """Unix seconds in UTC: a report is read in other time zones than it was written in."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def verdict(result: GateResult) -> str:
    """One word; a gate that changed nothing because it could not begin did not fail anything."""
    return "Not begun" if result.exit_code in _NOT_BEGUN else _VERDICTS[result.outcome]


def ending(result: GateResult) -> str:
    """What became of the new version, in a few words."""
    before = result.before or "what was there before"
    if result.ending == "kept":
        place = "" if result.generation is None else f" as generation {result.generation}"
        return f"{result.patch_set} is kept{place}"
    if result.ending == "rolled back":
        return f"{result.patch_set} was taken back: {before} is in place"
    if result.ending == "not restored":
        return f"{before} could NOT be restored: the host needs a person now"
    if result.exit_code in _NOT_BEGUN:
        return "nothing was changed on the host"
    return f"{result.patch_set} was in place already, and nothing was changed"


def headline(result: GateResult) -> str:
    """The verdict and the ending: `Failed: ddtree@1.1.0 was taken back: …`."""
    return f"{verdict(result)}: {ending(result)}"


def because(check: GateCheck) -> str:
    """Its reason, with what the failure shows and the threshold where it has them."""
    return " · ".join(part for part in (check.reason, check.kind, check.policy) if part)


def evidence(check: GateCheck, most: int) -> str:
    """A line `name: JSON` for each piece, about `most` characters of them; "" where there is none.

    In lines of its own each of a few hundred token ids would hide the rest.
    """
    lines = (
        f"{name}: {json.dumps(value, ensure_ascii=False, default=str)}"
        for name, value in check.evidence.items()
    )
    return cut("\n".join(lines), most)


def facts(result: GateResult) -> list[tuple[str, str]]:
    """What was gated, on what and against what; only what is known."""
    found = [
        ("host", result.host),
        ("service", result.service),
        ("patch set", result.patch_set),
        ("generation in place", "" if result.generation is None else str(result.generation)),
        ("before", result.before),
        ("SGLang", result.version),
        ("baseline", result.baseline.removeprefix("baseline ")),
        ("policy", result.policy),
        ("exit status", str(result.exit_code)),
    ]
    return [(name, value) for name, value in found if value]


def load(soak: Soak) -> list[tuple[str, str]]:
    """What the soak sent, and what came of it."""
    return [
        ("requests", f"{soak.requests:,}"),
        ("errors", f"{soak.errors:,} ({share(soak.errors, soak.requests)})"),
        ("tokens", f"{soak.tokens:,}"),
        ("throughput", f"{figure(soak.throughput)} token/s"),
        ("load", f"{soak.at_once} at once for {duration(soak.seconds)}"),
        ("seed", str(soak.seed)),
    ]


def latencies(soak: Soak) -> list[tuple[str, Quantiles]]:
    """Those that are known, in seconds."""
    named = (("whole answer", soak.latency), ("first token", soak.first_token))
    return [(name, found) for name, found in named if found is not None]


def difference(shown: Shown) -> str:
    """Where an answer leaves the baseline's, and how far: `wrong at token 41, 2.75 nats apart`."""
    what = {"near_tie": "near tie", "unknown": "different", "wrong": "wrong"}[shown.outcome]
    gap = "gap not known" if shown.gap is None else f"{figure(shown.gap)} nats apart"
    return f"{what} at token {shown.index}, {gap}"


def parted(expected: str, got: str) -> int:
    """How many characters the two texts begin with in common."""
    pairs = zip(expected, got, strict=False)
    common = min(len(expected), len(got))
    return next((at for at, (ours, theirs) in enumerate(pairs) if ours != theirs), common)


def counts(result: GateResult) -> str:
    """`24 checks: 22 passed, 2 failed`."""
    words = {"pass": "passed", "fail": "failed", "inconclusive": "inconclusive"}
    found = [
        f"{len(result.of(outcome))} {words.get(outcome, 'skipped')}"
        for outcome in SIGNS
        if result.of(outcome)
    ]
    told = f": {', '.join(found)}" if found else ""
    return f"{counted(len(result.checks), 'check')}{told}"
