"""Files of a host that are not as recorded: which, what a hand did to them, and what to do."""

from __future__ import annotations

import base64
import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from opsctl import patchset as ps
from opsctl.errors import Refused
from opsctl.hostside import unitfiles
from opsctl.text import counted

REINSTALL = "reinstall the distribution (pip install --force-reinstall --no-deps)"

Contents = Mapping[str, bytes | None]  # by the path below the package; None for no file
Recorded = tuple[int | None, Contents]  # the present generation, and what it put there


def changed_files(facts: Mapping[str, Any]) -> list[str]:
    """Files that are not as the recorded generation has them."""
    recorded = facts["generation"].get("files", {}) if facts["generation"] else {}
    now = facts.get("install", {}).get("files", {})
    return sorted(
        path for path, f in recorded.items() if path in now and now[path]["sha256"] != f["sha256"]
    )


def reinstalled_files(facts: Mapping[str, Any]) -> list[str]:
    """Those of `changed_files` that are the wheel's own again, as after a reinstall."""
    now = facts.get("install", {}).get("files", {})
    odd = changed_files(facts)
    return [path for path in odd if now[path]["sha256"] == now[path]["record_sha256"]]


def changed_unit_files(facts: Mapping[str, Any]) -> list[str]:
    """The same of the unit's own files, by their paths; of that with secrets the host tells the
    hash alone."""
    recorded = (facts["generation"] or {}).get("unit") or {}
    unit_files = facts.get("unit_files") or {}
    there = unit_files.get("files") or {}

    def now(path: str) -> str | None:
        if path.endswith(unitfiles.SECRETS):
            return unit_files.get("secrets")
        return _hash(base64.b64decode(there[path])) if path in there else None

    return sorted(path for path, file in recorded.items() if now(path) != file["sha256"])


def adopted_text(generation: Mapping[str, Any] | None) -> str:
    """That the generation keeps what a hand did, in words for a person; "" where it does not."""
    adopted = (generation or {}).get("adopted")
    if generation is None or not adopted:
        return ""
    files = "a file" if len(adopted) == 1 else counted(len(adopted), "file")
    return f"generation {generation['number']} holds {files} changed by hand: {', '.join(adopted)}"


def remedy(host: str, generation: int | None = None) -> str:
    """What may be done about files changed by hand, the same wherever they are found.

    `generation` is the present one where it has recorded them, so that it can put them back.
    """
    back = ""
    if generation is not None:
        back = f"opsctl rollback {host} {generation} puts the recorded files back, or "
    return (
        f"{back}opsctl deploy {host} --adopt records them as they are and deploys over them (a "
        f"rollback returns them), or put the change into a patch of the set, or {REINSTALL} and "
        f"opsctl deploy {host}"
    )


def refusal(paths: Sequence[str], why: str, host: str, generation: int | None = None) -> Refused:
    """That a deploy would go over files that are not known, with the way on."""
    return Refused(
        f"drift on the host: {', '.join(paths)}: {why}",
        remedy=remedy(host, generation),
        code="drift",
    )


def unexplained(
    generation: Mapping[str, Any] | None,
    current: Contents,
    pristine: Contents,
    known: Collection[str],
) -> list[str]:
    """The files that neither the recorded generation nor the wheel explains.

    `known` are those of a set that was recognised.
    """
    recorded = generation["files"] if generation else {}
    found = []
    for path, data in sorted(current.items()):
        allowed = {_hash(pristine[path])}  # a reinstall takes a set away, which is no drift
        if path in recorded:
            allowed.add(recorded[path]["sha256"])
        if path not in known and _hash(data) not in allowed:
            found.append(path)
    return found


def by_hand(paths: Sequence[str], wheel: Contents, recorded: Recorded, current: Contents) -> str:
    """What a hand did to `paths`, as a diff from what the recorded generation put there, or the
    wheel where that has no word of a file, to what is on the host."""
    changed = "it was" if len(paths) == 1 else "they were"
    number, ours = recorded
    return f"{changed} changed by hand:\n" + "".join(
        _diff(path, ours[path], current[path], f"recorded (generation {number})")
        if path in ours
        else _diff(path, wheel[path], current[path], "the wheel")
        for path in paths
    )


def _diff(path: str, before: bytes | None, after: bytes | None, source: str) -> str:
    def lines(data: bytes | None) -> list[str]:
        text = (data or b"").decode("utf-8", "backslashreplace")
        return text.splitlines(keepends=True)

    def name(data: bytes | None, side: str) -> str:
        return f"{path}  {side}" + (": no file" if data is None else "")

    found = difflib.unified_diff(
        lines(before), lines(after), name(before, source), name(after, "on the host")
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in found)


def _hash(data: bytes | None) -> str | None:
    return None if data is None else ps.sha256(data)
