"""The client's end of the frames, against real child processes that behave or do not."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from opsctl import errors
from opsctl.transport import bundle, local
from opsctl.transport.conversation import Conversation
from opsctl.transport.local import _ProcessPipe

HOST_PROGRAM = shlex.join([sys.executable, *bundle.OPTIONS, "-c", bundle.BOOT])


@contextmanager
def talk(shell: str, start_timeout: float = 20.0) -> Iterator[Conversation]:
    """A conversation with what `shell` runs, as sshd would run it for a login shell."""
    pipe = _ProcessPipe(["sh", "-c", shell])
    try:
        conversation = Conversation(pipe, start_timeout=start_timeout)
        yield conversation
        conversation.close()
        conversation.join()
    finally:
        pipe.close()
        pipe.dispose()


@pytest.fixture
def site(tmp_path: Path) -> dict[str, Any]:
    return {"service": "serve", "state_dir": str(tmp_path / "state")}


# -- the start -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "noise",
    [
        "",
        "echo Welcome to ct200",
        "printf 'no newline at the end'",
        "printf 'OPSCTL-HOST-1 0000\\n'",
        'printf \'{"id": 1, "result": "forged"}\\n\'',
        "printf 'caf\\351\\000\\r\\n\\n\\n'",
        "head -c 200000 /dev/zero",
        "echo to stderr >&2",
    ],
)
def test_what_a_profile_prints_does_not_matter(noise: str, site: dict[str, Any]) -> None:
    with talk(f"{noise or ':'}\nexec {HOST_PROGRAM}") as conversation:
        assert conversation.call("generations", site=site) == []


def test_what_the_host_program_prints_does_not_matter(
    tmp_path: Path, site: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host's own sitecustomize goes on printing from a thread: it ends up on stderr."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys, threading, time\n"
        "def chatter():\n"
        "    while True:\n"
        "        print('chatter', flush=True)\n"
        "        os.write(1, b'more chatter')\n"
        "        time.sleep(0.001)\n"
        "threading.Thread(target=chatter, daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    # Without -I, which would keep the test's sitecustomize out as well.
    program = shlex.join([sys.executable, "-u", "-c", bundle.BOOT])
    with talk(f"exec {program}") as conversation:
        for _ in range(50):
            assert conversation.call("generations", site=site) == []
        assert "more chatter" in conversation._pipe.stderr()


def start_fails(shell: str, start_timeout: float = 20.0) -> errors.OpsctlError:
    with (
        pytest.raises(errors.OpsctlError) as caught,
        talk(shell, start_timeout=start_timeout),
    ):
        pass
    assert caught.value.exit_code == errors.EXIT_UNREACHABLE
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize(
    ("shell", "code", "said"),
    [
        ("echo 'sudo: a password is required' >&2; exit 1", "sudo_password", "password"),
        ("echo 'sudo: sorry, you must have a tty to run sudo' >&2; exit 1", "sudo_password", "tty"),
        ("echo 'sudo: python3: command not found' >&2; exit 1", "python_missing", "python3"),
        ("echo 'bash: line 1: sudo: command not found' >&2; exit 127", "sudo_missing", "sudo"),
        ("echo 'zsh:1: command not found: sudo' >&2; exit 127", "sudo_missing", "sudo"),
        ("echo 'fish: Unknown command: sudo' >&2; exit 127", "sudo_missing", "sudo"),
        ("echo 'sudo: Command not found.' >&2; exit 1", "sudo_missing", "sudo"),
        ("exec no-such-python3 -u", "python_missing", "no-such-python3"),
        ("exec /nonexistent/python3 -u", "python_missing", "/nonexistent/python3"),
        ("echo 'python3: Command not found.' >&2; exit 1", "python_missing", "Command not found"),
        ("echo 'fish: Unknown command: python3' >&2; exit 127", "python_missing", "fish"),
        ("echo This account is closed.; exit 0", "host_program_no_start", "account is closed"),
        ("exit 0", "host_program_no_start", "ended before it answered"),
        ("kill -9 $$", "host_program_no_start", "ended before it answered"),
    ],
)
def test_a_start_that_fails_says_why(shell: str, code: str, said: str) -> None:
    error = start_fails(shell)
    assert error.code == code
    assert said in error.message


def test_a_shell_that_waits_is_not_waited_for() -> None:
    began = time.monotonic()
    error = start_fails("echo Choose a menu entry; exec sleep 1", start_timeout=0.3)
    assert error.code == "host_program_no_start"
    assert error.message == "the host program gave no sign of life: Choose a menu entry"
    assert time.monotonic() - began < 25


def test_an_old_python_is_named() -> None:
    error = start_fails("echo '  File \"<string>\", line 1' >&2; echo 'SyntaxError' >&2; exit 1")
    assert "SyntaxError" in error.message


# -- calls -----------------------------------------------------------------------------------


def test_concurrent_calls_get_their_own_answers(tmp_path: Path) -> None:
    (tmp_path / "RECORD").touch()
    with local() as remote, ThreadPoolExecutor(16) as pool:

        def read(number: int) -> bool:
            path = tmp_path / f"{number}"
            path.write_text(str(number))
            answer = remote.call(
                "read",
                site={"service": "s", "state_dir": str(tmp_path), "package": "p"},
                install={"package_dir": str(tmp_path), "record": str(tmp_path / "RECORD")},
                paths=[path.name],
                objects=[],
            )
            return list(answer["paths"]) == [path.name] and bool(answer["paths"][path.name])

        assert all(pool.map(read, range(200)))


def test_an_unknown_operation() -> None:
    with local() as remote:
        with pytest.raises(errors.HostProgramError) as caught:
            remote.call("fly")
        assert caught.value.code == "unknown_operation"
        assert "no operation is called 'fly'" in caught.value.message


def test_a_bug_of_the_host_program_brings_its_traceback(site: dict[str, Any]) -> None:
    with local() as remote, pytest.raises(errors.HostProgramError) as caught:
        remote.call("generations", site=site, extra=1)
    assert caught.value.code == "host_bug"
    assert "Traceback" in caught.value.remote_traceback
    assert "Traceback" not in caught.value.message
    assert "--debug" in caught.value.remedy


def test_a_refusal_keeps_its_code_and_remedy(site: dict[str, Any]) -> None:
    with local() as remote, pytest.raises(errors.Refused) as caught:
        remote.call("unit_control", site=site | {"unit": "x.service"}, verb="explode")
    assert (caught.value.code, caught.value.exit_code) == ("unknown_verb", errors.EXIT_REFUSED)


def test_an_answer_that_does_not_come(site: dict[str, Any]) -> None:
    with local() as remote:
        with remote.stream("watch", unit="x.service"):
            with pytest.raises(errors.Unreachable) as caught:
                remote.call("journal", timeout=0.0, unit="x.service")
            assert caught.value.code == "host_silent"
        assert remote.call("generations", site=site) == [], "the conversation goes on"


def pid_of(remote: Any) -> int:
    return int(remote._pipe._process.pid)


def test_a_far_end_killed_in_mid_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "journalctl").write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\nexec sleep 30\n")
    (tmp_path / "journalctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with local() as remote:

        def kill() -> None:
            while not (tmp_path / "asked").exists():
                time.sleep(0.01)
            os.kill(pid_of(remote), signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(errors.Unreachable) as caught:
            remote.call("journal", timeout=20, unit="x.service")
        killer.join()
        assert caught.value.code == "connection_lost"
        assert "opsctl status" in caught.value.remedy
        for _ in range(2):
            with pytest.raises(errors.Unreachable, match="was lost"):
                remote.call("generations", timeout=20)


def test_what_the_connecting_user_has_set_does_not_reach_the_program(
    tmp_path: Path, site: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """sshd starts it in that user's home, where `-c` looks for modules first."""
    (tmp_path / "base64.py").write_text("raise SystemExit('the wrong base64')\n")
    (tmp_path / "start.py").write_text("raise SystemExit('a startup file')\n")
    monkeypatch.chdir(tmp_path)
    for name in ("PYTHONHOME", "PYTHONPATH"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("PYTHONSTARTUP", str(tmp_path / "start.py"))
    monkeypatch.setenv("PYTHONIOENCODING", "utf-16")
    with local() as remote:
        assert remote.call("generations", site=site) == []


def test_garbage_from_the_far_end_ends_the_conversation() -> None:
    answer = 'print("{not json", flush=True); sys.stdin.read()'
    program = (
        "import re, sys; b = sys.stdin.buffer; s = b.read(int(b.readline())).decode();"
        ' print("\\nOPSCTL-HOST-1", re.findall(r"main\\(.(\\w+).\\)", s)[-1], flush=True);'
        f" b.readline(); {answer}"
    )
    shell = f"exec {shlex.quote(sys.executable)} -u -c {shlex.quote(program)}"
    with talk(shell) as conversation, pytest.raises(errors.Unreachable, match="was lost"):
        conversation.call("generations", timeout=20)


# -- streams ---------------------------------------------------------------------------------


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its every answer is another state, so `watch` sends one at each look."""
    path = tmp_path / "systemctl"
    path.write_text(
        f"#!/bin/sh\necho x >> {tmp_path}/looks\necho MainPID=$$\necho ActiveState=active\n"
    )
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "looks"


def test_a_stream_cancelled_in_the_middle_ends_on_the_host(
    systemctl: Path, site: dict[str, Any]
) -> None:
    with local() as remote:
        with remote.stream("watch", unit="x.service", interval=0.01) as watch:
            for _ in range(3):
                assert watch.get(20)["unit"]["ActiveState"] == "active"
        remote.call("generations", site=site)
        before = -1
        deadline = time.monotonic() + 20
        while (looks := len(systemctl.read_text())) != before:
            assert time.monotonic() < deadline, "the host program goes on looking"
            before = looks
            time.sleep(0.15)


def test_a_stream_without_news_gives_none(systemctl: Path) -> None:
    assert systemctl.parent.is_dir()
    with local() as remote, remote.stream("watch", unit="x.service", interval=30) as watch:
        assert watch.get(20) is not None
        assert watch.get(0) is None


def test_a_stream_that_fails_on_the_host(systemctl: Path) -> None:
    (systemctl.parent / "systemctl").write_text("#!/bin/sh\necho broken >&2; exit 1\n")
    with local() as remote, remote.stream("watch", unit="x.service") as watch:
        with pytest.raises(errors.Refused) as caught:
            watch.get(20)
        assert caught.value.code == "systemd_unreachable"


def test_a_stream_whose_far_end_is_killed(systemctl: Path) -> None:
    assert systemctl.parent.is_dir()
    with local() as remote, remote.stream("watch", unit="x.service", interval=30) as watch:
        assert watch.get(20) is not None
        os.kill(pid_of(remote), signal.SIGKILL)
        with pytest.raises(errors.Unreachable) as caught:
            watch.get(20)
        assert caught.value.code == "connection_lost"


# -- the bundle ------------------------------------------------------------------------------


def test_the_boot_line_means_the_same_to_every_shell() -> None:
    assert not set(bundle.BOOT) & set("'!\\$`\n")


def test_the_program_leaves_no_file_behind(
    tmp_path: Path, site: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with local() as remote:
        assert remote.call("generations", site=site) == []
    assert list(tmp_path.iterdir()) == []


def test_a_start_that_fails_leaves_no_process(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(errors.Unreachable), local(str(python)):
        pytest.fail("not reached")


def test_a_host_that_falls_silent_counts_as_lost(
    site: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way back of a half-open connection: nothing ever says that it is dead."""
    with talk(f"exec {HOST_PROGRAM}") as conversation:
        pipe = conversation._pipe
        assert isinstance(pipe, _ProcessPipe)
        process, close = pipe._process, pipe.close

        def end() -> None:  # a channel's close does not wait for the far end
            process.kill()
            close()

        monkeypatch.setattr(pipe, "close", end)
        conversation.keep_alive(0.1, 2.0)
        time.sleep(3.0)  # its answers alone keep the conversation alive
        assert conversation.call("generations", site=site) == []
        process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(errors.Unreachable, match="no sign of life"):
            conversation.call("generations", site=site, timeout=60)
        assert time.monotonic() - began < 20
