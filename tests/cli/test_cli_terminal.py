"""Events for a person: lines in a log, a bar on a terminal."""

from __future__ import annotations

import io
import time

import pytest

from opsctl.cli.terminal import Terminal, show
from opsctl.events import Event
from opsctl.report import Report
from opsctl.text import duration


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def progress(message: str, phase: str, elapsed: float, remaining: float | None = None) -> Event:
    data = {"phase": phase, "elapsed_s": elapsed, "remaining_s": remaining, "budget_s": 900.0}
    return Event("wait", "progress", message, data)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.4, "59s"), (59.6, "1m00s"), (90, "1m30s"), (645, "10m45s"), (3601, "60m01s")],
)
def test_a_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_log_gets_a_line_a_phase_and_one_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    reader = Terminal(stream)
    for second in range(40):
        now[0] += 1
        phase = "starting" if second < 2 else "loading weights"
        reader(progress(f"{phase} {second}", phase, second, 640.0 - second))
    lines = stream.getvalue().splitlines()
    assert [line.split(": ")[1].split("  ")[0] for line in lines] == [
        *("starting 0", "loading weights 2", "loading weights 17", "loading weights 32")
    ]
    assert lines[0] == "..   wait: starting 0  0s of 15m00s  about 10m40s left"


@pytest.mark.parametrize("terminal", [False, True])
def test_a_drain_is_told_now_and_then_where_no_bar_can_be_drawn(
    monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    """Of a dumb terminal's bar nothing would be seen."""
    monkeypatch.setenv("TERM", "dumb")
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    stream = Tty() if terminal else io.StringIO()
    reader = Terminal(stream)
    reader(Event("drain", "start"))
    for second in range(40):
        now[0] += 1
        numbers = {"elapsed_s": float(second), "budget_s": 120.0}
        reader(Event("drain", "progress", f"{50 - second} requests under way", numbers))
    reader(Event("drain", "ok", "idle after 40s"))
    assert stream.getvalue().splitlines() == [
        "..   drain: 50 requests under way  0s of 2m00s",
        "..   drain: 35 requests under way  15s of 2m00s",
        "..   drain: 20 requests under way  30s of 2m00s",
        "ok   drain: idle after 40s",
    ]


def test_a_start_says_nothing_and_an_end_one_line() -> None:
    stream = io.StringIO()
    reader = Terminal(stream)
    reader(Event("stop", "start", "stopping"))
    reader(Event("stop", "ok", "in 1.0 s"))
    reader(Event("swap", "fail", "no [/] room"))
    reader(Event("lock", "warn"))
    assert stream.getvalue() == "ok   stop: in 1.0 s\nFAIL swap: no [/] room\nwarn lock\n"


def test_quiet_is_quiet() -> None:
    stream = io.StringIO()
    reader = Terminal(stream, quiet=True)
    reader(Event("stop", "fail", "x"))
    reader(progress("loading", "loading", 1))
    reader.close()
    assert stream.getvalue() == ""


def test_a_terminal_gets_a_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Tty()
    reader = Terminal(stream)
    reader(progress("loading weights 3/9", "loading weights", 10, 30))
    reader(progress("loading weights 4/9", "loading weights", 400, None))
    reader(Event("wait", "ok", "in 400 s"))
    text = stream.getvalue()
    assert "loading weights 4/9  6m40s of 15m00s" in text
    assert "wait: in 400 s" in text.splitlines()[-1]
    reader.close()
    reader.close()


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    event = Event("stop", "ok", "x")
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Tty()
    Terminal(plain)(event)
    assert "\x1b[32m" not in plain.getvalue()
    monkeypatch.delenv("NO_COLOR")
    colourful = Tty()
    Terminal(colourful)(event)
    assert "\x1b[32m" in colourful.getvalue()


def test_a_long_message_stays_on_one_line() -> None:
    out, err = io.StringIO(), io.StringIO()
    summary = "word " * 100 + "/a/path/that/is/copied"
    show(Report(command="x", verdict="pass", exit_code=0, summary=summary), out, err)
    assert out.getvalue() == f"pass  {summary}\n"
    assert err.getvalue() == ""
