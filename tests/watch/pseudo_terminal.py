"""A program on a terminal that can be looked at: a pty, read by a terminal emulator."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyte


class _Screen(pyte.Screen):
    """With the two sequences that pyte lacks, and xterm has: scroll down (SD) and up (SU)."""

    def scroll_down(self, count: int = 1) -> None:
        self._at_top(lambda: self.insert_lines(count))

    def scroll_up(self, count: int = 1) -> None:
        self._at_top(lambda: self.delete_lines(count))

    def _at_top(self, act: Callable[[], None]) -> None:
        x, y = self.cursor.x, self.cursor.y
        self.cursor.y = self.margins.top if self.margins else 0
        act()
        self.cursor.x, self.cursor.y = x, y


class _Stream(pyte.ByteStream):
    csi = {**pyte.ByteStream.csi, "S": "scroll_up", "T": "scroll_down"}  # noqa: RUF012
    events = pyte.ByteStream.events | {"scroll_up", "scroll_down"}


def _on_its_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # Where the tests themselves run in the background, Ctrl-C is ignored, and so in children.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """`argv` on a terminal of `columns` times `lines`. `sent` has (when, bytes) of each piece
    that it was sent. Its `screen` is what an emulator makes of it."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        columns: int = 80,
        lines: int = 24,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> None:
        self.sent: list[tuple[float, int]] = []
        self.raw = bytearray()
        self.screen: Any = _Screen(columns, lines)
        self._stream: Any = _Stream(self.screen)
        self._lock = threading.Lock()
        self._master, slave = pty.openpty()
        self.resize(columns, lines, tell=False)
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            argv,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={"LC_ALL": "C.UTF-8", "TERM": "screen-256color", **os.environ, **(env or {})},
            cwd=cwd,
            start_new_session=True,
            preexec_fn=_on_its_terminal,  # noqa: PLW1509
        )
        self._slave = slave
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._master, 65536):
                with self._lock:
                    self.sent.append((time.monotonic(), len(data)))
                    self.raw += data
                    self._stream.feed(data)

    @property
    def text(self) -> str:
        with self._lock:
            return "\n".join(line.rstrip() for line in self.screen.display)

    def cells(self) -> list[list[Any]]:
        """Every cell with its colours, row by row."""
        with self._lock:
            return [
                [self.screen.buffer[y][x] for x in range(self.screen.columns)]
                for y in range(self.screen.lines)
            ]

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def resize(self, columns: int, lines: int, *, tell: bool = True) -> None:
        size = struct.pack("HHHH", lines, columns, 0, 0)
        if tell:
            with self._lock:
                self.screen.resize(lines, columns)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def await_text(self, *wanted: str, timeout: float = 30.0) -> str:
        return self.await_true(lambda text: all(each in text for each in wanted), timeout)

    def await_true(self, holds: Callable[[str], bool], timeout: float = 30.0) -> str:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if holds(text := self.text):
                return text
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"it never showed; the screen is\n{self.text}")

    def bytes_between(self, since: float, until: float) -> int:
        with self._lock:
            return sum(count for at, count in self.sent if since <= at < until)

    def finish(self, timeout: float = 10.0) -> int:
        """Its exit status once it has ended by itself."""
        try:
            status = self.process.wait(timeout)
        finally:
            self.close()
        return status

    @property
    def restored(self) -> bool:
        """Whether the terminal's settings are those of before. Only once it has ended."""
        return bool(self.after == self.before)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        if self._slave >= 0:
            self.after = termios.tcgetattr(self._slave)
            os.close(self._slave)
            self._slave = -1
            self._reader.join(2)
            os.close(self._master)
