"""The patched package: where it is, and what its files are against the wheel's RECORD."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import stat
import subprocess
from typing import Any, Dict, List, Optional

from .errors import HostFault
from .held import PREFIX
from .owner import argv_as, owner
from .tools import environment

# Run by the service's own Python, so that its site-packages decide. find_spec does not
# import the package. An editable install has no files in RECORD but a direct_url.json.
_PROBE = """
import importlib.metadata as m, importlib.util as u, json, sys, os
name, package = sys.argv[1:3]
out = {"python_version": "%d.%d.%d" % sys.version_info[:3], "prefix": sys.prefix}
try:
    d = m.distribution(name)
    out["version"] = d.version
    out["dist_info"] = str(getattr(d, "_path", "")) or None
    out["record"] = str(d.locate_file(os.path.join(os.path.basename(str(d._path)), "RECORD")))
    out["installer"] = (d.read_text("INSTALLER") or "").strip()
    direct = d.read_text("direct_url.json")
    out["editable"] = bool(direct and json.loads(direct).get("dir_info", {}).get("editable"))
except m.PackageNotFoundError:
    out["version"] = None
spec = u.find_spec(package)
out["package_dir"] = list(spec.submodule_search_locations)[0] if spec and \
    spec.submodule_search_locations else None
print("\\n" + json.dumps(out))
"""

_COMPILE = """
import json, sys
bad = []
for path, text in json.load(sys.stdin).items():
    try:
        compile(text.encode("latin-1"), path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as e:
        bad.append({"path": path, "line": getattr(e, "lineno", None), "message": str(e)})
print("\\n" + json.dumps(bad))
"""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_bytes(path: str) -> Optional[bytes]:
    """The content, or None where there is no such file."""
    try:
        with open(path, "rb") as f:
            return f.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def locate(python: str, distribution: str, package: str) -> Dict[str, Any]:
    """Where the service's Python finds `package`, and which version of `distribution` it is."""
    if not os.access(python, os.X_OK):
        raise HostFault(
            "python_missing",
            "%s is not an executable on the host" % python,
            "set services.*.python in the inventory to the Python of SGLang's environment",
        )
    found = ask(python, _PROBE, [distribution, package])
    if not isinstance(found, dict) or not found.get("version") or not found.get("package_dir"):
        raise HostFault(
            "distribution_missing",
            "%s has no distribution %s installed" % (python, distribution),
            "install it there, or correct services.*.python in the inventory",
        )
    return found


def compile_check(python: str, sources: Dict[str, bytes]) -> List[Dict[str, Any]]:
    """Compile .py sources with the Python that will run them; the list of those that fail."""
    texts = {p: s.decode("latin-1") for p, s in sources.items() if p.endswith(".py")}
    bad: List[Dict[str, Any]] = ask(python, _COMPILE, [], json.dumps(texts))
    return bad


def ask(python: str, code: str, args: List[str], text: str = "") -> Any:
    """What `code` prints as its last line, in JSON, run by `python` as the user who owns that."""
    user = owner(python) if os.geteuid() == 0 else None
    try:
        # -I: the connecting user's PYTHON* variables and home are not the service's.
        done = subprocess.run(
            argv_as(user, [python, "-I", "-c", code, *args]),
            env=environment(),
            cwd="/",
            input=text.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=120,
        )
        return json.loads(done.stdout.splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        detail = str(error)
        if isinstance(error, IndexError):
            detail = done.stderr.decode("utf-8", "replace").strip()[-500:]
        by = "" if user is None else " as its owner (uid %d)" % user[0]
        raise HostFault(
            "python_broken",
            "%s does not run%s: %s" % (python, by, detail),
            "run it by hand on the host; the environment may be half removed",
        ) from None


def record_hashes(record: str) -> Dict[str, str]:
    """RECORD as {path relative to site-packages: sha256 in hex}; lines without a hash left out."""
    hashes: Dict[str, str] = {}
    data = read_bytes(record)
    if data is None:
        return hashes
    for row in csv.reader(data.decode("utf-8").splitlines()):
        if len(row) >= 2 and row[1].startswith("sha256="):
            digest = row[1][len("sha256=") :]
            raw = base64.urlsafe_b64decode(digest + "=" * (-len(digest) % 4))
            hashes[row[0]] = raw.hex()
    return hashes


def file_facts(package_dir: str, package: str, record: Dict[str, str], path: str) -> Dict[str, Any]:
    """One file below the package: its hash and mode now, and its hash in the wheel."""
    full = os.path.join(package_dir, path)
    data = read_bytes(full)
    facts: Dict[str, Any] = {
        "sha256": None if data is None else sha256(data),
        "record_sha256": record.get(package + "/" + path),
    }
    if data is not None:
        mode = os.stat(full)
        facts.update(mode=stat.S_IMODE(mode.st_mode), uid=mode.st_uid, gid=mode.st_gid)
        facts["symlink"] = os.path.islink(full)
    return facts


def audit(install: Dict[str, Any], package: str) -> Dict[str, List[str]]:
    """The whole package against RECORD: modified, missing, and Python files it does not list."""
    package_dir = install["package_dir"]
    record = record_hashes(install["record"])
    prefix = package + "/"
    modified, missing = [], []
    for name, digest in record.items():
        if not name.startswith(prefix):
            continue
        data = read_bytes(os.path.join(package_dir, name[len(prefix) :]))
        if data is None:
            missing.append(name[len(prefix) :])
        elif sha256(data) != digest:
            modified.append(name[len(prefix) :])
    extra = []
    for folder, _, files in os.walk(package_dir):
        for file in files:
            relative = os.path.relpath(os.path.join(folder, file), package_dir)
            ours = file.startswith(PREFIX)  # a file that a killed swap had begun to write
            if ours or (file.endswith(".py") and prefix + relative not in record):
                extra.append(relative)
    return {"modified": sorted(modified), "missing": sorted(missing), "extra": sorted(extra)}
