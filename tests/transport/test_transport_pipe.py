"""The session channel as a pipe."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import paramiko

from opsctl.transport.connect import _ChannelPipe


def test_the_last_words_on_stderr_are_there_when_stdout_has_ended() -> None:
    """They are collected by a thread that a busy machine may run later than the reader of stdout,
    the exit status included."""
    words = [b"sudo: a password is required\n", b""]

    def stderr(size: int) -> bytes:
        time.sleep(0.2)
        return words.pop(0)

    status = threading.Event()
    status.set()
    channel: dict[str, Any] = {
        "exec_command": lambda command: None,
        "settimeout": lambda timeout: None,
        "recv": lambda size: b"",
        "recv_stderr": stderr,
        "status_event": status,
    }
    transport = SimpleNamespace(open_session=lambda timeout: SimpleNamespace(**channel))
    pipe = _ChannelPipe(cast(paramiko.Transport, transport), "true")
    assert pipe.receive(1.0) == b""
    assert "a password is required" in pipe.stderr()
