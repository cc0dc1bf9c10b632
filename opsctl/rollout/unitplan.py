"""What a deploy would change of the unit's own files: the inventory's launch section, rendered,
against what the host has."""

from __future__ import annotations

import base64
import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsctl.inventory import Service
from opsctl.patchset import sha256
from opsctl.units.template import render_unit

_SECRET = re.compile(
    r"(?P<name>\b\w*(?:KEY|TOKEN|SECRET|PASSW\w*|CREDENTIAL)\w*=|--[\w-]*(?:key|token|secret)[= ])"
    r"[^\s\"']+",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class UnitChange:
    """One file below /etc/systemd/system; None where there is none, before or after."""

    path: str
    before: bytes | None
    after: bytes | None

    @property
    def diff(self) -> str:
        """A unified diff for eyes, with what looks like a secret taken out."""

        def lines(data: bytes | None) -> list[str]:
            text = (data or b"").decode("utf-8", "replace")
            return _SECRET.sub(r"\g<name>[redacted]", text).splitlines(keepends=True)

        def name(side: str, data: bytes | None) -> str:
            return "/dev/null" if data is None else f"{side}{self.path}"

        found = difflib.unified_diff(
            lines(self.before),
            lines(self.after),
            name("a", self.before),
            name("b", self.after),
        )
        return "".join(line if line.endswith("\n") else line + "\n" for line in found)

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "before_sha256": None if self.before is None else sha256(self.before),
            "after_sha256": None if self.after is None else sha256(self.after),
            "diff": self.diff,
        }


def compare(service: Service, facts: Mapping[str, Any], templates: Path) -> tuple[UnitChange, ...]:
    """The files that are not as the inventory has them; drop-ins of others are left alone.

    Raises:
        UsageError: the template is missing or faulty.
    """
    folder = facts["unit_files"]["folder"]
    there = {path: base64.b64decode(text) for path, text in facts["unit_files"]["files"].items()}
    wanted: dict[str, bytes | None] = {}
    generation = facts["generation"]
    for path in (generation or {}).get("unit", {}):
        if path.endswith(".conf"):
            wanted[path] = None  # opsctl's own, unless the inventory still has it
    wanted[f"{folder}/{service.unit}"] = render_unit(service, templates).encode()
    for name, text in service.launch.drop_ins.items():
        wanted[f"{folder}/{service.unit}.d/{name}"] = text.encode()
    return tuple(
        UnitChange(path, there.get(path), after)
        for path, after in sorted(wanted.items())
        if there.get(path) != after
    )


def arguments(changes: Sequence[UnitChange]) -> list[str] | None:
    """The command line of the fragment among `changes`; None if it does not change."""
    for change in changes:
        if change.path.endswith(".conf") or change.after is None:
            continue
        text = change.after.decode().replace("\\\n", " ")
        found = re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)
        return shlex.split(found[1]) if found else []
    return None
