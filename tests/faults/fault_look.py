"""Run on the host: everything about a service that a settled rollout must leave right, as JSON.

Standard library only. Arguments: the service's state folder, its site-packages, its unit.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def digests(root: Path, names: list[str]) -> dict[str, str]:
    """Of those that are still there: a swap may be under way."""
    found: dict[str, Any] = {}
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            found[name] = hashlib.sha256((root / name).read_bytes()).hexdigest()
    return found


def below(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def look(state: Path, site: Path, unit: str) -> dict[str, Any]:
    package = site / "sglang"
    shown = subprocess.run(
        ["systemctl", "show", unit, "-p", "ActiveState,SubState,NRestarts,Job"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    found = {
        "files": digests(package, [p for p in below(package) if not p.endswith(".pyc")]),
        "beside": sorted(path.name for path in site.iterdir()),
        "state": [p for p in below(state) if not p.startswith("objects/")],
        "current": text(state / "current"),
        "locked": locked(state / "lock"),
        "guard": text(state / "guard.json"),
        "objects": digests(state / "objects", below(state / "objects")),
        "generations": {
            path.stem: json.loads(path.read_text(encoding="utf-8"))
            for path in (state / "generations").glob("*.json")
        },
        "unit": dict(line.split("=", 1) for line in shown.splitlines() if "=" in line),
    }
    # Last: a guard that is seen to be gone has written it.
    report = text(state / "guard-report.json")
    found["report"] = json.loads(report) if report else None
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(look(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])))
