"""opsctl run against the lab as a user would run it: as a command."""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from opsctl import lab, patchset, resources

# Two runs on one machine need two labs.
LAB = os.environ.get("OPSCTL_TEST_LAB", "opsctl-it")
UNIT = "sglang-k26-ddtree.service"
PACKAGE = "/opt/sglang/lib/python3.11/site-packages/sglang"
STATE = "/var/lib/opsctl/sglang-k26-ddtree"
DFLASH = "srt/models/dflash.py"
INCIDENT = (
    "The size of tensor a (8) must match the size of tensor b (33) at non-singleton dimension 0"
)


@dataclass(frozen=True)
class Outcome:
    """One run of opsctl with --json."""

    exit_code: int
    report: dict[str, Any]
    stderr: str

    @property
    def code(self) -> str:
        reasons = self.report["reasons"]
        return str(reasons[0]["code"]) if reasons else ""

    @property
    def said(self) -> str:
        """All that a person is told."""
        reasons = self.report["reasons"]
        return "\n".join(
            [self.report["summary"], *(f"{r['message']}\n{r['remedy']}" for r in reasons)]
        )


@dataclass
class Bench:
    """The lab, and an inventory that each test may bend."""

    folder: Path
    inventory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        source = yaml.safe_load(resources.bundled("inventory.yaml").read_text(encoding="utf-8"))
        host = source["hosts"]["ct200-lab"] | {"lab": LAB}
        self.inventory = source | {"hosts": {LAB: host}, "defaults": {"host": LAB}}

    @property
    def service(self) -> dict[str, Any]:
        found: dict[str, Any] = self.inventory["hosts"][LAB]["services"]["sglang-k26-ddtree"]
        return found

    def by_ssh(self, **changes: Any) -> None:
        """Reach the lab by an explicit `ssh` entry instead of by its name."""
        found = lab.connection(LAB)
        running = lab.status(LAB)
        assert running is not None
        host = self.inventory["hosts"][LAB]
        del host["lab"]
        host["ssh"] = {
            "address": found.address,
            "user": found.user,
            "port": found.port,
            "identity_file": str(found.identity_file),
            "known_hosts": str(found.known_hosts),
        } | changes
        host["ssh"] = {k: v for k, v in host["ssh"].items() if v is not None}
        self.service["listen"] = running.address

    def argv(self, *words: str) -> list[str]:
        path = self.folder / "inventory.yaml"
        path.write_text(yaml.safe_dump(self.inventory), encoding="utf-8")
        return [sys.executable, "-m", "opsctl.cli", "--inventory", str(path), *words]

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.argv(*words, "--json"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, process: subprocess.Popen[str], timeout: float = 1200) -> Outcome:
        stdout, stderr = process.communicate(timeout=timeout)
        assert "Traceback" not in stderr, stderr
        lines = stdout.splitlines()
        assert len(lines) == 1, (stdout, stderr)
        return Outcome(process.returncode, json.loads(lines[0]), stderr)

    def opsctl(self, *words: str) -> Outcome:
        return self.finish(self.start(*words))

    def deploy(self, *words: str) -> Outcome:
        return self.opsctl("deploy", "--yes", *words)

    def inside(self, command: str) -> str:
        """Run a command on the host by OpenSSH, apart from opsctl's own way in."""
        argv = lab.ssh_argv(LAB, command)
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def patch_set(self, edits: dict[str, tuple[str, str]], version: str = "9.0.0") -> Path:
        """A `patches` folder whose ddtree set makes `edits` (path -> old text, new text) of the
        wheel's files instead."""
        root = self.folder / "patches"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(resources.bundled("patches"), root)
        shutil.copytree(
            resources.bundled("playbooks"), self.folder / "playbooks", dirs_exist_ok=True
        )
        folder = root / "sglang-0.5.12.post1" / "ddtree"
        for old in folder.glob("*.patch"):
            old.unlink()
        shutil.rmtree(folder / "files", ignore_errors=True)
        parts: list[str] = []
        for path, (before, after) in edits.items():
            text = self.pristine(path)
            assert text.count(before) >= 1
            changed = text.replace(before, after, 1)
            parts += difflib.unified_diff(
                text.splitlines(keepends=True),
                changed.splitlines(keepends=True),
                f"a/{path}",
                f"b/{path}",
            )
        header = (
            "Description: Break something, for a test\nAuthor: The tests\nForwarded: not-needed\n"
        )
        header += "Last-Update: 2026-11-29\n---\n"
        (folder / "0001-break.patch").write_text(header + "".join(parts), encoding="utf-8")
        (folder / "series").write_text("0001-break.patch\n", encoding="utf-8")
        manifest = folder / "patchset.yaml"
        content = yaml.safe_load(manifest.read_text(encoding="utf-8"))
        content["version"] = version
        manifest.write_text(yaml.safe_dump(content), encoding="utf-8")
        return root

    def set_without(self, patch: str, version: str = "0.9.0") -> Path:
        """A `patches` folder whose ddtree set lacks the patch of that number."""
        root = self.folder / f"patches-without-{patch}"
        shutil.copytree(resources.bundled("patches"), root)
        folder = root / "sglang-0.5.12.post1" / "ddtree"
        lines = (folder / "series").read_text(encoding="utf-8").splitlines()
        (left_out,) = (line for line in lines if line.startswith(patch))
        (folder / left_out).unlink()
        kept = [line for line in lines if line != left_out]
        (folder / "series").write_text("\n".join(kept) + "\n", encoding="utf-8")
        manifest = folder / "patchset.yaml"
        content = yaml.safe_load(manifest.read_text(encoding="utf-8"))
        manifest.write_text(yaml.safe_dump(content | {"version": version}), encoding="utf-8")
        return root

    def add_arguments(self, *arguments: str) -> None:
        """Give the unit further arguments by a drop-in; its next start has them."""
        folder = f"/etc/systemd/system/{UNIT}.d"
        given = self.inside(f"systemctl show {UNIT} -p Environment --value")
        extra = re.search(r'"?OPSCTL_EXTRA_ARGS=([^"]*)"', given.replace("OPSCTL_EXTRA_ARGS= ", ""))
        assert extra, given
        line = f'Environment="OPSCTL_EXTRA_ARGS={extra[1]} {" ".join(arguments)}"'
        self.inside(f"printf '[Service]\\n%s\\n' '{line}' > {folder}/20-test.conf")
        self.inside("systemctl daemon-reload")

    def wait_for_swap(self) -> None:
        """Until the files of the deploy under way are in place, and its load begins."""
        deadline = time.monotonic() + 60
        while "get_rope_config" not in self.inside(f"cat {PACKAGE}/{DFLASH}"):
            assert time.monotonic() < deadline
            time.sleep(0.5)

    def pristine(self, path: str) -> str:
        found = patchset.find(resources.bundled("patches"), "ddtree", "sglang", "0.5.12.post1")
        sources, _ = patchset.read_sources(patchset.fetch(found), "sglang", [path])
        data = sources[path]
        assert data is not None
        return data.decode()

    def fingerprint(self) -> dict[str, str]:
        """What a refused command must leave as it was."""
        return {
            "files": self.inside(f"cd {PACKAGE} && find . -name '*.py' | sort | xargs sha256sum"),
            "modes": self.inside(f"stat -c '%a %u %g' {PACKAGE}/{DFLASH}"),
            "unit": self.inside(f"systemctl show {UNIT} -p InvocationID,ActiveState,NRestarts"),
            "current": self.inside(f"cat {STATE}/current 2>/dev/null || true"),
        }

    def files(self) -> dict[str, str]:
        """The fingerprint without the start: what a rolled-back deploy must restore."""
        found = self.fingerprint()
        del found["unit"]
        return found
