"""What `discover` makes of systemd's answers and of files, on this machine with stand-in tools."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hostside_tools import put_tool

from opsctl.hostside import discover

READY = "ready to roll"
SECRET = "hush-hush"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(discover, "_user_units", list)
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:{os.environ['PATH']}")
    return Host(tmp_path)


class Host:
    """Units as files, shown by a systemctl that knows them, and a journal of a few starts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.units: dict[str, str] = {}
        put_tool(root / "tools", "journalctl", "exit 0\n")

    def unit(self, name: str, text: str, **drop_ins: str) -> None:
        fragment = self.root / name
        fragment.write_text(text)
        paths = []
        for key, content in drop_ins.items():
            paths.append(self.root / f"{name}-{key}.conf")
            paths[-1].write_text(content)
        self.units[name] = (
            f"Id={name}\nLoadState=loaded\nActiveState=inactive\nFragmentPath={fragment}\n"
            f"DropInPaths={' '.join(map(str, paths))}\nUser=\nWorkingDirectory=\n"
        )

    def discover(self) -> dict[str, Any]:
        (self.root / "names").write_text("".join(f"{name} enabled\n" for name in self.units))
        for name, shown in self.units.items():
            (self.root / f"{name}.shown").write_text(f"{shown}\n")
        script = (
            f'[ "$1" = show ] || exec cat {self.root}/names\n'
            'while [ "$1" != -- ]; do shift; done\nshift\n'
            f'for name; do cat "{self.root}/$name.shown"; done\n'
        )
        put_tool(self.root / "tools", "systemctl", script)
        return discover.discover(READY, str(self.root / "state"))

    def found(self) -> dict[str, Any]:
        """The one unit that there is."""
        (unit,) = self.discover()["units"]
        found: dict[str, Any] = unit
        return found


def command(words: str) -> str:
    return f"[Service]\nExecStart={sys.executable} -m sglang.launch_server {words}\n"


def test_which_units_are_meant(host: Host) -> None:
    host.unit("plain.service", command("--model-path /m"))
    host.unit("web.service", "[Unit]\nAfter=sglang.service\n[Service]\nExecStart=/bin/true\n")
    host.unit("box.service", "[Service]\nExecStart=/usr/bin/docker run sglang sglang serve\n")
    host.unit("exporter.service", "[Service]\nExecStart=/bin/exporter --of sglang.service\n")
    host.unit("opsctl-guard-plain.service", "[Service]\nExecStart=/bin/true sglang\n")
    host.unit("other.service", command(""), own="[Service]\nExecStart=\nExecStart=/bin/true\n")
    facts = host.discover()
    assert [unit["Id"] for unit in facts["units"]] == ["plain.service"]
    assert facts["containers"] == ["box.service"]
    assert facts["unclear"] == ["exporter.service", "other.service"]
    assert facts["looked_at"] >= 5  # and instances that this machine itself has


def test_arguments_of_the_file_and_of_its_drop_ins(host: Host) -> None:
    host.unit(
        "a.service",
        "[Service]\nEnvironment=PORT=1 OPSCTL_EXTRA_ARGS=\nUser=serve\n"
        + command("--model-path /m --port ${PORT} $OPSCTL_EXTRA_ARGS"),
        extra="[Service]\nEnvironment=PORT=2 'OPSCTL_EXTRA_ARGS=--device cpu'\nTimeoutStopSec=1\n",
    )
    found = host.found()
    assert found["arguments"] == ["--model-path", "/m", "--port", "1"]
    assert found["effective"] == ["--model-path", "/m", "--port", "2", "--device", "cpu"]
    assert found["environment"] == {}, "they have done their work"
    assert found["settings"] == {"User": "serve"}, "a drop-in's own stays with it"
    assert found["running"] is None


def test_what_is_secret_stays(host: Host) -> None:
    environment = host.root / "env"
    environment.write_text(f'# of ours\nSERVE_KEY="{SECRET}"\n\nSERVE_PORT = 7\n')
    host.unit(
        "a.service",
        f"[Service]\nEnvironmentFile=-{environment}\nEnvironment=HF_TOKEN={SECRET} "
        f"'MORE=--api-key {SECRET}'\n"
        + command(
            f"--model-path /m --api-key ${{SERVE_KEY}} --port=$SERVE_PORT "
            f"--admin-api-key={SECRET} --ssl-keyfile-password {SECRET} --tokenizer x"
        ),
    )
    facts = host.discover()
    assert SECRET not in json.dumps(facts)
    (found,) = facts["units"]
    assert found["secrets"] == {
        "--api-key": "SERVE_KEY",
        "--admin-api-key": None,
        "--ssl-keyfile-password": None,
    }
    assert found["secret_variables"] == ["HF_TOKEN", "SERVE_KEY"]
    assert found["environment_files"] == [f"-{environment}"]
    assert found["environment"] == {"MORE": "--api-key [redacted]"}
    assert "--tokenizer x" in " ".join(found["effective"])


def test_a_model_of_the_hub_is_looked_for_in_the_cache(host: Host) -> None:
    snapshot = host.root / "hub" / "models--org--name" / "snapshots" / "abc"
    host.unit(
        "a.service",
        f"[Service]\nEnvironment=HF_HOME={host.root}\n" + command("--model org/name"),
    )
    assert host.found()["model"] is None
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").touch()
    (host.root / "hub" / "models--org--name" / "refs").mkdir()
    (host.root / "hub" / "models--org--name" / "refs" / "main").write_text("abc\n")
    assert host.found()["model"] == str(snapshot)


def test_a_python_without_sglang_says_so(host: Host) -> None:
    host.unit("a.service", command("--model-path /m"))
    found = host.found()
    assert found["python"] == sys.executable
    assert found["install"]["fault"]["code"] == "distribution_missing"


def test_loads_are_from_the_start_to_ready(host: Host) -> None:
    host.unit("a.service", command("--model-path /m"))
    entry = '{"__REALTIME_TIMESTAMP": "%d", "_SYSTEMD_INVOCATION_ID": "i", "MESSAGE": "x"}'
    ready, first = entry % 745_500_000, entry % 100_000_000
    script = f"case \"$*\" in *--grep*) echo '{ready}';; *) echo '{first}';; esac\n"
    put_tool(host.root / "tools", "journalctl", script)
    assert host.found()["loads"] == [{"at": 745.5, "seconds": 645.5}]


def test_a_process_outside_any_unit_is_told_of(host: Host, tmp_path: Path) -> None:
    code = "import time; time.sleep(60)"
    argv = [sys.executable, "-c", code, "-m", "sglang.launch_server", "--api-key", SECRET]
    with subprocess.Popen(argv) as process:
        try:
            deadline = time.monotonic() + 20
            found: list[dict[str, Any]] = []
            while not found and time.monotonic() < deadline:
                found = [p for p in host.discover()["processes"] if p["pid"] == process.pid]
        finally:
            process.kill()
    assert found, "it was running"
    assert found[0]["command"].endswith("--api-key [redacted]")
    assert found[0]["where"]
