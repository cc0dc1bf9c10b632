"""Events and reports for a person: progress on stderr, the result on stdout."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from opsctl.events import Event
from opsctl.text import duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from opsctl.report import Report

_MARK = {
    "ok": "[green]ok[/]  ",
    "info": "[cyan]--[/]  ",
    "warn": "[yellow]warn[/]",
    "fail": "[red]FAIL[/]",
    "progress": "[dim]..[/]  ",
}
_VERDICT = {"pass": "green", "fail": "red", "inconclusive": "yellow"}

# The code of a question that was answered with no.
DECLINED = "declined"

# Without a terminal to redraw, a CI log gets a line so often, seconds: silence for minutes is
# what users of such tools complain about.
_LINE_EVERY = 15.0

# The reader of a pipe left, the terminal hung up, the disk under a log is full, or the stream
# was closed. Of a broken pipe rich makes a SystemExit.
_UNREAD = (OSError, ValueError, SystemExit)


def console(stream: TextIO) -> Console:
    from rich.console import Console  # 65 ms of CPU, which --help need not pay

    # Messages are data: no colours by guess, and a ":key:" in one is not an emoji.
    # A terminal that redraws nothing gets what a file does: of rich's bars it would show none.
    redraws = None if os.environ.get("TERM") != "dumb" else False
    return Console(
        file=stream, force_terminal=redraws, highlight=False, emoji=False, soft_wrap=True
    )


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(plain(text))


def plain(text: str) -> str:
    """Without control sequences: what a host or another operator says is not for our terminal."""
    from opsctl.journal.text import clean

    return clean(text)


def finding_lines(findings: Iterable[Mapping[str, Any]]) -> str:
    """The findings of a doctor or a verify, a line each."""
    return "".join(
        plain(f"{found['status']:<5} {found['name']:<14} {found['message']}") + "\n"
        for found in findings
    )


class Terminal:
    """Reads events. A load is a bar where stderr is a terminal, and lines elsewhere."""

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        # NO_COLOR is rich's own to honour.
        self._console = console(stream)
        self._quiet = quiet
        self.failure = ""  # the message of the last step that was shown as failed
        self._bar: Progress | None = None
        self._task: Any = None
        self._line_at = 0.0
        self._line = ""

    def __call__(self, event: Event) -> None:
        """Never raises: a rollout must not end half-way because nobody reads any more."""
        if self._quiet:
            return
        try:
            self._show(event)
        except _UNREAD:
            self._quiet = True
            self._bar = self._task = None

    def _show(self, event: Event) -> None:
        if event.state == "progress":
            self._progress(event)
            return
        if event.state == "start":
            self._line_at = time.monotonic()
            return
        self.close()
        if event.state == "fail":
            self.failure = event.message
        text = f"{event.step}: {event.message}" if event.message else event.step
        self._console.print(f"{_MARK[event.state]} {_escape(text)}")

    def close(self) -> None:
        """End the bar, so that the next line stands by itself."""
        if self._bar is not None:
            with contextlib.suppress(*_UNREAD):
                self._bar.stop()
            self._bar = self._task = None

    def _progress(self, event: Event) -> None:
        text = _progress_text(event)
        if not self._console.is_terminal:
            now = time.monotonic()
            phase = str(event.data.get("phase", event.step))
            if now - self._line_at >= _LINE_EVERY or phase != self._line:
                self._line_at, self._line = now, phase
                self._console.print(f"{_MARK['progress']} {_escape(text)}")
            return
        if self._bar is None:
            from rich.progress import BarColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("[dim]..[/]"),
                BarColumn(bar_width=24),
                TextColumn("{task.description}"),
                console=self._console,
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=1.0)
        self._bar.update(self._task, completed=_fraction(event), description=_escape(text))


def _progress_text(event: Event) -> str:
    parts = [f"{event.step}: {event.message}"]
    elapsed = event.data.get("elapsed_s")
    if elapsed is not None:
        parts.append(f"{duration(float(elapsed))} of {duration(float(event.data['budget_s']))}")
    remaining = event.data.get("remaining_s")
    if remaining:
        parts.append(f"about {duration(float(remaining))} left")
    return "  ".join(parts)


def _fraction(event: Event) -> float:
    """Of the expected time where earlier loads tell, else of the budget."""
    elapsed = float(event.data.get("elapsed_s") or 0.0)
    remaining = event.data.get("remaining_s")
    whole = elapsed + float(remaining) if remaining else float(event.data.get("budget_s") or 0.0)
    return min(elapsed / whole, 1.0) if whole else 0.0


def show(report: Report, stdout: TextIO, stderr: TextIO, *, said: str = "") -> None:
    """The verdict on stdout; what is wrong, and what to do, on stderr.

    `said` is what stderr has as the message of a step that failed: it is not said twice.
    """
    out = console(stdout)
    if report.verdict in {"refused", "error"}:
        reason = report.reasons[0] if report.reasons else None
        if reason is not None and reason.code == DECLINED:  # an answer, and no fault
            console(stderr).print(_escape(report.summary))
            return
        text = report.summary
        if text == said:
            text = "nothing was changed on the host"
        complain(text, reason.remedy if reason is not None else "", stderr)
        return
    color = _VERDICT[report.verdict]
    out.print(f"[{color}]{report.verdict}[/]  {_escape(report.summary)}")
    err = console(stderr)
    for reason in report.reasons:
        if reason.message not in report.summary:
            err.print(f"[{color}]{reason.code}[/]: {_escape(reason.message)}")
        if reason.remedy:
            err.print(f"  remedy: {_escape(reason.remedy)}")


def complain(message: str, remedy: str, stderr: TextIO) -> None:
    """One clear message with its cause, and the remedy."""
    err = console(stderr)
    err.print(f"[red]error[/]: {_escape(message)}")
    if remedy:
        err.print(f"  remedy: {_escape(remedy)}")
