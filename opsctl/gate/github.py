"""A gate on GitHub Actions: annotations, the step's summary, and the step's outputs.

Sources: GitHub's "Workflow commands for GitHub Actions" for the commands, their escapes and the
files; actions/runner (ExecutionContext.cs) for 10 annotations of a kind a step and 4096
characters a message; 1 MiB a step's summary, beyond which GitHub drops all of it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

from opsctl.gate import words
from opsctl.gate.model import GateCheck, GateResult, Outcome, Shown
from opsctl.text import duration

Kind = Literal["error", "warning", "notice"]

_KINDS: Final[dict[Outcome, Kind]] = {
    "pass": "notice",
    "fail": "error",
    "inconclusive": "warning",
    "skipped": "notice",
}
ANNOTATIONS: Final = 10  # of a kind
MESSAGE: Final = 4096  # characters
SUMMARY: Final = 1 << 20  # bytes
_TITLE: Final = 120
_CELL: Final = 2_000  # characters of a reason or a text: a check's own words never are so long
_ROOM: Final = 200  # bytes, for the line that says what was left out
# What GitHub's Markdown may take for its own; an address is a link by :// or www. alone.
_MARKDOWN: Final = re.compile(r"[\\`*_\[\]#|~@$]|:(?=//)|(?<=www)\.", re.IGNORECASE)


def commands(result: GateResult) -> tuple[str, ...]:
    """Workflow commands, a line each, for stdout: the verdict, and an error for each failure
    and a warning for each inconclusive check. The tenth of a kind names those for which GitHub
    has no room."""
    kind = _KINDS[result.outcome]
    remedy = f"\nremedy: {result.remedy}" if result.remedy else ""
    title = f"gate of {result.host}: {words.verdict(result).lower()}"
    first = command(kind, f"{words.ending(result)}\n{result.summary}{remedy}", title)
    failed = _of_checks("error", result.of("fail"), ANNOTATIONS - (kind == "error"))
    unsure = _of_checks("warning", result.of("inconclusive"), ANNOTATIONS - (kind == "warning"))
    return (first, *failed, *unsure)


def _of_checks(kind: Kind, checks: Sequence[GateCheck], room: int) -> Iterator[str]:
    shown = checks if len(checks) <= room else checks[: room - 1]
    for check in shown:
        yield command(kind, words.because(check), f"{check.phase}: {check.name}")
    if rest := checks[len(shown) :]:
        names = ", ".join(f"{check.phase}: {check.name}" for check in rest)
        yield command(kind, names, f"{len(rest)} more, all in the step's summary")


def command(kind: Kind, message: str, title: str) -> str:
    """One workflow command; what is too long is cut, and says so."""
    head = _escaped(words.cut(words.visible(title), _TITLE)).replace(":", "%3A").replace(",", "%2C")
    text = words.visible(message)
    if len(text) > MESSAGE:
        text = words.cut(text, MESSAGE - 40)
    return f"::{kind} title={head}::{_escaped(text)}"


def _escaped(text: str) -> str:
    """Visible text has no carriage return, the third of a command's own characters."""
    return text.replace("%", "%25").replace("\n", "%0A")


def outputs(result: GateResult) -> dict[str, str]:
    """What later steps read as `steps.ID.outputs.NAME`; `generation` is "" where none is known."""
    return {
        "verdict": result.outcome,
        "exit_code": str(result.exit_code),
        "ending": result.ending,
        "generation": "" if result.generation is None else str(result.generation),
    }


def write_outputs(result: GateResult, path: Path) -> None:
    """To the file of `$GITHUB_OUTPUT`, after what other commands wrote.

    Raises:
        OSError: it cannot be written.
    """
    # Fixed words and whole numbers: no value can begin a line of its own.
    _append(path, "".join(f"{name}={value}\n" for name, value in outputs(result).items()))


def write_summary(result: GateResult, path: Path) -> None:
    """To the file of `$GITHUB_STEP_SUMMARY`, after what the step wrote before.

    Raises:
        OSError: it cannot be written.
    """
    taken = path.stat().st_size if path.exists() else 0
    _append(path, summary(result, SUMMARY - taken))


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8", newline="\n") as file:
        file.write(text)


