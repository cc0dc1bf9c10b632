"""A patch set's folder, read whole and checked; and the sets of a `patches` folder."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from opsctl.errors import PatchError, UsageError
from opsctl.patchset._manifest import MANIFEST, Manifest, Needs, Target, read_manifest
from opsctl.patchset._parse import Patch, is_inside, parse_patch
from opsctl.text import did_you_mean

SERIES = "series"
FILES = "files"
_PATCH_NAME = re.compile(r"\d{4}-[a-z0-9][a-z0-9._-]*\.patch")


@dataclass(frozen=True)
class PatchSet:
    """One patch set: what patchset.yaml says, the patches in order, and the new files.

    `new_files` and every path are relative to the package's folder on the host.
    """

    manifest: Manifest
    dir: Path
    patches: tuple[Patch, ...]
    new_files: dict[str, bytes]

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def version(self) -> str:
        return self.manifest.version

    @property
    def description(self) -> str:
        return self.manifest.description

    @property
    def target(self) -> Target:
        return self.manifest.target

    @property
    def needs(self) -> Needs:
        return self.manifest.needs

    @property
    def restart(self) -> bool:
        return self.manifest.restart

    @property
    def label(self) -> str:
        """Name and version, as in `ddtree 1.0.0`."""
        return f"{self.name} {self.version}"

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Every file that this set touches, sorted."""
        touched = {path for patch in self.patches for path in patch.paths}
        return tuple(sorted(touched | set(self.new_files)))

    @cached_property
    def digest(self) -> str:
        """SHA-256, hex, over what this set does: two contents of one version differ in it.

        Left out is what changes nothing on a host: headers, comments, timestamps, the list
        of wheels, the description.
        """
        content = {
            "name": self.name,
            "version": self.version,
            "for": [self.target.distribution, self.target.version, self.target.package],
            "needs": self.needs.model_dump(mode="json"),
            "restart": self.restart,
            "patches": [_canonical(patch) for patch in self.patches],
            "files": {path: data.hex() for path, data in self.new_files.items()},
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _canonical(patch: Patch) -> list[object]:
    diffs = [
        [
            diff.path,
            diff.kind,
            [
                [h.source_start, h.target_start, [[tag, text.hex()] for tag, text in h.lines]]
                for h in diff.hunks
            ],
        ]
        for diff in patch.diffs
    ]
    return [patch.name, diffs]


def load(path: Path) -> PatchSet:
    """The patch set in the folder `path`.

    Raises:
        PatchError: anything in the folder is missing or malformed, with file and line.
    """
    manifest = read_manifest(path / MANIFEST)
    names = read_series(path / SERIES)
    patches = []
    for name in names:
        file = path / name
        patches.append(parse_patch(name, _read(file, f"{path / SERIES} names it"), str(file)))
    new_files = _new_files(path / FILES)
    patchset = PatchSet(manifest, path, tuple(patches), new_files)
    if not patchset.paths:
        raise PatchError(
            f"{path}: the set has no patches and no files",
            remedy="list a patch in series, or put a module under files/",
            code="patch_set_empty",
        )
    for patch in patches:
        for touched in patch.paths:
            if touched in new_files:
                raise PatchError(
                    f"{path / patch.name}: {touched} is one of this set's own new files",
                    remedy=f"edit {path / FILES / touched} instead",
                    code="patch_set_invalid",
                )
    return patchset


def read_series(path: Path) -> tuple[str, ...]:
    """The patch names in a quilt `series`: one a line, `#` starts a comment, -p1 only.

    Raises:
        PatchError: it cannot be read, or a line is no patch name, is given twice, or has an
            option other than -p1.
    """
    text = _read(path, "every patch set has one, empty where it only adds files")
    names: list[str] = []
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        name, options = words[0], words[1:]
        if unknown := [option for option in options if option != "-p1"]:
            problem = f"option {unknown[0]} of {name} is not supported, only -p1"
        elif not _PATCH_NAME.fullmatch(name):
            problem = f"{name!r} is not a patch name such as 0001-short-name.patch"
        elif name in names:
            problem = f"{name} is listed twice"
        else:
            names.append(name)
            continue
        raise PatchError(
            f"{path}:{number}: {problem}",
            remedy="list one patch file a line, in the order in which they apply",
            code="patch_series_invalid",
        )
    return tuple(names)


def _read(path: Path, why: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PatchError(
            f"cannot read {path}: {error.strerror}; {why}",
            remedy="add the file, or correct the series",
            code="patch_set_unreadable",
        ) from None


def _new_files(root: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for file in sorted(root.rglob("*")) if root.is_dir() else []:
        path = file.relative_to(root).as_posix()
        # An editor or a test run may leave byte code beside the modules.
        if (file.is_dir() and not file.is_symlink()) or "__pycache__" in path.split("/"):
            continue
        if file.is_symlink() or not file.is_file() or not is_inside(path):
            raise PatchError(
                f"{file}: not a plain file",
                remedy=f"keep only regular files with plain names under {root}",
                code="patch_set_invalid",
            )
        files[path] = _read(file, "it is one of the set's new files")
    return files


def stray_patches(patchset: PatchSet) -> list[str]:
    """Files that look like patches and that `series` does not name."""
    listed = {patch.name for patch in patchset.patches}
    found = sorted(file.name for file in patchset.dir.iterdir() if file.is_file())
    return [name for name in found if name.endswith((".patch", ".diff")) and name not in listed]


def folder_of(distribution: str, version: str) -> str:
    """The name of the folder for one release, as in `sglang-0.5.12.post1`."""
    return f"{distribution}-{version}"


def discover(root: Path) -> list[PatchSet]:
    """Every patch set below the `patches` folder `root`, by release and name.

    Raises:
        PatchError: one of them is malformed, or lies in another folder than it says.
    """
    return [_load_in_place(file.parent) for file in sorted(root.glob(f"*/*/{MANIFEST}"))]


def find(root: Path, name: str, distribution: str, version: str) -> PatchSet:
    """The set `name` for one release, below the `patches` folder `root`.

    Raises:
        UsageError: there is no set of that name.
        PatchError: it exists for other releases only (code `patch_set_other_release`), or it
            is malformed.
    """
    folders = [file.parent for file in sorted(root.glob(f"*/*/{MANIFEST}"))]
    releases = []
    for folder in (folder for folder in folders if folder.name == name):
        if _is_release(folder.parent.name, distribution, version):
            return _load_in_place(folder)
        releases.append(folder.parent.name)
    if releases:
        raise PatchError(
            f"the patch set {name} is not for {distribution} {version}; "
            f"it exists for {', '.join(releases)}",
            remedy="install one of these releases on the host, or port the set: see "
            "docs/patch-sets.md",
            code="patch_set_other_release",
        )
    known = sorted({folder.name for folder in folders})
    raise UsageError(
        f"there is no patch set {name!r} in {root}; known: {', '.join(known) or 'none'}"
        f"{did_you_mean(name, known)}",
        remedy="list them with: opsctl patches list",
        code="patch_set_unknown",
    )


def _is_release(folder: str, distribution: str, version: str) -> bool:
    name, _, found = folder.rpartition("-")
    try:
        return canonicalize_name(name) == canonicalize_name(distribution) and (
            Version(found) == Version(version)
        )
    except InvalidVersion:
        return False


def _load_in_place(folder: Path) -> PatchSet:
    patchset = load(folder)
    target = patchset.target
    expected = f"{folder_of(target.distribution, target.version)}/{patchset.name}"
    if f"{folder.parent.name}/{folder.name}" != expected:
        raise PatchError(
            f"{folder / MANIFEST}: says that it is {patchset.name} for {target.distribution} "
            f"{target.version}, which belongs in {expected}",
            remedy="move the folder, or correct patchset.yaml",
            code="patch_set_misplaced",
        )
    return patchset
