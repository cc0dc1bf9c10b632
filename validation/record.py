"""The result file: one entry a stage, written as it becomes known, merged over invocations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def dumps(value: Any, indent: str = "") -> str:
    """JSON with lists and objects of plain values on one line each, so that diffs stay short."""
    if isinstance(value, dict):
        pairs = [(json.dumps(str(key)) + ": ", item) for key, item in value.items()]
        opening, closing = "{", "}"
    elif isinstance(value, (list, tuple)):
        pairs = [("", item) for item in value]
        opening, closing = "[", "]"
    else:
        return json.dumps(value)
    if not any(isinstance(item, (dict, list, tuple)) for _, item in pairs):
        inside = ", ".join(key + json.dumps(item) for key, item in pairs)
        return f"{opening}{inside}{closing}"
    deeper = indent + " "
    lines = [f"{deeper}{key}{dumps(item, deeper)}" for key, item in pairs]
    return f"{opening}\n" + ",\n".join(lines) + f"\n{indent}{closing}"


def load(path: Path) -> dict[str, Any]:
    """The result in `path`, or an empty one."""
    if not path.exists():
        return {"stages": {}}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def save(path: Path, result: dict[str, Any]) -> None:
    """Write whole or not at all: the machine may be taken at any moment."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(dumps(result) + "\n", encoding="utf-8")
    fresh.replace(path)


def merge(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Several results as one; a stage that ran well is not displaced by one that failed."""
    merged: dict[str, Any] = {"stages": {}}
    for result in results:
        merged |= {key: value for key, value in result.items() if key != "stages"}
        for name, stage in result["stages"].items():
            known = merged["stages"].get(name)
            if known is None or "error" in known or "error" not in stage:
                merged["stages"][name] = stage
    return merged
