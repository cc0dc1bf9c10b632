"""A triage and what it stands on as one archive for a bug report."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from opsctl.errors import UsageError
from opsctl.text import clock

_HEAD = """\
A bug report of opsctl triage: {what}
made {when}

Secrets, environments and users' words were hidden before anything was written. Patterns find what
they know: read it before you send it. What is left in it: names of hosts and users, addresses,
paths, and the operators' reasons.
"""


def manifest(
    what: str,
    at: float,
    files: Mapping[str, str],
    *,
    about: Mapping[str, str],
    hidden: Mapping[str, int],
    absent: Mapping[str, str],
) -> str:
    """MANIFEST.txt: the files and what they are, what was hidden, and what is not there."""
    lines = [_HEAD.format(what=what, when=clock(at)), "In it, bytes:"]
    for name, text in sorted(files.items()):
        lines.append(f"  {len(text.encode()):>9}  {name}: {about[name]}")
    lines += ["", "Hidden, by sort and how often:"]
    lines += [f"  {count:>9}  {sort}" for sort, count in sorted(hidden.items())] or ["  nothing"]
    if absent:
        lines += ["", "Not in it:"]
        lines += [f"  {name}: {why}" for name, why in sorted(absent.items())]
    return "\n".join(lines) + "\n"


def write(path: Path, folder: str, files: Mapping[str, str], at: float) -> None:
    """`files` below `folder` in a .tar.gz at `path`, for the owner's eyes (0600), whole or not.

    Raises:
        UsageError: it cannot be written there.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in sorted(files.items()):
            data = text.encode("utf-8", "replace")
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, int(at)
            archive.addfile(entry, io.BytesIO(data))
    try:
        descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(buffer.getvalue())
            Path(draft).replace(path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}", remedy="name a file in a folder that can be written to"
        ) from None
