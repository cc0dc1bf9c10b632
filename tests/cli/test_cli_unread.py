"""Nobody reads any more: no reason to end a rollout half-way, or with another exit status."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from opsctl import cli
from opsctl.cli.terminal import Terminal
from opsctl.events import Event


class Unread(io.StringIO):
    """Raises at each write, as a stream does whose reader left or whose disk is full."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [BrokenPipeError(), OSError(28, "No space left"), OSError(5, "EIO"), ValueError("closed")],
    ids=repr,
)
def test_events_go_on(error: Exception) -> None:
    terminal = Terminal(Unread(error))
    for step in ("stop", "swap"):
        terminal(Event(step, "ok"))
    terminal.close()


@pytest.mark.parametrize("redirect", [">/dev/full 2>&1", ">&- 2>&-", "2>/dev/full"])
@pytest.mark.parametrize("extra", ["", "--json"])
def test_the_exit_status_gets_out(tmp_path: Path, redirect: str, extra: str) -> None:
    command = f"{sys.executable} -m opsctl.cli -i {tmp_path}/none.yaml status {extra} {redirect}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, check=False)
    assert done.returncode == 2


def test_only_another_ctrl_c_ends_the_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(cli, "_interrupted_at", None)
    monkeypatch.setattr("time.monotonic", lambda: now)
    with pytest.raises(KeyboardInterrupt):
        cli._interrupt(signal.SIGINT, None)
    cli._interrupt(signal.SIGINT, None)  # the same press, to the whole process group
    now = 107.5
    cli._interrupt(signal.SIGTERM, None)  # what GitHub's runner sends next
    with pytest.raises(KeyboardInterrupt):
        cli._interrupt(signal.SIGINT, None)


def test_what_others_say_does_not_reach_the_terminal_as_commands() -> None:
    stream = io.StringIO()
    Terminal(stream)(Event("lock", "fail", "evil \x1b]0;pwn\x07\x1b[31m[red] [/] [/nope]\x9b2J"))
    assert not set("\x1b\x07\x9b\r") & set(stream.getvalue())
    assert "[red] [/] [/nope]" in stream.getvalue()


@pytest.mark.parametrize("line", ["deploy --nosuch", "frobnicate", "rollback host zzz", "-i"])
def test_a_wrong_command_line_is_one_json_object_too(line: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "opsctl.cli", "--json", *line.split(), "--json"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    report = json.loads(done.stdout)
    assert (report["exit_code"], done.returncode, report["verdict"]) == (2, 2, "error")
