"""What fills a disk, what is removed for it, and where processes hang: on this machine's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hostside_tools import Environment, put_tool, sha256

from opsctl.hostside import probe, room, stacks
from opsctl.hostside import unit as units

pytest_plugins = ["hostside_fixtures"]


def big(path: Path, size: int) -> Path:
    path.write_bytes(os.urandom(1 << 20) * (size >> 20))
    return path


def only(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """The rest of this machine's disk is nobody's business."""
    monkeypatch.setattr(room, "_roots", lambda paths: [str(folder)])


def test_the_largest_files_and_those_deleted_but_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, tmp_path)
    small, large = big(tmp_path / "a", 17 << 20), big(tmp_path / "b", 40 << 20)
    (tmp_path / "link").symlink_to(large)
    big(tmp_path / "little", 2 << 20)
    held = big(tmp_path / "held", 24 << 20)
    script = f"f = open({str(held)!r}); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        held.unlink()
        found = room.largest([str(tmp_path)])
        holder.kill()
    assert [file["path"] for file in found["files"]] == [str(large), str(small)]
    assert found["files"][0]["bytes"] == 40 << 20
    (deleted,) = (each for each in found["deleted"] if each["path"].startswith(str(held)))
    assert (deleted["pid"], deleted["bytes"]) == (holder.pid, 24 << 20)
    assert found["complete"]


def test_a_look_that_takes_too_long_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, tmp_path)
    for number in range(50):
        (tmp_path / str(number)).touch()
    assert not room.largest([str(tmp_path)], seconds=-1.0)["complete"]


def test_room_is_made_of_what_is_ours_and_journalds(env: Environment, tmp_path: Path) -> None:
    for number in range(6):
        env.deploy({"a.py": b"VALUE = %d\n" % number})
    left = Path(env.state.path("objects")) / sha256(b"left")
    left.write_bytes(b"left")
    os.utime(left, (0, time.time() - 40 * 86400))
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"x")
    tools = tmp_path / "bin"
    put_tool(tools, "journalctl", f'echo "$@" >> {tmp_path}/told; echo "Vacuuming done" >&2')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
        done = room.make_room(env.state, journal="500M", keep=2)
    assert done["generations"] == [1, 2, 3, 4]
    assert env.state.numbers() == [0, 5, 6]
    assert not left.exists()
    assert foreign.exists()
    assert done["journal"] == "Vacuuming done"
    assert (tmp_path / "told").read_text() == "--rotate\n--vacuum-size=500M\n"


def test_a_host_without_journalctl_has_the_rest_all_the_same(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    done = room.make_room(env.state, journal="1G", keep=5)
    assert "journalctl is not installed" in done["journal"]
    assert done["generations"] == []


def test_where_processes_hang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        monkeypatch.setattr(units, "show", lambda unit: {"ControlGroup": "/x"})
        monkeypatch.setattr(probe, "members", lambda cgroup: [sleeper.pid])
        put_tool(tmp_path, "py-spy", 'echo "Thread 1 (idle)"')
        python = str(tmp_path / "python")
        deadline = time.monotonic() + 5
        while probe.argv(sleeper.pid)[:1] != ["sleep"] and time.monotonic() < deadline:
            time.sleep(0.01)
        while probe.state(sleeper.pid) != "S" and time.monotonic() < deadline:
            time.sleep(0.01)
        found = stacks.stacks({"unit": "x.service", "python": python})
        sleeper.kill()
    (process,) = found["processes"]
    assert (process["pid"], process["name"], process["state"]) == (sleeper.pid, "sleep", "S")
    assert process["python"] == "Thread 1 (idle)"
    assert found["py_spy"] == str(tmp_path / "py-spy")
    assert json.dumps(found)
