"""The machine's facts: this one's own, and with tools that fail, hang or are not there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hostside_tools import Environment, put_tool

from opsctl.hostside import bounded, machine
from opsctl.hostside.errors import HostFault

pytest_plugins = ["hostside_fixtures"]

HANGS = "exec sleep 60\n"


def facts(env: Environment, **given: Any) -> dict[str, Any]:
    return machine.facts(env.site, **given)


def test_of_this_machine(env: Environment, tools: Path) -> None:
    put_tool(tools, "journalctl", "exit 1\n")
    found = facts(env)
    assert json.loads(json.dumps(found)) == found, "plain JSON values"
    assert 0 < found["boot"]["uptime_s"] < time.time() - 1e9
    assert abs(found["boot"]["booted"] + found["boot"]["uptime_s"] - time.time()) < 5
    assert 0 < found["memory"]["available"] <= found["memory"]["total"]
    places = found["filesystems"]
    assert {"state", "package", "tmp", "journal", "shm", "root", "home"} == set(places)
    here = os.statvfs(env.root)
    state = places["state"]
    assert state["exists"] is False
    assert state["size"] == here.f_frsize * here.f_blocks, "of the folder that it would be made in"
    assert (state["inodes"], state["read_only"]) == (here.f_files, False)
    assert places["shm"]["mount"] == "/dev/shm"
    assert found["unit_memory"] is None


def test_weights(env: Environment, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model-00001.safetensors").write_bytes(b"0" * 1000)
    (folder / "model-00002.safetensors").write_bytes(b"0" * 500)
    (tmp_path / "empty").mkdir()
    given = {"target": folder, "draft": tmp_path / "empty", "gone": tmp_path / "not" / "there"}
    found = facts(env, weights={role: str(path) for role, path in given.items()})["filesystems"]
    assert found["target"]["weights"] == {"files": 2, "bytes": 1500, "config": True}
    assert found["draft"]["weights"] == {"files": 0, "bytes": 0, "config": False}
    assert found["gone"]["exists"] is False
    assert "weights" not in found["gone"]


def test_memory_of_the_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "CGROUPS", str(tmp_path))
    folder = tmp_path / "system.slice" / "serve@[1].service"
    folder.mkdir(parents=True)
    (folder / "memory.current").write_text("4096\n")
    (folder / "memory.max").write_text("max\n")
    (folder / "memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    found = {"current": 4096, "max": None, "oom_kills": 2}
    assert machine.unit_memory("serve@[1].service") == found
    (folder / "memory.max").write_text("8192\n")
    assert machine.unit_memory("serve@[1].service") == {**found, "max": 8192}
    assert machine.unit_memory("other.service") is None


@pytest.mark.parametrize("tool", ["nvidia-smi", "journalctl"])
def test_a_tool_that_hangs_is_named_and_holds_nothing_up(
    env: Environment, tools: Path, tool: str
) -> None:
    put_tool(tools, tool, HANGS)
    began = time.monotonic()
    found = facts(env, bound=0.8)
    assert time.monotonic() - began < 1.5
    part = {"nvidia-smi": "gpus", "journalctl": "kernel"}[tool]
    assert "no answer within" in found["missing"][part]
    assert found[part] is None
    assert found["memory"] is not None
    assert found["filesystems"]["root"]["size"] > 0


def test_a_dead_mount_is_named_and_the_others_are_seen(
    env: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look itself blocks, as on an NFS mount whose server is gone."""
    dead = str(tmp_path / "dead")
    blocking = (
        "import os, time\n_real = os.path.exists\n"
        f"os.path.exists = lambda p: time.sleep(60) if p == {dead!r} else _real(p)\n"
    )
    monkeypatch.setattr(machine, "_LOOK", blocking + machine._LOOK)
    began = time.monotonic()
    found = facts(env, weights={"target": dead}, bound=1.5)
    assert time.monotonic() - began < 2.5
    assert "gave no answer within" in found["filesystems"]["target"]["fault"]
    assert found["missing"]["filesystem " + dead] == found["filesystems"]["target"]["fault"]
    assert found["filesystems"]["root"]["size"] > 0


def test_gpus(tools: Path) -> None:
    put_tool(
        tools,
        "nvidia-smi",
        f"""\
case "$1" in
--query-gpu=*) echo "0, GPU-aa, NVIDIA H200, 143771, 140000, 87, 61, 0"
  echo "1, GPU-bb, NVIDIA H200, 143771, 2, [N/A], 33, [N/A]" ;;
*) echo "GPU-aa, {os.getpid()}, /opt/a, b/python, 1024"
  echo "GPU-aa, 99999999, [Not Found], [N/A]" ;;
esac
""",
    )
    first, second = machine.gpus(5)
    assert (first["index"], first["memory_used_mib"], first["utilization"]) == (0, 140000, 87)
    assert (second["uuid"], second["utilization"], second["ecc"]) == ("GPU-bb", None, None)
    ours, gone = machine.gpu_processes("no-such.service", 5)
    assert (ours["pid"], ours["command"]) == (os.getpid(), "/opt/a,b/python")
    assert (ours["memory_mib"], ours["own"]) == (1024, False)
    assert (gone["command"], gone["memory_mib"]) == ("[Not Found]", None)


