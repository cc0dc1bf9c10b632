"""Orphans: real processes of a real environment, found and ended, and whom nobody may touch."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hostside_tools import Environment, put_tool

from opsctl.hostside import arguments, orphans, probe
from opsctl.hostside.errors import HostFault
from opsctl.transport import local

pytest_plugins = ["hostside_fixtures"]

SERVER = """\
import signal, socket, sys, time
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "--port" in sys.argv:
    s = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
print("up", flush=True)
time.sleep(60)
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(env: Environment) -> Iterator[Start]:
    """Starts the environment's Python as the service does; ends what is left."""
    (env.package_dir / "launch_server.py").write_text(SERVER)
    processes = []

    def started(*words: str, argv: list[str] | None = None) -> subprocess.Popen[str]:
        argv = argv or [str(env.python), "-m", "demo_pkg.launch_server", *words]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        return process

    yield started
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture(autouse=True)
def not_in_a_unit(monkeypatch: pytest.MonkeyPatch, tools: Path) -> None:
    """Whatever unit the tests themselves run in, their processes are in a login's."""
    monkeypatch.setattr(orphans, "_cgroup", lambda _: "/user.slice/session-3.scope")
    put_tool(tools, "nvidia-smi", "exit 9\n")


def found_of(env: Environment, **changes: Any) -> dict[int, dict[str, Any]]:
    found = orphans.find_orphans({**env.site, **changes})["orphans"]
    return {process["pid"]: process for process in found}


def test_a_server_outside_the_unit(env: Environment, start: Start) -> None:
    process = start("--api-key", "sk-geheim", "--hf-token=hf_geheim")
    found = found_of(env)[process.pid]
    assert found["why"] == ["it runs outside the unit"]
    assert found["left"] == ""
    assert found["start"] == probe.started(process.pid)
    assert abs(found["started"] - time.time()) < 10
    assert found["argv"][-3:] == ["--api-key", "[redacted]", "--hf-token=[redacted]"]
    assert "geheim" not in repr(found)


