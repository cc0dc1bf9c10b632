"""The command line as a whole: what it lists, what it costs, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from opsctl import __version__
from opsctl.cli import _interrupt, examples, lazy
from opsctl.cli.app import app

REPOSITORY = Path(__file__).resolve().parents[2]
HEAVY = ("paramiko", "fabric", "httpx", "pydantic", "rich", "yaml", "tenacity", "jinja2")


def commands(group: Any = None, above: str = "") -> Iterator[tuple[str, Any]]:
    """Every command by its full name, such as `lab up`."""
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{above}{name} ")
        else:
            yield f"{above}{name}", command


ALL = dict(commands())


def test_the_commands() -> None:
    assert set(ALL) == {
        *("deploy", "plan", "restart", "rollback", "confirm", "wait", "smoke", "gate"),
        *(f"baseline {verb}" for verb in ("capture", "list", "export", "import", "remove")),
        *("init", "status", "doctor", "logs", "metrics", "diagnose", "watch", "triage"),
        *(f"playbook {verb}" for verb in ("list", "show", "check", "steps", "run")),
        *(f"runbook {verb}" for verb in ("list", "show", "run")),
        *("history", "verify", "audit", "lock show", "lock take", "lock release"),
        "notices test",
        *("patches list", "patches show", "patches check", "patches sign", "patches verify"),
        *("unit render", "unit diff", "unit install", "unit lint"),
        *("lab up", "lab down", "lab status", "lab ssh", "lab reset"),
    }


@pytest.mark.parametrize("name", ALL)
def test_a_command_helps(name: str) -> None:
    shown = CliRunner().invoke(app, [*name.split(), "--help"])
    assert shown.exit_code == 0
    command = ALL[name]
    assert command.help
    for parameter in command.params:
        assert parameter.help, f"{name}: {parameter.name} has no help"
        assert "--help" in shown.stdout


@pytest.mark.parametrize("name", sorted(set(ALL) - {"lab ssh"}))
def test_a_command_has_json(name: str) -> None:
    assert "--json" in {option for p in ALL[name].params for option in p.opts}


@pytest.mark.parametrize("name", sorted(set(ALL) - {"lab ssh"}))
def test_a_command_takes_the_options_of_all_after_its_name(name: str) -> None:
    taken = {option for p in ALL[name].params for option in p.opts}
    assert taken >= {"-i", "--inventory", "--debug", "-q", "--quiet"}


def test_every_command_is_documented() -> None:
    """By its full name, or in a list of them: `opsctl lab up | down`."""
    written = set((REPOSITORY / "docs").glob("*.md")) - {REPOSITORY / "docs" / "commands.md"}
    pages = [REPOSITORY / "README.md", *sorted(written)]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    undocumented = []
    for name in ALL:
        group, _, last = name.rpartition(" ")
        listed = rf"opsctl {group}\b[^\n]*[\s|`,]{last}\b" if group else rf"opsctl {last}\b"
        if not re.search(listed, text):
            undocumented.append(name)
    assert undocumented == [], "name these in README.md or docs/"


# -- what it costs ---------------------------------------------------------------------------


def test_help_needs_no_heavy_module() -> None:
    code = "import sys, typer; from opsctl.cli.app import app; "
    code += "[*typer.main.get_command(app).commands.values()]; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"typer", "opsctl.cli.host", "opsctl.cli.lab"} <= loaded, "each command was made"
    assert loaded.isdisjoint(HEAVY), loaded & set(HEAVY)


def cpu_seconds(*argv: str) -> float:
    """User and system time of one child, the best of five."""
    times = []
    for _ in range(5):
        process = subprocess.Popen([sys.executable, *argv], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        times.append(usage.ru_utime + usage.ru_stime)
    return min(times)


def test_help_is_quick() -> None:
    """Beside what Typer's import alone takes, as a busy machine makes all of it slower. Measured:
    1.4 times that; all fifty commands made, it was 2.5 times."""
    assert cpu_seconds("-m", "opsctl.cli", "--help") < 2 * cpu_seconds("-c", "import typer")


def test_a_command_is_made_without_the_others() -> None:
    code = "import sys, typer; from opsctl.cli.app import app; group = typer.main.get_command(app)"
    code += "; list(group.commands); assert 'opsctl.cli.host' not in sys.modules"
    code += "; group.commands['status']; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    own = {name for name in done.stdout.split() if name.startswith("opsctl.cli.")}
    assert "opsctl.cli.host" in own
    assert own.isdisjoint({"opsctl.cli.watch", "opsctl.cli.gate", "opsctl.cli.lab"})


def test_the_list_says_of_each_what_it_says_itself() -> None:
    group: Any = typer.main.get_command(app)
    said = {
        name: " ".join(examples.split(command.help)[0].partition("\n\n")[0].split())
        for name, command in group.commands.items()
    }
    assert said == {name: text for name, (_, text) in lazy.COMMANDS.items()}
    modules = {module for module, _ in lazy.COMMANDS.values()}
    for module in modules:  # none adds a command that the list lacks
        assert set(lazy._made(module)) == {n for n, (m, _) in lazy.COMMANDS.items() if m == module}


# -- how it ends -----------------------------------------------------------------------------


def opsctl(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "opsctl.cli", *argv],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def test_the_version() -> None:
    done = opsctl("--version")
    assert (done.returncode, done.stdout) == (0, f"opsctl {__version__}\n")


@pytest.mark.parametrize(
    "argv",
    [
        ("explode",),
        ("deploy", "--explode"),
        ("deploy", "a", "b"),
        ("rollback", "a", "second"),
        ("deploy", "--on-inconclusive", "pray"),
        ("logs", "--lines", "0"),
        ("lab", "explode"),
        ("--inventory", "/nonexistent/inventory.yaml", "status"),
        ("status", "--inventory", "/nonexistent/inventory.yaml"),
        ("plan", "-i", "/nonexistent/inventory.yaml"),
        ("lab", "up", "-i", "/nonexistent/inventory.yaml"),
        ("lock", "take", "--", "true"),
    ],
)
def test_wrong_usage_exits_2(argv: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, list(argv))
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_no_command_shows_the_help() -> None:
    done = CliRunner().invoke(app, [])
    assert "deploy" in done.output


def test_a_malformed_inventory_is_one_message_or_one_object(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text("version: 1\nhosts:\n  a: {lab: x, services: {s: {prot: 1}}}\n")
    done = opsctl("--inventory", str(path), "status")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{path}:3: hosts.a.services.s.prot: no such key" in done.stderr
    assert "Traceback" not in done.stderr
    done = opsctl("--inventory", str(path), "status", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["exit_code"], report["verdict"]) == (2, 2, "error")
    assert report["reasons"][0]["code"] == "inventory_invalid"


def test_a_reader_that_goes_away_is_no_fault() -> None:
    argv = f"{sys.executable} -m opsctl.cli patches show ddtree --json"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{argv} | true"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_sigterm_is_an_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt):
        _interrupt(signal.SIGTERM, None)
    code = (
        "import os, signal\n"
        "from opsctl import patchset\n"
        "from opsctl.cli import main\n"
        "patchset.discover = lambda folder: os.kill(os.getpid(), signal.SIGTERM)\n"
        "import sys; sys.argv = ['opsctl', 'patches', 'list', '--json']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 130
    assert json.loads(done.stdout)["exit_code"] == 130
    assert "Traceback" not in done.stderr
