"""What a look at a unit's files needs of the host: the files, what systemd says of them, the model.

Nothing is installed: what is to be looked at beside that lies in a folder that is gone afterwards.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from typing import Any, Dict, List, Sequence

from . import unit as units
from . import unitfiles
from .errors import HostFault
from .install import read_bytes
from .probe import text
from .tools import run

# systemd prints them of itself; names as in systemd-system.conf(5), with USec for Sec.
_DEFAULTS = (
    "DefaultTimeoutStartUSec DefaultTimeoutStopUSec DefaultStartLimitIntervalUSec "
    "DefaultStartLimitBurst DefaultOOMPolicy DefaultLimitMEMLOCK DefaultLimitNOFILESoft"
).split()
_ENVIRONMENT_FILE = re.compile(r"^[ \t]*EnvironmentFile[ \t]*=[ \t]*(-?)(/\S.*?)[ \t]*$", re.M)
_VERIFY_BOUND = 60.0


def facts(unit: str, files: Dict[str, str], model: str) -> Dict[str, Any]:
    """{properties, files, verify, manager, environment_files, model_bytes, memory_bytes}.

    `files` are path -> text as they would be installed. The files that are there are
    [path, text] in the order in which systemd reads them; verify has the lines of
    ``systemd-analyze verify`` about either.
    """
    shown = units.show(unit)
    paths = [str(shown.get("FragmentPath") or ""), *str(shown.get("DropInPaths") or "").split()]
    there = [[path, _decoded(path)] for path in paths if path and os.path.isfile(path)]
    texts = [*files.values(), *(pair[1] for pair in there)]
    return {
        "properties": shown,
        "files": there,
        "verify": {
            "wanted": _verify_wanted(unit, files),
            "installed": _verify(unit, unit) if there else [],
        },
        "manager": _manager(),
        "environment_files": _environment_files(texts),
        "model_bytes": _bytes_below(model),
        "memory_bytes": _memory(),
    }


def _decoded(path: str) -> str:
    return (read_bytes(path) or b"").decode("utf-8", "replace")


def _verify_wanted(unit: str, files: Dict[str, str]) -> List[str]:
    """Of `files`, with the drop-ins that are installed and not among them, as they would be."""
    folder = tempfile.mkdtemp(prefix="opsctl-lint-")
    try:
        for path, content in files.items():
            if not path.endswith((".conf", unit)):
                continue
            unitfiles.check(unit, path)
            draft = os.path.join(folder, os.path.relpath(path, unitfiles.FOLDER))
            os.makedirs(os.path.dirname(draft), exist_ok=True)
            with open(draft, "w", encoding="utf-8") as f:
                f.write(content)
        lines = _verify(os.path.join(folder, unit), unit)
        return [line.replace(folder + "/", "") for line in lines]
    finally:
        shutil.rmtree(folder)


def _verify(what: str, unit: str) -> List[str]:
    """What is wrong, a line each; of other units, which it loads as well, nothing."""
    try:
        done = run(["systemd-analyze", "verify", "--man=no", what], timeout=_VERIFY_BOUND)
    except HostFault as fault:
        return ["systemd-analyze verify: " + fault.message]
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    return sorted({line for line in lines if unit in line})


def _manager() -> Dict[str, str]:
    done = run(["systemctl", "show", "--no-pager", "--property=" + ",".join(_DEFAULTS)])
    pairs = (line.partition("=") for line in done.stdout.splitlines())
    return {key: value for key, separator, value in pairs if separator}


def _environment_files(texts: Sequence[str]) -> List[Dict[str, Any]]:
    """Those that are named without a pattern or a specifier."""
    named = {m.group(2): bool(m.group(1)) for t in texts for m in _ENVIRONMENT_FILE.finditer(t)}
    found = []
    for path, optional in sorted(named.items()):
        if re.search(r"[*?%\[]", path):
            continue
        entry: Dict[str, Any] = {"path": path, "optional": optional, "mode": None, "uid": None}
        try:
            status = os.stat(path)
            entry.update(mode=stat.S_IMODE(status.st_mode), uid=status.st_uid)
        except OSError:
            pass
        found.append(entry)
    return found


def _bytes_below(folder: str) -> int:
    """The weights' size; links are followed, as the hub's cache has the files so."""
    total = 0
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        try:
            total += os.stat(os.path.join(folder, name)).st_size
        except OSError:
            continue
    return total


def _memory() -> int:
    match = re.search(r"^MemTotal:\s+(\d+) kB", text("/proc/meminfo"), re.M)
    return int(match.group(1)) * 1024 if match else 0
