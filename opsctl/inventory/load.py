"""Read inventory.yaml; every fault in it is one message with file, line and key."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from opsctl import yamltext
from opsctl.errors import InventoryError, UsageError
from opsctl.inventory.models import Host, Inventory, Service
from opsctl.text import did_you_mean

Loc = tuple[str | int, ...]


def load(path: Path, elsewhere: Callable[[str], bool] | None = None) -> Inventory:
    """Parse and check the inventory at `path`. `elsewhere` says of a name that is no entry, as
    `defaults.host` may be, whether it is a host all the same: a lab that runs needs none.

    Raises:
        InventoryError: the file cannot be read, is not YAML, repeats a key, or a value in it
            is not what the key takes. All faults are named, each with its line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InventoryError(
            f"{path}: cannot be read: {error}", remedy="the inventory is a file of UTF-8 text"
        ) from None
    try:
        node = yamltext.compose(text)
        lines: dict[Loc, int] = {}
        if node is not None:
            _index(node, (), lines, path)
        raw = yamltext.load(text)
    except yamltext.TooLarge as error:
        where = f"{path}:{error.problem_mark.line + 1}" if error.problem_mark else str(path)
        raise InventoryError(
            f"{where}: {error.problem}", remedy="write out what its aliases stand for"
        ) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None)
        raise _not_yaml(path, mark, problem or "it cannot be parsed") from None
    context = {"folder": path.resolve().parent, "elsewhere": elsewhere}
    try:
        inventory = Inventory.model_validate(raw, context=context)
    except ValidationError as error:
        faults = sorted({_fault(path, dict(e), lines) for e in error.errors()})
        raise InventoryError(
            "\n".join(text for _, text in faults), remedy="docs/inventory.md lists every key"
        ) from None
    inventory._path = path
    return inventory


def _not_yaml(path: Path, mark: yaml.Mark | None, problem: str) -> InventoryError:
    where = f"{path}:{mark.line + 1}" if mark else str(path)
    return InventoryError(
        f"{where}: not valid YAML: {problem}",
        remedy="mind the indentation and quote values that hold ': ' or '#'",
    )


def _index(node: yaml.Node, at: Loc, lines: dict[Loc, int], path: Path) -> None:
    """Map each key path to its 1-based line; a repeated key is an error, not the last one wins."""
    lines.setdefault(at, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _not_yaml(path, key.start_mark, "a key must be plain text")
            loc = (*at, key.value)
            if loc in lines:
                raise InventoryError(
                    f"{path}:{key.start_mark.line + 1}: {_dotted(loc)}: this key stands twice "
                    f"(first at line {lines[loc]})",
                    remedy="keep one of the two",
                )
            lines[loc] = key.start_mark.line + 1
            _index(value, loc, lines, path)
    elif isinstance(node, yaml.SequenceNode):
        for i, value in enumerate(node.value):
            _index(value, (*at, i), lines, path)


def _fault(path: Path, error: dict[str, Any], lines: dict[Loc, int]) -> tuple[int, str]:
    # Pydantic's path also names union members and validators, which the file does not hold.
    loc: Loc = ()
    for part in (*error["loc"], *error.get("ctx", {}).get("key", ())):
        if (*loc, part) in lines:
            loc = (*loc, part)
    line = lines.get(loc, 1)
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "missing":
        key = _dotted((*loc, error["loc"][-1]))
        message = "this key is required"
    elif error["type"] == "extra_forbidden":
        key, message = _dotted(loc), "no such key"
    elif error["type"] in {"model_type", "dict_type"}:
        key, message = _dotted(loc), "expected keys and values here"
    else:
        key = _dotted(loc)
        message = message[0].lower() + message[1:]
    return line, f"{path}:{line}: {key or 'inventory'}: {message}"


def _dotted(loc: Loc) -> str:
    return ".".join(str(part) for part in loc)


def select(
    inventory: Inventory, host: str | None = None, service: str | None = None
) -> tuple[Host, Service]:
    """The host and service meant. Without `host`: $OPSCTL_HOST, defaults.host, or the only
    host there is; without `service`: the only one of that host.

    Raises:
        UsageError: the name is not in the inventory, or the choice is open.
    """
    chosen = _pick("host", wanted(inventory, host), list(inventory.hosts), "--host")
    found = inventory.hosts[chosen]
    return found, found.services[
        _pick(f"service on {chosen}", service, list(found.services), "--service")
    ]


def wanted(inventory: Inventory, host: str | None = None) -> str | None:
    """The name of the host meant, whether or not there is one; None where none is named."""
    return host or os.environ.get("OPSCTL_HOST") or inventory.defaults.host


def _pick(kind: str, name: str | None, known: Sequence[str], option: str) -> str:
    if name is None and len(known) == 1:
        return known[0]
    if name is None:
        raise UsageError(f"which {kind}? There are {', '.join(known)}", remedy=f"give {option}")
    if name not in known:
        raise unknown(kind, name, known, option)
    return name


def unknown(
    kind: str, name: str, known: Sequence[str], option: str, labs: Sequence[str] = ()
) -> UsageError:
    """That there is no such host or service; `labs` are the running ones without an entry."""
    there = ", ".join(known)
    if labs:
        there += f", and running without an entry: {', '.join(labs)}"
    return UsageError(
        f"no {kind} is called {name!r} in the inventory; there are {there}"
        f"{did_you_mean(name, [*known, *labs])}",
        remedy=f"give one of them with {option}, or add it to the inventory",
        code="unknown_name",
    )
