"""Each command's help, with its examples, and the pages that are made of it."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.exceptions import TyperException
from typer.testing import CliRunner

from opsctl.cli import manpage
from opsctl.cli.app import app
from opsctl.cli.reference import Entry, entries, markdown

REPOSITORY = Path(__file__).resolve().parents[2]
ENTRIES = entries()
EXAMPLES = sorted({line for entry in ENTRIES for line in entry.examples})


def parsed(line: str) -> str:
    """The name of the command that a line calls, its options and arguments checked but not run."""
    words = shlex.split(line)
    words = words[words.index("opsctl") + 1 :]
    context: Any = None
    command: Any = typer.main.get_command(app)
    name = "opsctl"
    while hasattr(command, "commands"):
        context = command.make_context(name, words, parent=context)
        name, command, words = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
    with contextlib.suppress(typer.Exit):  # an option that prints something and is done
        command.make_context(name, words, parent=context)
    return f"{context.command_path} {name}"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_command_helps_within_80_columns_and_by_example(entry: Entry) -> None:
    assert entry.said
    assert entry.examples, "end its docstring with examples: opsctl/cli/examples.py"
    words = entry.name.split()[1:]
    shown = CliRunner().invoke(app, [*words, "--help"], terminal_width=80).stdout.splitlines()
    assert max(len(line) for line in shown) <= 80
    for line in entry.examples:
        assert f"    {line}" in shown, "an example keeps its line"
    for name, said in (*entry.arguments, *entry.options):
        assert said, f"{name} has no help"


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_is_a_command_line(line: str) -> None:
    assert parsed(line) in {entry.name for entry in ENTRIES}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_example_is_of_its_command(entry: Entry) -> None:
    for line in entry.examples:
        assert entry.name in line


@pytest.mark.parametrize(
    "line",
    ["opsctl explode", "opsctl deploy a b", "opsctl logs -n few", "opsctl lab up --json x y"],
)
def test_a_line_that_is_none_is_found_out(line: str) -> None:
    with pytest.raises(TyperException):
        parsed(line)


def test_the_page_is_current() -> None:
    page = (REPOSITORY / "docs" / "commands.md").read_text(encoding="utf-8")
    assert page == markdown(), "run: python -m opsctl.cli.reference > docs/commands.md"


def test_man_pages_say_all_of_it(tmp_path: Path) -> None:
    pages = manpage.write(tmp_path / "man1")
    assert len(pages) == len(ENTRIES)
    text = (tmp_path / "man1" / "opsctl-lock-take.1").read_text(encoding="utf-8")
    assert "\nopsctl lock take ct200 \\-\\-why 'moving disks'\n" in text
    assert "\\fBopsctl\\-lock\\fR(1)" in text


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_man_pages_are_clean_roff(tmp_path: Path) -> None:
    pages = manpage.write(tmp_path)
    argv = ["groff", "-man", "-Tutf8", "-ww", "-z"]
    for page in pages:
        done = subprocess.run([*argv, page], capture_output=True, text=True, check=True)
        assert done.stderr == "", page.name
    entry = Entry("opsctl x", "opsctl x", ".starts with a \\dot…", (), (), (), ("'quoted'",))
    page = tmp_path / "x.1"
    page.write_text(manpage.page(entry), encoding="utf-8")
    shown = subprocess.run(
        ["groff", "-man", "-Tutf8", page], capture_output=True, text=True, check=True
    ).stdout
    assert ".starts with a \\dot…" in shown
    assert "'quoted'" in shown
