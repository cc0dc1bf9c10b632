# ruff: noqa: E501  (in the page a paragraph or a cell is a line)
"""docs/diagnosis.md, made from the rule base by `python -m opsctl.journal.page`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from opsctl.journal.rules import AREAS, Kind, rule_base

ACTIONS: Final = {
    "none": "nothing to do",
    "wait": "it is under way, give it its time",
    "retry": "try again, with a back-off",
    "retry_staggered": "try again once, and not at the same moment as others",
    "restart": "restart the service, after taking stacks",
    "change_config": "an argument of the unit, or what is asked of it",
    "rollback_patch": "return the patch set before",
    "rollback_version": "return the versions that worked",
    "upgrade": "a fault of the version; take one without it",
    "reinstall": "put the set of packages in place that belongs together",
    "redownload": "fetch the damaged file again",
    "fix_infra": "the host or the network, not the service",
    "reboot_host": "drain the host and reboot or power-cycle it",
    "stop_orphans": "stop processes that outlived an earlier start",
    "stop_retrying": "stop the unit, then mend the cause",
    "stop_ask_operator": "stop; only a person can decide",
    "fallback": "use the other way that there is",
    "investigate": "the lines do not say enough",
}
_SEVERITIES: Final = {
    "fatal": "it does not serve, or serves wrong answers",
    "hardware": "a component of the host is at fault; no change of software mends it",
    "error": "it failed, and a further attempt may not",
    "degraded": "it serves right answers, worse than it should",
    "warn": "worth a look",
    "info": "worth knowing",
    "ok": "as it should be",
}
_TITLES: Final = {
    "machine": "The machine",
    "install": "The install",
    "model": "The model",
    "work": "The GPU's work",
    "ends": "Ends, hangs and failed starts",
    "output": "The output",
    "transport": "The way to the host",
    "quiet": "No incident",
}
_JUDGED: Final = {
    "numbers": "told by the figures of many lines",
    "probes": "told by the lines of probes about answers",
    "absence": "told by what is not said",
    "exception": "told by a traceback that no rule explains",
    "grammar": "told by SGLang's own lines of progress",
}
_INTRO: Final = """\
# What a journal says: the kinds

`opsctl diagnose [HOST | FILE | -]` reads the journal of a host's present start, a file or a pipe
(`journalctl -o json`, its short forms, kubectl logs, docker compose, bare lines) and says what it
tells. `status`, `wait`, `smoke`, `metrics` and every rollout use the same rules. This page is made
from them: `python -m opsctl.journal.page > docs/diagnosis.md`.

With `--json` the report has the diagnosis at its top level:

| field | meaning |
|---|---|
| `incident` | whether something is wrong |
| `kind` | one of those below; empty only where no line says anything |
| `also` | what else was seen: consequences and side findings |
| `severity`, `action` | below |
| `phase` | `preflight`, `install`, `start`, `load`, `capture`, `warmup`, `serve`, `stop`; `transport` is the way to the host |
| `decisive`, `lines` | numbers of the lines that decide, from 0, and their text without users' words and secrets; for a person lines are counted from 1 |
| `remedy` | what to do |
| `confidence` | `high`: a cause names itself. `medium`: a symptom without its cause, or figures. `low`: something is missing that should be there, or the words are no log's |
| `last_traceback` | of the process that died |

The exit status is 0 without an incident, 11 with one (as of a failed `smoke`), 12 where there was no
line to judge, and 2 where the name is neither a host nor a file.

Causes win over end states, those over what follows of itself minutes later, and a death notice is
never the kind where anything else speaks; among equals the earliest line wins, so that the first rank to speak goes before its
echoes. Lines that quote users are never searched. An exception that no rule knows is `python_error`
with its traceback, and `python_error_after_patch` where the journal says that the file that raised it
was patched before; a crash of native code in words that fit no kind is `unknown`. A death
without words is `child_died` where the parent tells of it, and `unknown` where only the service manager
does, both with low confidence: nothing is forced into a kind. Of other units in the same journal the
failures do not count, once the server's own goes on or is known by its name. Sources that name a file
and line are of SGLang 0.5.12.post1.

The rules are tested on 103 public reports, on real failures of the lab, and on 171 cases that were
written before any rule was tried on them (160 kinds were right at the first try; the rest was mended).
On 190 more, written after what public reports look like, the first try was worse: 117 kinds and 134
verdicts (incident or not) of 141, then, of the kinds that had failed, 42 and 46 of 49. Of a
further 70 by somebody who had not seen the rules, 62 and 66.
"""


def page() -> str:
    """The page's text."""
    kinds = rule_base().kinds.values()
    parts = [_INTRO]
    for heading, meanings in (("severity", _SEVERITIES), ("action", ACTIONS)):
        rows = "".join(f"| `{name}` | {text} |\n" for name, text in meanings.items())
        parts.append(f"| {heading} | meaning |\n|---|---|\n{rows}")
    for area in AREAS:
        parts.append(f"## {_TITLES[area]}\n")
        parts += ["\n".join(_section(kind)) + "\n" for kind in kinds if kind.area == area]
    return "\n".join(parts)


def _section(kind: Kind) -> Iterator[str]:
    yield f"### {kind.name}"
    facts = [kind.severity, kind.phase, kind.action, *([] if kind.incident else ["no incident"])]
    yield " · ".join(f"`{fact}`" if fact != "no incident" else fact for fact in facts if fact)
    yield ""
    yield f"- sign: {_sign(kind)}"
    yield f"- cause: {kind.cause}"
    yield f"- remedy: {kind.remedy}"
    for sign in kind.signs:
        changed = {"severity": sign.severity, "phase": sign.phase, "action": sign.action}
        texts = [f"{name} `{value}`" for name, value in changed.items() if value]
        if texts:
            yield f"- for `{_code(sign.examples[0])}`: {', '.join(texts)}"
    yield f"- source: {kind.source}"


def _sign(kind: Kind) -> str:
    if not kind.signs:
        return _JUDGED[kind.judged]
    return "; ".join(f"`{_code(sign.examples[0])}`" for sign in kind.signs)


def _code(text: str) -> str:
    return text.replace("`", "'")


if __name__ == "__main__":
    sys.stdout.write(page())
