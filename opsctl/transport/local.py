"""The host program as a child of this process: the same conversation, without SSH."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import httpx

from opsctl.transport import bundle
from opsctl.transport.conversation import Conversation, StreamSubscription


class _ProcessPipe:
    def __init__(self, argv: list[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the pipe
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )

    def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def receive(self, timeout: float | None) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        if not select.select([descriptor], [], [], timeout)[0]:
            raise TimeoutError
        return os.read(descriptor, 1 << 16)

    def stderr(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace")

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def dispose(self) -> None:
        """Give up the descriptors, once nobody reads any more."""
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()


class LocalRemote:
    """A `Remote` that is this machine."""

    where = "this machine"

    def __init__(self, python: str = sys.executable) -> None:
        self._pipe = _ProcessPipe([python, *bundle.OPTIONS, "-c", bundle.BOOT])
        try:
            self._conversation = Conversation(self._pipe)
        except BaseException:
            self._pipe.close()
            self._pipe.dispose()
            raise

    def call(self, op: str, *, timeout: float = 60.0, **params: Any) -> Any:
        return self._conversation.call(op, timeout=timeout, **params)

    def stream(self, op: str, **params: Any) -> StreamSubscription:
        return self._conversation.stream(op, **params)

    def keep_alive(self, every: float, patience: float) -> None:
        self._conversation.keep_alive(every, patience)

    def http(self) -> httpx.BaseTransport:
        return httpx.HTTPTransport()

    def close(self) -> None:
        self._conversation.close()
        self._conversation.join()
        self._pipe.dispose()


@contextlib.contextmanager
def local(python: str = sys.executable) -> Iterator[LocalRemote]:
    """A conversation with this machine, closed at the end of the block."""
    remote = LocalRemote(python)
    try:
        yield remote
    finally:
        remote.close()
