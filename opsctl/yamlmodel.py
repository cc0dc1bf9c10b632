"""A file of YAML as a typed model; each fault in it is told with file, line and key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from opsctl import yamltext
from opsctl.errors import OpsctlError

Loc = tuple[str | int, ...]
_Model = TypeVar("_Model", bound=BaseModel)
# Makes the error of a message and a remedy.
Fail = Callable[[str, str], OpsctlError]
# Far more than an inventory of a hundred hosts has. PyYAML takes a second for some 30,000
# characters on a busy machine.
_MOST: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Document:
    """The plain values of a file, and the 1-based line of each key path in it."""

    path: Path
    raw: Any
    lines: Mapping[Loc, int]


def read(path: Path, fail: Fail, most: int = _MOST) -> Document:
    """Parse the file at `path`, which may have `most` characters.

    Raises:
        OpsctlError: `fail`'s, of a file that cannot be read, is not YAML of the safe subset, is
            too large, or repeats a key.
    """
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(most + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise fail(
            f"{path}: cannot be read: {error}", "it has to be a file of UTF-8 text"
        ) from None
    if len(text) > most:
        raise fail(
            f"{path}: it has more than {most:,} characters",
            "is it the file that was meant? One for opsctl is far shorter",
        )
    try:
        node = yamltext.compose(text)
        lines: dict[Loc, int] = {}
        if node is not None:
            _index(node, (), lines, path, fail)
        return Document(path, yamltext.load(text), lines)
    except yamltext.TooLarge as error:
        where = f"{path}:{error.problem_mark.line + 1}" if error.problem_mark else str(path)
        raise fail(f"{where}: {error.problem}", "write out what its aliases stand for") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None)
        raise _not_yaml(path, mark, problem or "it cannot be parsed", fail) from None


def model(
    document: Document,
    kind: type[_Model],
    fail: Fail,
    *,
    remedy: str,
    context: Mapping[str, Any] | None = None,
) -> _Model:
    """The document as a `kind`; `context` is for its validators, which may name the key path of
    a fault as `ctx["key"]` of a PydanticCustomError.

    Raises:
        OpsctlError: `fail`'s, naming all faults.
    """
    try:
        return kind.model_validate(document.raw, context=dict(context or {}))
    except ValidationError as error:
        faults = sorted({_fault(document, dict(e)) for e in error.errors()})
        raise fail("\n".join(text for _, text in faults), remedy) from None


def _not_yaml(path: Path, mark: yaml.Mark | None, problem: str, fail: Fail) -> OpsctlError:
    where = f"{path}:{mark.line + 1}" if mark else str(path)
    return fail(
        f"{where}: not valid YAML: {problem}",
        "mind the indentation and quote values that hold ': ' or '#'",
    )


def _index(node: yaml.Node, at: Loc, lines: dict[Loc, int], path: Path, fail: Fail) -> None:
    """Map each key path to its 1-based line; a repeated key is an error, not the last one wins."""
    lines.setdefault(at, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _not_yaml(path, key.start_mark, "a key must be plain text", fail)
            loc = (*at, key.value)
            if loc in lines:
                raise fail(
                    f"{path}:{key.start_mark.line + 1}: {_dotted(loc)}: this key stands twice "
                    f"(first at line {lines[loc]})",
                    "keep one of the two",
                )
            lines[loc] = key.start_mark.line + 1
            _index(value, loc, lines, path, fail)
    elif isinstance(node, yaml.SequenceNode):
        for i, value in enumerate(node.value):
            _index(value, (*at, i), lines, path, fail)


def _fault(document: Document, error: dict[str, Any]) -> tuple[int, str]:
    # Pydantic's path also names union members and validators, which the file does not hold.
    lines = document.lines
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
    return line, f"{document.path}:{line}: {key or 'the whole file'}: {message}"


def _dotted(loc: Loc) -> str:
    return ".".join(str(part) for part in loc)
