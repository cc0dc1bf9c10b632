"""Man pages of opsctl and of each command, in the man(7) macros."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from opsctl import __version__
from opsctl.cli.reference import Entry, Row, entries


def write(folder: Path) -> list[Path]:
    """Make `folder`, and in it `opsctl.1`, `opsctl-lab-up.1` and so on; the files, in order.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    every = entries()
    found = []
    for entry in every:
        path = folder / f"{_title(entry.name)}.1"
        path.write_text(page(entry), encoding="utf-8")
        found.append(path)
    return found


def page(entry: Entry) -> str:
    """One command as roff."""
    title = _title(entry.name)
    lines = [
        f'.TH "{title.upper()}" "1" "" "opsctl {__version__}" "opsctl"',
        *(".SH NAME", f"{_text(title)} \\- {_text(entry.first)}"),
        *(".SH SYNOPSIS", f".B {_text(entry.usage)}"),
        ".SH DESCRIPTION",
    ]
    for paragraph in entry.said.split("\n\n"):
        lines += [".PP", _text(" ".join(paragraph.split()))]
    lines += _listed("ARGUMENTS", entry.arguments)
    lines += _listed("OPTIONS", entry.options)
    lines += _listed("COMMANDS", entry.commands)
    lines += [".SH EXAMPLES", ".nf", *map(_text, entry.examples), ".fi"]
    others = _others(entry)
    if others:
        lines += [".SH SEE ALSO", ", ".join(f"\\fB{_text(name)}\\fR(1)" for name in others)]
    return "\n".join(lines) + "\n"


def _title(name: str) -> str:
    return name.replace(" ", "-")


def _others(entry: Entry) -> list[str]:
    """The page above, and those of a group's commands."""
    above = entry.name.rpartition(" ")[0]
    below = [f"{_title(entry.name)}-{name}" for name, _ in entry.commands]
    return [*([_title(above)] if above else []), *below]


def _listed(title: str, rows: Iterable[Row]) -> list[str]:
    lines = [line for name, said in rows for line in (".TP", f".B {_text(name)}", _text(said))]
    return [f".SH {title}", *lines] if lines else []


def _text(text: str) -> str:
    """`text` as roff shows it as it is: no escapes, no requests, dashes that can be copied, and
    what is not ASCII by its number, as groff(7) reads bytes."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    escaped = re.sub(r"[^\x00-\x7f]", lambda found: f"\\[u{ord(found[0]):04X}]", escaped)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    for _path in write(Path(sys.argv[1])):
        sys.stdout.write(f"{_path}\n")
