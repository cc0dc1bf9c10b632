"""The JSON schema of a playbook, for editors: made of the steps' own specs.

`python -m opsctl.playbook.schema > playbooks/playbook.schema.json` writes the one that comes with
opsctl; a test holds the two together.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from opsctl.playbook.model import Playbook
from opsctl.playbook.spec import CONDITIONS, ON_FAILURE_ONLY, SPECS

# Durations are text or seconds in a file; pydantic's own schema knows the seconds alone.
_DURATION = {
    "type": ["string", "number"],
    "description": "such as 90s, 15m or 1h30m; a number is seconds",
}


def schema() -> dict[str, Any]:
    """JSON Schema, draft 2020-12."""
    made = Playbook.model_json_schema(by_alias=True)
    definitions = {"Runbook": made["$defs"]["Runbook"], "conditions": _conditions()}
    definitions |= {name: _use(name) for name in SPECS}
    properties = made["properties"]
    properties["steps"] = {"type": "array", "minItems": 1, "items": _uses(set(ON_FAILURE_ONLY))}
    properties["on_failure"] = {"type": "array", "items": _uses(set()), "default": []}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A playbook of opsctl",
        "type": "object",
        "additionalProperties": False,
        "required": made["required"],
        "properties": properties,
        "$defs": definitions,
    }


def _uses(without: set[str]) -> dict[str, Any]:
    names = [name for name in SPECS if name not in without]
    bare = {"enum": names, "description": "the name of a step, without arguments or conditions"}
    return {"anyOf": [bare, *({"$ref": f"#/$defs/{name}"} for name in names)]}


def _use(name: str) -> dict[str, Any]:
    spec = SPECS[name]
    arguments = spec.takes.model_json_schema()
    given = {
        key: _argument(key, value, name) for key, value in arguments.get("properties", {}).items()
    }
    properties: dict[str, Any] = {
        "step": {"const": name, "description": f"{spec.does} ({spec.effect})"},
        "name": {"type": "string", "description": "what --from and the events call it"},
        "when": {"$ref": "#/$defs/conditions", "description": "all of these hold, else skipped"},
        "unless": {"$ref": "#/$defs/conditions", "description": "none of these holds"},
    }
    if given:
        properties["with"] = {
            "type": "object",
            "additionalProperties": False,
            "properties": given,
        }
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["step"],
        "properties": properties,
    }


def _argument(key: str, found: dict[str, Any], step: str) -> dict[str, Any]:
    if key in {"budget", "stall", "timeout"}:
        described = f"{found.get('description', key)}; {_DURATION['description']}"
        return {**_DURATION, "description": described}
    # `null` is the default of what may be left out, and nothing for a file to say.
    choices = [each for each in found.get("anyOf", ()) if each.get("type") != "null"]
    return {**(choices[0] if choices else found), "description": found.get("description", step)}


def _conditions() -> dict[str, Any]:
    one = {"anyOf": [{"const": name, "description": text} for name, text in CONDITIONS.items()]}
    return {"anyOf": [*one["anyOf"], {"type": "array", "items": one}]}


def text() -> str:
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
