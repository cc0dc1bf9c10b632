"""What is sent to the host: every file of a set with its content and both hashes."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opsctl.patchset._apply import FileChange, apply, require_compiles, sha256
from opsctl.patchset._load import PatchSet


@dataclass(frozen=True)
class BundleFile:
    """One file: `content` is what it becomes, None where the set deletes it.

    The hashes are SHA-256 in hex, None for absent; `path` is relative to the package.
    """

    path: str
    before_sha256: str | None
    after_sha256: str | None
    content: bytes | None
    added: int
    removed: int

    @property
    def stat(self) -> str:
        """Lines added and removed, as in `+9 -1`."""
        return f"+{self.added} -{self.removed}"

    def to_json(self) -> dict[str, Any]:
        content = self.content
        return {
            "path": self.path,
            "before_sha256": self.before_sha256,
            "after_sha256": self.after_sha256,
            "content": None if content is None else base64.b64encode(content).decode("ascii"),
            "added": self.added,
            "removed": self.removed,
        }


@dataclass(frozen=True)
class Bundle:
    """A set, ready for one host program: complete, so that the host needs no patch tool."""

    name: str
    version: str
    digest: str
    distribution: str
    distribution_version: str
    package: str
    restart: bool
    files: tuple[BundleFile, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`; contents in base64."""
        return {
            "name": self.name,
            "version": self.version,
            "digest": self.digest,
            "distribution": self.distribution,
            "distribution_version": self.distribution_version,
            "package": self.package,
            "restart": self.restart,
            "files": [file.to_json() for file in self.files],
        }


def bundle(patchset: PatchSet, sources: Mapping[str, bytes | None]) -> Bundle:
    """The bundle of `patchset` for a host whose pristine files are `sources`.

    Raises:
        PatchError: the set does not apply to them, or the result does not compile.
    """
    changes = apply(patchset, sources)
    require_compiles(changes)
    target = patchset.target
    return Bundle(
        name=patchset.name,
        version=patchset.version,
        digest=patchset.digest,
        distribution=target.distribution,
        distribution_version=target.version,
        package=target.package,
        restart=patchset.restart,
        files=tuple(_file(change) for change in changes.values()),
    )


def _file(change: FileChange) -> BundleFile:
    return BundleFile(
        path=change.path,
        before_sha256=change.before_sha256,
        after_sha256=sha256(change.after),
        content=change.after,
        added=change.added,
        removed=change.removed,
    )
