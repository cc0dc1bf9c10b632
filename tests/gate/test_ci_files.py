"""The ready CI files: what they run, and that a cancelled job reaches opsctl."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

CI = Path(__file__).resolve().parents[2] / "docs" / "ci"


def options() -> set[str]:
    """What `opsctl gate` takes."""
    from opsctl.cli.app import app

    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return {name for parameter in commands["gate"].params for name in parameter.opts}


# Stands for opsctl: notes how it was called; takes a while to restore when it is told to stop.
OPSCTL = """#!/usr/bin/env bash
printf '%s\\n' "$@" > args
env > environment
trap 'sleep 0.3; echo restored > restored; exit 10' TERM INT
echo '{}'
touch started
[ "${WAITS:-}" = "" ] || while :; do sleep 0.05; done
exit "${ENDS:-0}"
"""
AGENT = """#!/usr/bin/env bash
[ "${1:-}" = -k ] && touch "$HOME/agent-ended" && exit
echo "SSH_AGENT_PID=1; export SSH_AGENT_PID;"
"""
ADD = """#!/usr/bin/env bash
cat > "$HOME/key"
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (("opsctl", OPSCTL), ("ssh-agent", AGENT), ("ssh-add", ADD)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    return tmp_path


def started(place: Path, **more: str) -> subprocess.Popen[bytes]:
    environment = {
        "PATH": f"{place / 'tools'}:{os.environ['PATH']}",
        "HOME": str(place),
        "GATE_SSH_KEY": "the key",
        "GATE_KNOWN_HOSTS": "[ct200]:22 ssh-ed25519 AAAA\nother ssh-ed25519 BBBB",
        **more,
    }
    script = [str(CI / "generic.sh"), "ct200", "ddtree@1.1.0"]
    # Where the tests themselves run in the background, SIGINT is ignored, and stays so in children:
    # a shell cannot trap what was ignored when it began.
    mine = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(script, cwd=place, env=environment)
    finally:
        signal.signal(signal.SIGINT, mine)


@pytest.mark.parametrize("code", [0, 3, 10, 11, 12])
def test_the_script_ends_as_opsctl_does(place: Path, code: int) -> None:
    assert started(place, ENDS=str(code)).wait(60) == code
    args = (place / "args").read_text().split()
    assert args[:4] == ["gate", "ct200", "--set", "ddtree@1.1.0"]
    assert {arg for arg in args if arg.startswith("--")} <= options()
    assert (place / "gate.json").read_text() == "{}\n"
    assert (place / "agent-ended").exists()


def test_the_key_goes_to_the_agent_alone(place: Path) -> None:
    for _ in range(2):  # what is known is not added again
        assert started(place).wait(60) == 0
    assert (place / "key").read_text() == "the key\n"
    assert "the key" not in (place / "environment").read_text()
    known = place / ".ssh" / "known_hosts"
    assert len(known.read_text().splitlines()) == 2
    assert known.stat().st_mode & 0o077 == 0
    assert [each.name for each in known.parent.iterdir()] == ["known_hosts"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_cancelled_job_waits_until_opsctl_has_restored(place: Path, number: int) -> None:
    running = started(place, WAITS="1")
    deadline = time.monotonic() + 60
    while not (place / "started").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    running.send_signal(number)
    assert running.wait(60) == 10
    assert (place / "restored").exists()
    assert (place / "agent-ended").exists()


def test_the_script_asks_for_its_secrets(place: Path) -> None:
    assert started(place, GATE_SSH_KEY="").wait(60) != 0
    assert not (place / "args").exists()


def workflow() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CI / "github-actions.yml").read_text(encoding="utf-8"))
    return found


def steps() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = workflow()["jobs"]["gate"]["steps"]
    return found


def test_the_workflow_runs_one_gate_a_host_and_ends_none() -> None:
    concurrency = workflow()["concurrency"]
    assert "inputs.host" in concurrency["group"]
    assert concurrency["cancel-in-progress"] is False
    assert workflow()["jobs"]["gate"]["timeout-minutes"] > 0
    assert workflow()["permissions"] == {"contents": "read"}


def test_the_signal_of_a_cancelled_workflow_reaches_opsctl() -> None:
    (gate,) = (step for step in steps() if step.get("id") == "gate")
    words = shlex.split(gate["run"])
    assert words[:3] == ["exec", "opsctl", "gate"]
    assert {word for word in words if word.startswith("--")} <= options()


def test_no_script_of_the_workflow_holds_anyones_text() -> None:
    for step in steps():
        script = step.get("run", "")
        assert "${{" not in script
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
        if "uses" in step:
            assert re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"])


def test_the_workflow_reports_also_what_failed() -> None:
    (upload,) = (step for step in steps() if "upload-artifact" in step.get("uses", ""))
    assert upload["if"].startswith("always()")
    (gate,) = (step for step in steps() if step.get("id") == "gate")
    for file in upload["with"]["path"].split():
        assert file in gate["run"]