def test_who_holds_the_port(env: Environment, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = start("--port", str(port))
    found = found_of(env, port=port)[process.pid]
    assert found["port"] == port
    assert found["why"] == ["it runs outside the unit", f"it holds port {port}"]


def test_somebody_else_who_holds_the_port_is_named_and_left(env: Environment, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = env.root / "other.py"
    script.write_text(SERVER)
    process = start(argv=["/usr/bin/python3", str(script), "--port", str(port)])
    found = found_of(env, port=port)[process.pid]
    assert found["left"] == "it is no process of this service's environment"
    site = {**env.site, "port": port}
    done = orphans.end_orphans(site, [found])
    assert done["left"] == [{"pid": process.pid, "why": found["left"]}]
    assert process.poll() is None


def test_a_process_of_the_unit_is_no_orphan_while_it_runs(
    env: Environment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start()
    monkeypatch.setattr(probe, "in_unit", lambda pid, _: pid == process.pid)
    (env.root / "unit").write_text("ActiveState=active\n")
    assert process.pid not in found_of(env)
    (env.root / "unit").write_text("ActiveState=failed\n")
    found = found_of(env)[process.pid]
    assert found["why"] == ["it outlived the unit"]
    assert "in the unit's own cgroup" in found["left"]
    assert orphans.end_orphans(env.site, [found])["ended"] == []
    assert process.poll() is None


def test_gpu_memory_while_the_unit_is_down(env: Environment, tools: Path, start: Start) -> None:
    server = start()
    other = start(argv=["sh", "-c", "echo up; while :; do sleep 1; done"])
    lines = f"echo 'GPU-a, {server.pid}, x, 700'; echo 'GPU-b, {server.pid}, x, 300'\n"
    put_tool(tools, "nvidia-smi", lines + f"echo 'GPU-a, {other.pid}, sh, 50'\n")
    found = found_of(env)
    assert found[server.pid]["gpu_memory_mib"] == 1000
    assert "it holds 1000 MiB of GPU memory" in found[server.pid]["why"]
    assert found[other.pid]["why"] == ["it holds 50 MiB of GPU memory"]
    assert found[other.pid]["left"].startswith("it is a shell or a login")
    (env.root / "unit").write_text("ActiveState=active\n")
    assert other.pid not in found_of(env), "somebody else's work beside a unit that runs"


def test_what_the_gpu_says_is_missing_and_the_rest_is_found(
    env: Environment, tools: Path, start: Start
) -> None:
    process = start()
    put_tool(tools, "nvidia-smi", "exec sleep 60\n")
    began = time.monotonic()
    found = orphans.find_orphans(env.site, bound=0.5)
    assert time.monotonic() - began < 3
    assert "no answer" in found["missing"]["gpu_processes"]
    assert process.pid in {each["pid"] for each in found["orphans"]}


def test_a_titled_child_is_known_by_its_libraries(env: Environment, start: Start) -> None:
    """setproctitle wipes the arguments; the base interpreter is everybody's."""
    library = env.site_packages / "torch.so"
    library.write_bytes(b"code")
    waits = "print('up', flush=True); import time; time.sleep(60)"
    maps = f"import mmap; f = open({str(library)!r}); "
    maps += "m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ); "
    titled = 'exec -a sglang::scheduler {} -c "$0"'
    ours = start(argv=["bash", "-c", titled.format(env.python), maps + waits])
    other = start(argv=["bash", "-c", titled.format("/usr/bin/python3"), waits])
    found = found_of(env)
    assert found[ours.pid]["argv"][0] == "sglang::scheduler"
    assert other.pid not in found


@pytest.mark.parametrize(
    "words",
    [
        ["-c", "print('up', flush=True); import time; time.sleep(60)", "demo_pkg.launch_server"],
        ["-c", "print('up', flush=True); import time; time.sleep(60)", "--model=/x/demo_pkg"],
    ],
)
def test_other_work_in_the_environment_is_none(
    env: Environment, start: Start, words: list[str]
) -> None:
    process = start(argv=[str(env.python), *words])
    assert process.pid not in found_of(env)


@pytest.mark.parametrize(
    ("cgroup", "state", "left"),
    [
        ("/system.slice/other.service", "active", "it belongs to other.service, which runs"),
        ("/system.slice/other.service", "deactivating", "it belongs to other.service, which runs"),
        ("/system.slice/other.service", "failed", ""),
        ("/system.slice/docker-ab12.scope", "active", "it belongs to docker-ab12.scope, which"),
        ("/user.slice/user-0.slice/session-1.scope", "active", ""),
        ("/user.slice/user-0.slice/user@0.service/tmux-spawn-a.scope", "active", ""),
        ("/system.slice/ssh.service", "active", ""),
        ("/system.slice/sshd@3-1.service", "active", ""),
        ("", "active", ""),
    ],
)
def test_another_unit_that_runs_is_left(
    env: Environment,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    cgroup: str,
    state: str,
    left: str,
) -> None:
    process = start()
    monkeypatch.setattr(orphans, "_cgroup", lambda _: cgroup)
    (env.root / "unit").write_text(f"LoadState=loaded\nActiveState={state}\n")
    found = found_of(env)[process.pid]
    assert found["left"].startswith(left)
    assert bool(found["left"]) == bool(left)


def test_a_unit_that_cannot_be_asked_is_taken_to_run(
    env: Environment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start()
    monkeypatch.setattr(orphans, "_cgroup", lambda _: "/user@7.service/app.slice/mine.service")
    (env.root / "unit").write_text("LoadState=not-found\nActiveState=inactive\n")
    assert found_of(env)[process.pid]["left"] == "it belongs to mine.service, which runs"


# -- ending them ---------------------------------------------------------------------------------


def test_ended_by_sigterm_and_by_sigkill(env: Environment, start: Start) -> None:
    mild, stubborn = start(), start("stubborn")
    found = found_of(env)
    given = [found[mild.pid], found[stubborn.pid]]
    done = orphans.end_orphans(env.site, given, patience=1.0)
    by = {each["pid"]: each["by"] for each in done["ended"]}
    assert by == {mild.pid: "SIGTERM", stubborn.pid: "SIGKILL"}
    assert (done["gone"], done["left"], done["remaining"]) == ([], [], [])
    assert (mild.wait(5), stubborn.wait(5)) == (-signal.SIGTERM, -signal.SIGKILL)
    assert not {mild.pid, stubborn.pid} & set(found_of(env))


def test_another_process_of_that_number_is_not_touched(env: Environment, start: Start) -> None:
    process = start()
    found = dict(found_of(env)[process.pid])
    found["start"] -= 1
    done = orphans.end_orphans(env.site, [found])
    assert done["gone"] == [process.pid]
    assert process.poll() is None


def test_what_is_no_orphan_any_more_is_left(
    env: Environment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start()
    found = found_of(env)[process.pid]
    monkeypatch.setattr(orphans, "_is_kin", lambda *_: False)
    done = orphans.end_orphans(env.site, [found])
    assert done["left"] == [{"pid": process.pid, "why": "it is no orphan any more"}]
    assert process.poll() is None


def test_ourselves_are_never_found(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though all that is asked of a process says that we are one."""
    monkeypatch.setattr(orphans, "_is_kin", lambda *_: True)
    found = found_of(env)
    assert not {os.getpid(), os.getppid(), 1} & set(found)


def test_a_process_that_outlives_sigkill_is_said(
    env: Environment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start()
    found = found_of(env)[process.pid]
    monkeypatch.setattr(orphans._Target, "send", lambda *_: None)
    monkeypatch.setattr(probe, "state", lambda _: "D")
    done = orphans.end_orphans(env.site, [found], patience=0.1, last_patience=0.1)
    assert done["remaining"][0]["pid"] == process.pid
    assert "stuck in the kernel" in done["remaining"][0]["why"]


def test_the_operation_needs_the_lock_and_is_logged(env: Environment, start: Start) -> None:
    process = start()
    with local() as remote:
        given = {
            "pid": process.pid,
            "start": probe.started(process.pid),
        }
        with pytest.raises(Exception, match="needs the lock"):
            remote.call("end_orphans", site=env.site, orphans=[given])
        remote.call("lock", site=env.site, who="ann@laptop", why="orphans")
        # Where these tests run inside a unit, that unit's processes are left.
        done = remote.call("end_orphans", site=env.site, orphans=[given])
        log = remote.call("audit_log", site=env.site)
    touched = [each["pid"] for each in done["ended"] + done["left"]]
    assert touched == [process.pid]
    entry = next(each for each in log if each["event"] == "end_orphans")
    assert entry["who"] == "ann@laptop"
    assert str(process.pid) in entry["why"]


def test_systemd_that_does_not_answer_ends_nobody(
    env: Environment, start: Start, tools: Path
) -> None:
    process = start()
    found = found_of(env)[process.pid]
    put_tool(tools, "systemctl", "echo broken >&2; exit 1\n")
    with pytest.raises(HostFault):
        orphans.end_orphans(env.site, [found])
    assert process.poll() is None


# -- command lines -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--api-key", "a"], ["--api-key", "[redacted]"]),
        (["--admin-api-key=a"], ["--admin-api-key=[redacted]"]),
        (["--ssl-keyfile-password", "a"], ["--ssl-keyfile-password", "[redacted]"]),
        (["HF_TOKEN=a"], ["HF_TOKEN=[redacted]"]),
        (["--tokenizer-path", "/a"], ["--tokenizer-path", "/a"]),
        (["--max-total-tokens", "4096"], ["--max-total-tokens", "4096"]),
        (["--api-key", "--port", "3"], ["--api-key", "--port", "3"]),
        (["--url=http://u:p@h/"], ["--url=http://u:[redacted]@h/"]),
        (["Authorization: Bearer abc"], ["Authorization: Bearer [redacted]"]),
        ([], []),
    ],
)
def test_a_command_line_without_secrets(words: list[str], shown: list[str]) -> None:
    assert arguments.redacted(words) == shown
