"""A host added to an inventory that somebody owns: by lines, so that every other byte stays."""

from __future__ import annotations

from pathlib import Path

import yaml

from opsctl import yamltext
from opsctl.errors import InventoryError, UsageError


def add_host(text: str, entry: str, name: str, path: Path) -> str:
    """`text`, an inventory's, with `entry` (from the host's name on, indented by two) after its
    last host. `path` is for messages.

    Raises:
        UsageError: there is a host of that `name`, or the hosts are not written as a block.
        InventoryError: it is no inventory.
    """
    hosts = _hosts(text, path)
    for key, _ in hosts.value:
        if key.value == name:
            raise UsageError(
                f"{path}:{key.start_mark.line + 1}: there is a host {name!r} already",
                remedy=f"give the new one another name with --name, or see opsctl status {name}",
                code="host_exists",
            )
    if hosts.flow_style or not hosts.value:
        raise UsageError(
            f"{path}:{hosts.start_mark.line + 1}: its hosts are not a block, so no entry can be "
            "added by lines",
            remedy="put the entry in by hand: give --output - for its text",
            code="not_a_block",
        )
    indent = hosts.start_mark.column
    lines = text.splitlines(keepends=True)
    at = _end(lines, hosts)
    added = [f"{' ' * indent}{line[2:]}" for line in entry.splitlines(keepends=True)]
    if at and not lines[at - 1].endswith("\n"):
        lines[at - 1] += "\n"
    return "".join([*lines[:at], "\n", *added, *lines[at:]])


def _hosts(text: str, path: Path) -> yaml.MappingNode:
    try:
        root = yamltext.compose(text)
    except yaml.YAMLError:
        root = None
    if isinstance(root, yaml.MappingNode):
        for key, value in root.value:
            if key.value == "hosts" and isinstance(value, yaml.MappingNode):
                return value
    raise InventoryError(
        f"{path}: it has no hosts to add one to", remedy="docs/inventory.md shows an inventory"
    )


def _end(lines: list[str], hosts: yaml.MappingNode) -> int:
    """The line after the last one of the hosts. What YAML ends a block with is the next thing that
    is said: blank lines, and comments that are not indented as the hosts are, belong to that."""
    at = hosts.end_mark.line if hosts.end_mark.column == 0 else hosts.end_mark.line + 1
    at = min(at, len(lines))
    while at > hosts.start_mark.line + 1:
        line = lines[at - 1]
        indent = len(line) - len(line.lstrip())
        if line.strip() and (
            not line.lstrip().startswith("#") or indent >= hosts.start_mark.column
        ):
            break
        at -= 1
    return at
