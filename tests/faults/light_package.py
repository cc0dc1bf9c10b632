"""The light service as a package in a site-packages, and the patch sets that make its versions."""

from __future__ import annotations

import base64
import hashlib
import tarfile
import time
from io import BytesIO
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
UNIT = "light.service"
SITE = "/opt/light/lib/python3.11/site-packages"
VERSIONS = 6
PARTS = 24

_DROP_IN = """\
[Service]
Environment=PYTHONPATH=
TimeoutStopSec=10
RestartSec=1
"""


def part(number: int, version: int) -> str:
    """The same size in every version, as a stale bytecode needs to go unnoticed."""
    lines = [f"# Part {number}.", f"VERSION = {version}"]
    return "\n".join([*lines, *(f"LINE_{i} = {i}" for i in range(20))]) + "\n"


def contents(version: int) -> dict[str, str]:
    """path below the package -> text, as the version has it; 0 is the wheel's own.

    Odd versions have a module more than even ones, so that files come and go.
    """
    found = {
        "__init__.py": "",
        "parts/__init__.py": "",
        "launch_server.py": (HERE / "light_server.py").read_text(encoding="utf-8"),
    }
    found |= {f"parts/p{n:02d}.py": part(n, version) for n in range(PARTS)}
    if version % 2:
        found["parts/extra.py"] = part(99, version)
    return found


def hashes(version: int) -> dict[str, str]:
    return {p: hashlib.sha256(t.encode()).hexdigest() for p, t in contents(version).items()}


def write_sets(folder: Path) -> None:
    """`folder`/N is a patches folder whose set `light` makes version N."""
    for version in range(1, VERSIONS):
        root = folder / str(version) / "lightserve-1.0.0" / "light"
        (root / "files/parts").mkdir(parents=True)
        manifest = {
            "name": "light",
            "version": f"{version}.0.0",
            "description": "Another version of the light service",
            "for": {
                "distribution": "lightserve",
                "version": "1.0.0",
                "package": "sglang",
                "wheels": [{"filename": "lightserve-1.0.0-py3-none-any.whl", "sha256": "0" * 64}],
            },
            "restart": True,
        }
        (root / "patchset.yaml").write_text(yaml.safe_dump(manifest), encoding="utf-8")
        (root / "series").write_text("0001-version.patch\n", encoding="utf-8")
        header = "Description: Another version\nAuthor: The tests\nForwarded: not-needed\n"
        header += "Last-Update: 2026-11-29\n---\n"
        hunks = [
            f"--- a/parts/p{n:02d}.py\n+++ b/parts/p{n:02d}.py\n@@ -1,3 +1,3 @@\n # Part {n}.\n"
            f"-VERSION = 0\n+VERSION = {version}\n LINE_0 = 0\n"
            for n in range(PARTS)
        ]
        (root / "0001-version.patch").write_text(header + "".join(hunks), encoding="utf-8")
        if version % 2:
            extra = contents(version)["parts/extra.py"]
            (root / "files/parts/extra.py").write_text(extra, encoding="utf-8")


def archive() -> bytes:
    """The package with its dist-info, the drop-in, and what the tests use, from the root on."""
    files = {f"{SITE}/sglang/{path}": text for path, text in contents(0).items()}
    rows = []
    for path, text in contents(0).items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
        rows.append(f"sglang/{path},sha256={digest.rstrip(b'=').decode()},{len(text)}")
    info = f"{SITE}/lightserve-1.0.0.dist-info"
    files[f"{info}/METADATA"] = "Metadata-Version: 2.1\nName: lightserve\nVersion: 1.0.0\n"
    files[f"{info}/INSTALLER"] = "pip\n"
    files[f"{info}/RECORD"] = "\n".join(rows) + "\n"
    files[f"/etc/systemd/system/{UNIT}.d/20-light.conf"] = _DROP_IN
    for name in ("fault_look.py", "fault_trap.py"):
        files[f"/opt/faults/{name}"] = (HERE / name).read_text(encoding="utf-8")
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode, entry.mtime = len(text.encode()), 0o644, int(time.time())
            archive.addfile(entry, BytesIO(text.encode()))
    return buffer.getvalue()
