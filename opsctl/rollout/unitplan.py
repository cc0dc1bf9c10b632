"""What a deploy would change of the unit's own files: the inventory's launch section, rendered,
against what the host has."""

from __future__ import annotations

import base64
import difflib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsctl.errors import UsageError
from opsctl.hostside import unitfiles
from opsctl.inventory import Service
from opsctl.patchset import sha256
from opsctl.rollout import drift
from opsctl.units import secrets
from opsctl.units.template import render_files

_SECRET = re.compile(
    r"(?P<name>\b\w*(?:KEY|TOKEN|SECRET|PASSW\w*|CREDENTIAL)\w*=|--[\w-]*(?:key|token|secret)[= ])"
    r"[^\s\"']+",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class UnitChange:
    """One file below /etc/systemd/system; None where there is none, before or after.

    Of the file with secrets `before` is never known, and `shown` is what may be seen of `after`.
    """

    path: str
    before: bytes | None
    after: bytes | None
    shown: str | None = None

    @property
    def diff(self) -> str:
        """A unified diff for eyes, with what looks like a secret taken out."""
        if self.secret:
            sign = "-" if self.after is None else "+"
            rows = (self.shown or "[what was there]\n").splitlines(keepends=True)
            return f"--- a{self.path}\n+++ b{self.path}\n" + "".join(sign + row for row in rows)

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

    @property
    def secret(self) -> bool:
        return self.path.endswith(unitfiles.SECRETS)

    def to_json(self) -> dict[str, Any]:
        def digest(data: bytes | None) -> str | None:
            # A hash of a short secret tells it to whoever tries them all.
            return None if data is None or self.secret else sha256(data)

        return {
            "path": self.path,
            "secret": self.secret,
            "before_sha256": digest(self.before),
            "after_sha256": digest(self.after),
            "diff": self.diff,
        }


def compare(
    service: Service, facts: Mapping[str, Any], templates: Path, *, needed: bool = True
) -> tuple[UnitChange, ...]:
    """The files that are not as the inventory has them; drop-ins of others are left alone.

    Unless they are `needed`, secrets that cannot be read here are not compared.

    Raises:
        UsageError: the template is missing or faulty, or a secret's reference cannot be read.
    """
    there = {path: base64.b64decode(text) for path, text in facts["unit_files"]["files"].items()}
    wanted: dict[str, bytes | None] = {}
    generation = facts["generation"]
    for path in (generation or {}).get("unit", {}):
        if path != f"{unitfiles.FOLDER}/{service.unit}" and not path.endswith(unitfiles.SECRETS):
            wanted[path] = None  # opsctl's own, unless the inventory still has it
    for path, text in render_files(service, templates).items():
        wanted[path] = text.encode()
    changes = [
        UnitChange(path, there.get(path), after)
        for path, after in wanted.items()
        if there.get(path) != after
    ]
    changes += _secret_change(service, facts, needed=needed)
    return tuple(sorted(changes, key=lambda change: change.path))


def _secret_change(
    service: Service, facts: Mapping[str, Any], *, needed: bool
) -> Iterator[UnitChange]:
    path = unitfiles.beside(service.unit, unitfiles.SECRETS)
    there = facts["unit_files"].get("secrets")
    try:
        text = secrets.render(service)
    except UsageError:
        if needed:
            raise
        return
    if text is None:
        if there and path in ((facts["generation"] or {}).get("unit") or {}):
            yield UnitChange(path, None, None)
    elif sha256(text.encode()) != there:
        yield UnitChange(path, None, text.encode(), secrets.shown(service))


@dataclass(frozen=True, slots=True)
class UnitInstall:
    """The unit's files alone as a further generation; the code stays as it is.

    `target`, `contents` and `seen` are what `stage` on the host takes.
    """

    facts: Mapping[str, Any]
    changes: tuple[UnitChange, ...]
    target: Mapping[str, Any]
    contents: Mapping[str, str]
    seen: Mapping[str, Mapping[str, str | None]]

    def to_json(self) -> dict[str, Any]:
        return {"files": [change.to_json() for change in self.changes]}


def install(service: Service, facts: Mapping[str, Any], templates: Path, host: str) -> UnitInstall:
    """What `opsctl unit install` would do on a host with these `facts`.

    Raises:
        UsageError: as `compare`.
        Refused: files of the present generation were changed by hand.
    """
    changed = drift.changed_files(facts)
    generation = facts["generation"]
    there = facts["install"]
    same = ("version", "package_dir")
    if generation is not None and any(generation[key] != there[key] for key in same):
        generation, changed = None, []  # of what was there before a reinstall
    if changed:
        raise drift.refusal(changed, "they are not the recorded generation's", host)
    changes = compare(service, facts, templates)
    files = generation["files"] if generation else {}
    return UnitInstall(
        facts=facts,
        changes=changes,
        target={
            "set": generation["set"] if generation else None,
            "signed": generation.get("signed") if generation else None,
            "files": files,
            "unit": {c.path: None if c.after is None else sha256(c.after) for c in changes},
        },
        contents={
            str(sha256(data)): base64.b64encode(data).decode("ascii")
            for data in (change.after for change in changes)
            if data is not None
        },
        seen=files,
    )


def arguments(changes: Sequence[UnitChange]) -> list[str] | None:
    """The command line of the fragment among `changes`; None if it does not change."""
    for change in changes:
        if not change.path.endswith(".service") or change.after is None:
            continue
        text = change.after.decode().replace("\\\n", " ")
        found = re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)
        return shlex.split(found[1]) if found else []
    return None
