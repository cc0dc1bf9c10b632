"""Every command as its own `--help` has it: what docs/commands.md and the man pages are made of.

`python -m opsctl.cli.reference > docs/commands.md` writes the page anew; a test holds it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer

from opsctl.cli import examples
from opsctl.cli.app import app
from opsctl.cli.options import GLOBAL_NAMES

_HEAD = """\
# Commands

Made from the commands' own `--help` by `python -m opsctl.cli.reference > docs/commands.md`; change
it there. `scripts/man-pages FOLDER` makes the same into man pages.

"""

Row = tuple[str, str]  # how it is written, what it does


@dataclass(frozen=True, slots=True)
class Entry:
    """One command or group. `name` has the whole path, such as `opsctl lab up`."""

    name: str
    usage: str
    said: str
    arguments: tuple[Row, ...]
    options: tuple[Row, ...]
    commands: tuple[Row, ...]  # of a group, by their last word, with their first sentence
    examples: tuple[str, ...]

    @property
    def first(self) -> str:
        """What it does, in one sentence."""
        return " ".join(self.said.partition("\n\n")[0].split())


def entries() -> list[Entry]:
    """opsctl itself, then every command and group, each group before its commands."""
    return list(_walk(typer.main.get_command(app), None, "opsctl"))


def _walk(command: Any, parent: Any, name: str) -> Iterator[Entry]:
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    commands = getattr(command, "commands", {})
    below = [list(_walk(each, context, word)) for word, each in commands.items()]
    said, shown = examples.split(command.help)
    shown = shown or examples.split(command.epilog)[1]
    firsts = [found[0] for found in below]
    yield Entry(
        name=context.command_path,
        usage=" ".join([context.command_path, *command.collect_usage_pieces(context)]),
        said=said,
        arguments=tuple(_rows(command, context, kind="argument")),
        options=tuple(_rows(command, context, kind="option")),
        commands=tuple((each.name.rpartition(" ")[2], each.first) for each in firsts),
        examples=shown or tuple(line for each in firsts for line in each.examples[:1]),
    )
    for found in below:
        yield from found


def _rows(command: Any, context: Any, *, kind: str) -> Iterator[Row]:
    """The parameters of that kind. The options of every command are told of once, of opsctl."""
    for parameter in command.params:
        everywhere = parameter.name in GLOBAL_NAMES and context.parent is not None
        record = parameter.get_help_record(context)
        if parameter.param_type_name == kind and record is not None and not everywhere:
            yield record[0], " ".join(record[1].split())


def markdown() -> str:
    """docs/commands.md."""
    return _HEAD + "\n".join(_section(entry) for entry in entries())


def _section(entry: Entry) -> str:
    level = "#" * (1 + len(entry.name.split()))
    parts = [f"{level} {entry.name}", f"`{entry.usage}`", _escaped(entry.said)]
    for title, rows in (("Arguments", entry.arguments), ("Options", entry.options)):
        if rows:
            lines = [f"- `{name}`: {_escaped(text)}" for name, text in rows]
            parts += [f"{title}:", "\n".join(lines)]
    if entry.commands:
        lines = [f"- [`{name}`](#{_anchor(entry, name)}): {text}" for name, text in entry.commands]
        parts += ["Commands:", "\n".join(lines)]
    if not entry.commands:  # of a group each example stands with its command
        parts.append("\n".join(["```", *entry.examples, "```"]))
    return "\n\n".join(parts) + "\n"


def _anchor(entry: Entry, name: str) -> str:
    return f"{entry.name} {name}".replace(" ", "-")


def _escaped(text: str) -> str:
    return text.replace("<", "\\<").replace("*", "\\*")


if __name__ == "__main__":
    sys.stdout.write(markdown())
