"""What the machine looks like: real sockets and processes of this one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hostside_tools import Environment, put_tool

from opsctl.hostside import probe

pytest_plugins = ["hostside_fixtures"]


def own_cgroup() -> str:
    return Path("/proc/self/cgroup").read_text().splitlines()[0].split(":", 2)[-1]


def test_a_free_port_has_no_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert probe.listener("127.0.0.1", port, "") is None


@pytest.mark.parametrize(
    ("bound", "asked", "found"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("127.0.0.1", "", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
    ],
)
def test_a_listener_is_found_where_binding_would_collide(
    bound: str, asked: str, found: bool
) -> None:
    with socket.create_server((bound, 0)) as server:
        listener = probe.listener(asked, server.getsockname()[1], "/no/such/cgroup")
        assert (listener is not None) == found
        if listener is not None:
            assert listener["pid"] == os.getpid()
            assert listener["own"] is False
            assert listener["command"]


def test_a_listener_of_the_unit_is_its_own() -> None:
    cgroup = own_cgroup()
    with socket.create_server(("127.0.0.1", 0)) as server:
        listener = probe.listener("127.0.0.1", server.getsockname()[1], cgroup)
    assert listener is not None
    # "/" as a prefix would claim every process: a unit is never the root group.
    assert listener["own"] is True


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_a_listener_at_ipv6() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        port = server.getsockname()[1]
        assert probe.listener("::1", port, "") is not None
        assert probe.listener("::", port, "") is not None


def test_servers_outside_the_unit_are_strays(env: Environment) -> None:
    """By the environment's Python and a word of its arguments, as SGLang is started."""
    argv = [str(env.python), "-c", "import sys; print(); sys.stdin.read()", "sglang.launch_server"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = probe.strays(str(env.python), "")
        within = probe.strays(str(env.python), own_cgroup())
        elsewhere = probe.strays("/opt/other/bin/python", "")
        process.communicate()
    # Another test's lab may run on this machine: its servers are strays too.
    commands = {stray["pid"]: stray["command"] for stray in found}
    assert "sglang.launch_server" in commands[process.pid]
    assert process.pid not in {stray["pid"] for stray in within + elsewhere}


def test_free_space_of_a_folder_that_is_to_be_made(tmp_path: Path) -> None:
    path = str(tmp_path / "not" / "yet")
    found = probe.disk_free(path)
    assert found["path"] == path
    assert found["free"] > 0
    assert found["writable"] is True
    assert not (tmp_path / "not").exists()


def test_gpu_processes(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_tool(
        tools,
        "nvidia-smi",
        f"""\
cat <<EOF
{os.getpid()}, /opt/venv/bin/python, 1024
999999, [Not Found], [N/A]
No running processes found
EOF
""",
    )
    assert probe.gpu_processes(own_cgroup()) == [
        {"pid": os.getpid(), "command": "/opt/venv/bin/python", "memory_mib": 1024, "own": True},
        {"pid": 999999, "command": "[Not Found]", "memory_mib": None, "own": False},
    ]
    put_tool(tools, "nvidia-smi", "exec sleep 60\n")
    monkeypatch.setattr(probe, "_GPU_BOUND", 0.5)
    assert probe.gpu_processes("") is None, "beside a lost GPU it hangs"
    monkeypatch.setenv("PATH", "/nonexistent")
    assert probe.gpu_processes("") is None


def test_bytes_read_by_a_group_that_is_not_there() -> None:
    assert probe.read_bytes_of("") == 0
    assert probe.read_bytes_of("/no/such/cgroup") == 0
    assert probe.read_bytes_of(own_cgroup()) >= 0


@pytest.mark.usefixtures("tools")
def test_the_machine() -> None:
    found = probe.machine()
    assert found["systemd"] == "252"
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["uid"] == os.geteuid()
    assert len(found["boot_id"]) == 36