def test_a_driver_that_fails_says_why(tools: Path) -> None:
    put_tool(tools, "nvidia-smi", "echo 'Failed to initialize NVML: Unknown Error'; exit 255\n")
    with pytest.raises(HostFault, match="Failed to initialize NVML"):
        machine.gpus(5)


def test_kernel_lines_of_the_journal(tools: Path) -> None:
    lines = [
        {"__REALTIME_TIMESTAMP": "1700000000500000", "MESSAGE": "NVRM: Xid (PCI:0): 79, gone"},
        {"__REALTIME_TIMESTAMP": "1700000001000000", "MESSAGE": list(b"blk: I/O error, \xff")},
    ]
    text = "\n".join(map(json.dumps, lines))
    put_tool(tools, "journalctl", f'echo "$@" >> {tools}/asked; cat <<"EOF"\n{text}\nEOF\n')
    found = machine.kernel(1699999999.0, 5)
    assert found["source"] == "journal"
    assert [line["time"] for line in found["lines"]] == [1700000000.5, 1700000001.0]
    assert found["lines"][1]["text"] == "blk: I/O error, \ufffd"
    assert "--since=@1699999999" in (tools / "asked").read_text()


def test_a_journal_with_nothing_telling_is_seen(tools: Path) -> None:
    put_tool(tools, "journalctl", 'case "$*" in *--grep*) exit 1 ;; *) echo "{}" ;; esac\n')
    assert machine.kernel(0.0, 5) == {"source": "journal", "since": 0.0, "lines": []}


def test_a_kernel_that_cannot_be_seen_is_said(
    tools: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put_tool(tools, "journalctl", "exit 0\n")
    pipe = tmp_path / "kmsg"
    os.mkfifo(pipe)  # what some containers have there
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *rest: real(pipe if path == "/dev/kmsg" else path, *rest)
    )
    with pytest.raises(HostFault) as caught:
        machine.kernel(0.0, 5)
    assert caught.value.code == "kernel_unseen"


@pytest.mark.parametrize(
    ("line", "telling"),
    [
        ("NVRM: Xid (PCI:0000:9b:00): 79, pid=2211, GPU has fallen off the bus.", True),
        ("Memory cgroup out of memory: Killed process 4137 (sglang::schedul)", True),
        ("Out of memory: Killed process 1 (python)", True),
        ("I/O error, dev nvme0n1, sector 12345 op 0x0:(READ)", True),
        ("EXT4-fs error (device vda): ext4_find_entry:1455", True),
        ("nfs: server 10.0.0.9 not responding, still trying", True),
        ("INFO: task nvidia-smi:412 blocked for more than 120 seconds.", True),
        ("thermal_sys: Registered thermal governor 'fair_share'", False),
        ("EXT4-fs (vda): mounted filesystem with ordered data mode", False),
    ],
)
def test_what_is_telling(line: str, telling: bool) -> None:
    assert bool(re.search(machine.TELLING, line)) == telling


# -- the bounds ----------------------------------------------------------------------------------


def test_what_does_not_end_is_killed_and_not_waited_for(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    began = time.monotonic()
    with pytest.raises(HostFault) as caught:
        bounded.output(["sh", "-c", f"echo $$ > {pid}; trap '' TERM; sleep 60"], 0.5)
    assert caught.value.code == "tool_hangs"
    assert time.monotonic() - began < 2
    time.sleep(0.2)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_what_it_said_before_it_hung_is_kept() -> None:
    said = bounded.lines(["sh", "-c", "echo one; echo two; exec sleep 60"], 0.5)
    assert said == ["one", "two"]


def test_a_child_that_keeps_the_pipe_open_does_not_hold_it_up() -> None:
    began = time.monotonic()
    with pytest.raises(HostFault):
        bounded.output(["sh", "-c", "sleep 60 & exit 0"], 0.5)
    assert time.monotonic() - began < 2


def test_a_look_that_blocks_or_fails_is_missing() -> None:
    def broken() -> None:
        raise HostFault("x", "it is broken")

    looks = {"slow": lambda: time.sleep(30), "good": lambda: 1, "broken": broken}
    found, missing = bounded.gather({**looks, "bug": lambda: 1 // 0}, 0.3)
    assert found == {"good": 1}
    assert missing["slow"] == "no answer within 0.3 s"
    assert missing["broken"] == "it is broken"
    assert missing["bug"].startswith("ZeroDivisionError")


def test_it_needs_no_more_than_the_standard_library(env: Environment) -> None:
    """As on the host: isolated, from the sources alone."""
    code = f"import json; from opsctl.hostside import machine; machine.facts({env.site!r})"
    argv = [sys.executable, "-S", "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
