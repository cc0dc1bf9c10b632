"""Patch sets and wheels small enough to read, and the real wheel, for this folder's tests."""

from __future__ import annotations

import base64
import difflib
import functools
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

from opsctl.patchset import PatchSet, fetch, find

REPOSITORY = Path(__file__).resolve().parents[2]
PATCHES = REPOSITORY / "patches"
WHEEL_NAME = "demo-1.0-py3-none-any.whl"

HEADERS = """\
Description: Change something
 For a reason.
Author: A Tester <tester@example.org>
Forwarded: no
Last-Update: 2026-11-29
---
"""

MANIFEST = """\
name: {name}
version: {version}
description: A set for tests
for:
  distribution: demo
  version: "1.0"
  package: demo
  wheels:
    - filename: {wheel}
      sha256: {sha256}
needs:
  arguments:
    - --algorithm=FAST
restart: true
"""


def make_diff(path: str, before: bytes | None, after: bytes | None, context: int = 3) -> bytes:
    """What `diff -u` writes, from difflib, with its mark for a last line without newline."""
    lines = difflib.diff_bytes(
        difflib.unified_diff,
        (before or b"").splitlines(keepends=True),
        (after or b"").splitlines(keepends=True),
        b"/dev/null" if before is None else b"a/" + path.encode(),
        b"/dev/null" if after is None else b"b/" + path.encode(),
        n=context,
    )
    return b"".join(
        line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
        for line in lines
    )


def make_set(
    folder: Path,
    patches: Mapping[str, bytes | str] | None = None,
    *,
    files: Mapping[str, bytes] | None = None,
    series: str | None = None,
    manifest: str | None = None,
    name: str = "fix",
    version: str = "1.0.0",
    sha256: str = "ab" * 32,
) -> Path:
    """A set's folder. `patches` are diffs, to which headers are added, by file name."""
    folder.mkdir(parents=True, exist_ok=True)
    text = MANIFEST.format(name=name, version=version, wheel=WHEEL_NAME, sha256=sha256)
    (folder / "patchset.yaml").write_text(text if manifest is None else manifest)
    patches = patches or {}
    for patch, diff in patches.items():
        data = diff if isinstance(diff, bytes) else diff.encode()
        (folder / patch).write_bytes(HEADERS.encode() + data)
    listed = "".join(f"{patch}\n" for patch in patches)
    (folder / "series").write_text(listed if series is None else series)
    for path, content in (files or {}).items():
        file = folder / "files" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return folder


def make_wheel(path: Path, files: Mapping[str, bytes], record: Mapping[str, bytes] = {}) -> str:
    """A wheel of `demo` with these files, and its SHA-256; `record` overrides RECORD's view."""
    rows = []
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"demo/{name}", content)
            digest = hashlib.sha256(record.get(name, content)).digest()
            coded = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            rows.append(f"demo/{name},sha256={coded},{len(content)}")
        rows.append("demo-1.0.dist-info/RECORD,,")
        archive.writestr("demo-1.0.dist-info/RECORD", "\n".join(rows) + "\n")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def ddtree() -> PatchSet:
    """The repository's own set."""
    return find(PATCHES, "ddtree", "sglang", "0.5.12.post1")


@functools.cache
def real_wheel() -> Path:
    """The pinned wheel of SGLang: from the user's cache, else downloaded (8 MB)."""
    return fetch(ddtree())
