"""A unit's own files as part of a generation: its fragment and drop-ins below /etc.

A generation's record has ``unit``: path -> {"sha256": content, None for no file; "before_sha256":
what was there before opsctl first wrote it}. Only files that opsctl was asked to write are in it:
others, an operator's own drop-ins say, are never touched.
"""

from __future__ import annotations

import base64
import os
import re
from typing import Any, Dict, List, Optional

from .errors import HostFault
from .install import read_bytes, sha256
from .state import Record, State, sync_folder, write_atomically
from .tools import reload_units

FOLDER = "/etc/systemd/system"
# Beside the drop-ins, whose suffix systemd goes by: a program, and an environment with secrets.
PRESTART = "opsctl-prestart.py"
SECRETS = "opsctl-secrets.env"
_DROPIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]*\.conf\Z")

# path -> sha256 that the disk must hold, None for no file
Wanted = Dict[str, Optional[str]]


def beside(unit: str, name: str) -> str:
    """The path of a file beside the drop-ins of `unit`."""
    return os.path.join(FOLDER, unit + ".d", name)


def check(unit: str, path: str) -> str:
    """`path`, if it is a file of `unit` that opsctl may write.

    Raises:
        HostFault: it is any other.
    """
    folder, name = os.path.split(path)
    fragment = path == os.path.join(FOLDER, unit)
    ours = name in (PRESTART, SECRETS) or _DROPIN.match(name)
    dropin = folder == os.path.join(FOLDER, unit + ".d") and ours
    if os.path.basename(unit) != unit or not (fragment or dropin):
        raise HostFault("path_outside", "%r is not a file of %s" % (path, unit))
    return path


def read(unit: str) -> Dict[str, str]:
    """Fragment and drop-ins of `unit` below /etc, as path -> content in base64.

    Never of the file with secrets, which need not leave the host to be compared.
    """
    paths = [os.path.join(FOLDER, unit)]
    folder = os.path.join(FOLDER, unit + ".d")
    if os.path.isdir(folder):
        names = sorted(set(os.listdir(folder)) - {SECRETS})
        paths += [os.path.join(folder, name) for name in names]
    found = {path: read_bytes(path) for path in paths if not os.path.isdir(path)}
    return {p: base64.b64encode(d).decode("ascii") for p, d in found.items() if d is not None}


def hash_of(path: str) -> Optional[str]:
    data = read_bytes(path)
    return None if data is None else sha256(data)


def record(state: State, unit: str, files: Record, before: Record) -> Record:
    """What a new generation records of `files` (path -> sha256 to be there), after `before`.

    Stores what is there now, for the way back.
    """
    recorded = dict(before)
    for path, digest in files.items():
        data = read_bytes(check(unit, path))
        first = state.put(data) if data is not None else None
        if path in before:
            first = before[path]["before_sha256"]
        recorded[path] = {"sha256": digest, "before_sha256": first}
    return recorded


def wanted(source: Record, target: Record) -> Wanted:
    """What the disk must hold for `target`: a file that only `source` names goes back."""
    found: Wanted = {p: f["before_sha256"] for p, f in source.get("unit", {}).items()}
    found.update({p: f["sha256"] for p, f in target.get("unit", {}).items()})
    return found


def differing(files: Wanted) -> List[str]:
    return sorted(path for path, digest in files.items() if hash_of(path) != digest)


def apply(state: State, unit: str, files: Wanted) -> List[str]:
    """Write what differs and have systemd read it; the paths that were changed."""
    changed = differing(files)
    for path in changed:
        data, digest = read_bytes(check(unit, path)), files[path]
        if data is not None:
            state.put(data)  # a hand's edit since is nowhere else
        if digest is None:
            os.unlink(path)
            _tidy(os.path.dirname(path))
        else:
            if not os.path.isdir(os.path.dirname(path)):
                os.mkdir(os.path.dirname(path), 0o755)
            mode = 0o600 if os.path.basename(path) == SECRETS else 0o644
            write_atomically(path, state.get(digest), mode)
            if os.path.basename(path) == PRESTART:  # which the service's user runs
                os.chmod(os.path.dirname(path), 0o755)  # noqa: S103 - as systemd's folders are
    if changed:
        reload_units()
    return changed


def _tidy(folder: str) -> None:
    if folder != FOLDER and not os.listdir(folder):
        os.rmdir(folder)
        folder = os.path.dirname(folder)
    sync_folder(folder)


def facts(unit: str) -> Dict[str, Any]:
    """For a plan: what is there; of the secrets the hash alone."""
    return {"folder": FOLDER, "files": read(unit), "secrets": hash_of(beside(unit, SECRETS))}
