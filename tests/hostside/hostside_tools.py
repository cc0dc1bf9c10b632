"""A real virtual environment with a small installed package, and stand-ins for systemd's tools."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import venv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from opsctl.hostside import install as installed
from opsctl.hostside import swap
from opsctl.hostside.state import State

PACKAGE = "demo_pkg"
DISTRIBUTION = "demo-dist"

WHEEL: dict[str, bytes] = {
    "__init__.py": b"",
    "a.py": b"VALUE = 'wheel'\n",
    "b.py": b"from demo_pkg import a\n",
    "sub/__init__.py": b"",
    "sub/c.py": b"C = 1\n",
    "data.txt": b"data\n",
}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Environment:
    """`demo_pkg` of demo-dist 1.0 in a virtual environment, and a state folder beside it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        venv.create(root / "env", with_pip=False, symlinks=True)
        self.python = root / "env" / "bin" / "python"
        self.site_packages = next((root / "env" / "lib").glob("python3*")) / "site-packages"
        self.package_dir = self.site_packages / PACKAGE
        self.state = State(str(root / "state"), "serve")
        self.reinstall()

    def reinstall(self, files: Mapping[str, bytes] = WHEEL, version: str = "1.0") -> None:
        """Write the files as an installer would, and a RECORD of them; nothing is removed."""
        self._install: dict[str, Any] | None = None
        for old in self.site_packages.glob("demo_dist-*.dist-info/*"):
            old.unlink()
        for folder in self.site_packages.glob("demo_dist-*.dist-info"):
            folder.rmdir()
        rows = []
        for name, content in files.items():
            path = self.package_dir / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.write_bytes(content)
            coded = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            rows.append(f"{PACKAGE}/{name},sha256={coded.decode()},{len(content)}")
        self.dist_info = self.site_packages / f"demo_dist-{version}.dist-info"
        self.dist_info.mkdir()
        rows += [f"{self.dist_info.name}/RECORD,,", "../../../bin/demo,,"]
        (self.dist_info / "RECORD").write_text("\n".join(rows) + "\n")
        (self.dist_info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {version}\n"
        )
        (self.dist_info / "INSTALLER").write_text("uv\n")

    @property
    def install(self) -> dict[str, Any]:
        if self._install is None:  # starting Python is most of what these tests take
            self._install = installed.locate(str(self.python), DISTRIBUTION, PACKAGE)
        return dict(self._install, python=str(self.python), unit="serve.service")

    @property
    def site(self) -> dict[str, Any]:
        """As `opsctl.rollout.session.Session.site` has it."""
        return {
            "service": "serve",
            "unit": "serve.service",
            "python": str(self.python),
            "distribution": DISTRIBUTION,
            "package": PACKAGE,
            "listen": "127.0.0.1",
            "port": 1,
            "state_dir": str(self.root / "state"),
        }

    def run(self, code: str) -> str:
        """What the service's Python prints for `code`; bytecode is written."""
        done = subprocess.run(
            [self.python, "-I", "-c", code], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def tree(self) -> dict[str, bytes]:
        """Every file below the package but bytecode."""
        return {
            str(path.relative_to(self.package_dir)): path.read_bytes()
            for path in sorted(self.package_dir.rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        }

    def folders(self) -> set[str]:
        return {
            str(path.relative_to(self.package_dir))
            for path in self.package_dir.rglob("*")
            if path.is_dir() and path.name != "__pycache__"
        }

    # -- what a plan hands over --------------------------------------------------------

    def wheel_sha256(self, path: str) -> str | None:
        record = installed.record_hashes(str(self.dist_info / "RECORD"))
        return record.get(f"{PACKAGE}/{path}")

    def seen(self, paths: Iterable[str]) -> swap.Files:
        now = {p: installed.read_bytes(str(self.package_dir / p)) for p in paths}
        return {
            path: {
                "sha256": None if data is None else sha256(data),
                "pristine_sha256": self.wheel_sha256(path),
            }
            for path, data in now.items()
        }

    def target(self, files: Mapping[str, bytes | None], name: str = "fix") -> dict[str, Any]:
        return {
            "set": {"name": name, "version": "1.0.0", "digest": "d"},
            "who": "tester",
            "why": "test",
            "files": {
                path: {
                    "sha256": None if data is None else sha256(data),
                    "pristine_sha256": self.wheel_sha256(path),
                }
                for path, data in files.items()
            },
        }

    def contents(
        self, files: Mapping[str, bytes | None], wheel: Mapping[str, bytes] = WHEEL
    ) -> dict[str, str]:
        """The set's contents, and the wheel's of the same and of every other path."""
        every = [*files.values(), *wheel.values()]
        return {sha256(d): base64.b64encode(d).decode() for d in every if d is not None}

    def stage(
        self,
        files: Mapping[str, bytes | None],
        *,
        install: dict[str, Any] | None = None,
        seen: swap.Files | None = None,
    ) -> dict[str, Any]:
        """Stage a set of `files` as `opsctl deploy` does."""
        current = self.state.current()
        paths = {*files, *(current["files"] if current else ())}
        return swap.stage(
            self.state,
            install or self.install,
            self.target(files),
            self.contents(files),
            seen=self.seen(paths) if seen is None else seen,
            found_set=None,
        )

    def swap(self, number: int, install: dict[str, Any] | None = None) -> dict[str, Any]:
        return swap.swap(self.state, install or self.install, number)

    def deploy(self, files: Mapping[str, bytes | None]) -> int:
        number = int(self.stage(files)["number"])
        self.swap(number)
        return number


def with_set(files: Mapping[str, bytes | None]) -> dict[str, bytes]:
    """The package's files with a set in place."""
    merged = {**WHEEL, **files}
    return {path: data for path, data in sorted(merged.items()) if data is not None}


def put_tool(folder: Path, name: str, script: str) -> Path:
    """An executable for PATH: systemctl, journalctl and nvidia-smi are not on this machine."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return path
