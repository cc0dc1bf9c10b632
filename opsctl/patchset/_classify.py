"""Whose content a host's files have: the release's, a known set's, or nobody's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from opsctl.errors import PatchError
from opsctl.patchset._apply import sha256, unapply_file
from opsctl.patchset._load import PatchSet


@dataclass(frozen=True, slots=True)
class FileState:
    """What one file is. `by` has every known set that makes exactly this content of it."""

    path: str
    state: Literal["pristine", "patched", "drift"]
    by: tuple[PatchSet, ...] = ()

    def __str__(self) -> str:
        if self.state != "patched":
            return self.state
        return f"patched by {' or '.join(patchset.label for patchset in self.by)}"


def classify(
    patchsets: Iterable[PatchSet],
    pristine_sha256: Mapping[str, str | None],
    current: Mapping[str, bytes | None],
) -> dict[str, FileState]:
    """The state of each file of `current` (contents; None: absent).

    `pristine_sha256` has RECORD's hashes, hex; a path that it lacks is not in the release.
    """
    known = list(patchsets)
    return {
        path: _classify(known, path, pristine_sha256.get(path), content)
        for path, content in current.items()
    }


def _classify(
    known: list[PatchSet], path: str, pristine: str | None, content: bytes | None
) -> FileState:
    if sha256(content) == pristine:
        return FileState(path, "pristine")
    by = tuple(s for s in known if path in s.paths and _leads_back(s, path, pristine, content))
    return FileState(path, "patched" if by else "drift", by)


def _leads_back(patchset: PatchSet, path: str, pristine: str | None, content: bytes | None) -> bool:
    try:
        return sha256(unapply_file(patchset, path, content)) == pristine
    except PatchError:
        return False
