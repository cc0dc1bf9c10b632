"""Examples in the help of commands and groups.

A command's docstring ends with them, in click's own way of keeping lines as they are::

    \b
    Examples:
      opsctl status ct200

A group that is added with `cls=Group` shows the first one of each of its commands.
"""

from __future__ import annotations

import inspect
from typing import Any

from typer.core import TyperGroup

HEAD = "Examples:"
_KEPT = "\b"  # click leaves the lines of a paragraph that begins with it alone


def split(text: str | None) -> tuple[str, tuple[str, ...]]:
    """A help text as what it says, without click's marks, and its example command lines."""
    said, _, rest = inspect.cleandoc(text or "").partition(HEAD)
    lines = tuple(line.strip() for line in rest.splitlines() if line.strip())
    return said.replace(_KEPT + "\n", "").replace(_KEPT, "").strip(), lines


class Group(TyperGroup):
    """A group of commands whose help ends with an example of each."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        lines = [split(command.help)[1][:1] for command in self.commands.values()]
        text = "\n".join(f"  {line}" for found in lines for line in found)
        self.epilog = f"{_KEPT}\n{HEAD}\n{text}" if text else None
        super().format_epilog(ctx, formatter)
