"""The command where there is no screen to show."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

INVENTORY = """\
version: 1
hosts:
  gone:
    ssh: {address: 127.0.0.1, user: root, port: 9, connect_timeout: 1}
    services: &serve
      serve: {unit: s.service, python: /p, port: 1, model: {path: /m, served_name: m}}
  away:
    ssh: {address: 127.0.0.1, user: root, port: 9, connect_timeout: 1}
    services: *serve
"""


def opsctl(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "inventory.yaml"
    path.write_text(INVENTORY, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "opsctl.cli", "-i", str(path), "watch", *words],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )


def test_without_a_terminal_it_says_what_to_use(tmp_path: Path) -> None:
    done = opsctl(tmp_path, "gone")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: a screen needs a terminal\n"
        "  remedy: give --once for one look, or use `opsctl status --json`\n"
    )


def test_a_screen_is_no_json(tmp_path: Path) -> None:
    done = opsctl(tmp_path, "gone", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["reasons"][0]["code"] == "no_terminal"


def test_one_look_at_hosts_that_are_not_reached(tmp_path: Path) -> None:
    done = opsctl(tmp_path, "gone", "away", "--once", "--json")
    assert done.returncode == 5, done.stderr
    report = json.loads(done.stdout)
    assert (report["command"], report["verdict"]) == ("watch", "error")
    assert [host["host"] for host in report["data"]["hosts"]] == ["gone", "away"]
    assert {host["reached"] for host in report["data"]["hosts"]} == {False}
    assert len(report["reasons"]) == 2
    assert all(reason["remedy"] for reason in report["reasons"])


def test_it_is_shown_as_text(tmp_path: Path) -> None:
    done = opsctl(tmp_path, "gone", "--once")
    assert done.returncode == 5
    assert "opsctl watch  gone  UNREACHABLE, never heard" in done.stdout
    assert done.stderr.startswith("error: gone: UNREACHABLE")


def test_a_host_that_is_unknown(tmp_path: Path) -> None:
    done = opsctl(tmp_path, "gone", "gnoe", "--once")
    assert done.returncode == 2
    assert "no host is called 'gnoe'" in done.stderr


@pytest.mark.parametrize("module", ["curses", "httpx", "rich", "opsctl.watch.model"])
def test_the_command_line_does_not_import_it(module: str) -> None:
    code = "import sys, typer; from opsctl.cli.app import app; "
    code += "typer.main.get_command(app).commands['watch']; "
    code += f"sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