def summary(result: GateResult, limit: int = SUMMARY) -> str:
    """The step's summary as Markdown, of at most `limit` bytes in UTF-8.

    The most important stands first, so what does not fit is the end; the last line says what
    was left out. "" where not even the verdict fits; the annotations tell it too.
    """
    page = _Page(limit)
    for line in _head(result):
        page.add(line, "lines of the head")
    page.rows(
        "Checks", "|  | check | why | kind | policy |", map(_check_row, _ordered(result)), "checks"
    )
    if result.soak is not None:
        page.rows("Soak", "| figure | value |", map(_row, words.load(result.soak)), "soak figures")
        page.rows(
            "Latency",
            "| seconds | p50 | p90 | p99 |",
            (
                _row((name, *(words.figure(value) for value in (q.p50, q.p90, q.p99))))
                for name, q in words.latencies(result.soak)
            ),
            "latencies",
        )
    for shown in result.divergences:
        page.add(_divergence(shown), "divergences")
    return page.text()


class _Page:
    """Markdown up to a size; counts what found no room."""

    def __init__(self, limit: int) -> None:
        self._left = limit - _ROOM
        self._parts: list[str] = []
        self._missed: dict[str, int] = {}

    def add(self, part: str, name: str) -> None:
        size = len(part.encode()) + 1
        if self._missed or size > self._left:
            self._missed[name] = self._missed.get(name, 0) + 1
            return
        self._left -= size
        self._parts.append(part)

    def rows(self, title: str, head: str, rows: Iterable[str], name: str) -> None:
        """A table, or as many of its rows as there is room for; nothing without any."""
        begin = f"\n### {title}\n\n{head}\n|{' --- |' * (head.count('|') - 1)}\n"
        for row in rows:
            self.add(f"{begin}{row}", name)
            begin = ""

    def text(self) -> str:
        if not self._parts:
            return ""
        missed = ", ".join(f"{count} {name}" for name, count in self._missed.items())
        note = [f"\n**Left out, for GitHub takes 1 MiB a step: {missed}.**"] if missed else []
        return "\n".join([*self._parts, *note]) + "\n"


def _head(result: GateResult) -> Iterator[str]:
    yield f"## {_BADGES[result.outcome]} {_cell(words.headline(result))}"
    yield f"\n{_cell(result.summary)}"
    if result.remedy:
        yield f"\n> **Remedy:** {_cell(result.remedy)}"
    for check in result.reasons[:3]:
        yield f"\n- **{_cell(f'{check.phase}: {check.name}')}**: {_cell(words.because(check))}"
    told = " · ".join(f"{_cell(name)} **{_cell(value)}**" for name, value in words.facts(result))
    took = f"{words.moment(result.started_at)}, {duration(result.duration_s)}"
    yield f"\n{told}\n\n{_cell(took)} · {_cell(words.counts(result))}"


# Fixed size on GitHub, whatever the reader's font; the word beside it says the same.
_BADGES: Final = {"pass": "✅", "fail": "❌", "inconclusive": "⚠️", "skipped": "⏭️"}


def _ordered(result: GateResult) -> tuple[GateCheck, ...]:
    return (*result.reasons, *result.of("pass"), *result.of("skipped"))


def _check_row(check: GateCheck) -> str:
    outcome = f"{_BADGES[check.outcome]} {check.outcome}"
    return _row((outcome, f"{check.phase}: {check.name}", check.reason, check.kind, check.policy))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(text: str) -> str:
    """Anyone's text as itself, in one line of Markdown."""
    cleaned = words.cut(words.visible(text), _CELL).strip()
    plain = _MARKDOWN.sub(r"\\\g<0>", html.escape(cleaned, quote=False))
    return plain.replace("\n", "<br>")


def _divergence(shown: Shown) -> str:
    """An HTML block: Markdown has no table in which a text keeps its lines."""
    at = shown.index - shown.begin
    tokens = "".join(f"<td>{_tokens(ids, at)}</td>" for ids in (shown.expected_ids, shown.got_ids))
    texts = "".join(f"<td>{_pre(text)}</td>" for text in (shown.expected_text, shown.got_text))
    return (
        f"\n### {_cell(f'{shown.prompt} ({shown.stage})')}: {_cell(words.difference(shown))}\n\n"
        "<table><tr><th></th><th>expected</th><th>got</th></tr>"
        f"<tr><th>tokens from {shown.begin} on</th>{tokens}</tr>"
        f"<tr><th>text</th>{texts}</tr></table>\n"
    )


def _tokens(ids: Sequence[int], different: int) -> str:
    told = [f"<b>{each}</b>" if place == different else f"{each}" for place, each in enumerate(ids)]
    return " ".join(told) or "none"


def _pre(text: str) -> str:
    """As preformatted text; a blank line would end the HTML block."""
    cleaned = words.cut(words.visible(text), _CELL)
    return f"<pre>{html.escape(cleaned)}</pre>".replace("\n", "&#10;")
