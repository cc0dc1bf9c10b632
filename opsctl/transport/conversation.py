"""The client's end of the framed conversation with the host program.

Knows nothing of SSH: it is given something to write to, something to read from, and a way
to learn what the far end said on stderr.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import re
import secrets
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from opsctl import errors
from opsctl.hostside.server import MARKER
from opsctl.transport import bundle

_ERRORS: dict[str, type[errors.OpsctlError]] = {
    "lock_held": errors.LockHeld,
    "bad_pattern": errors.UsageError,
    "host_bug": errors.HostProgramError,
    "unknown_operation": errors.HostProgramError,
}

_GONE = object()

# As sh, bash, fish, csh and zsh say it; `sudo: python3: command not found` is another matter.
_NO_SUDO = re.compile(r"\bsudo: (command )?not found|\b(not found|Unknown command): sudo\b", re.I)


class Pipe(Protocol):
    """Two byte streams and a last word."""

    def send(self, data: bytes) -> None: ...

    def receive(self, timeout: float | None) -> bytes:
        """Some bytes; empty at the end of the stream. Raises TimeoutError."""

    def stderr(self) -> str:
        """What the far end wrote to stderr so far."""

    def close(self) -> None: ...


class Conversation:
    """Requests by number; a reader thread hands each answer to whoever waits for it."""

    def __init__(self, pipe: Pipe, *, start_timeout: float = 20.0) -> None:
        self._pipe = pipe
        self._numbers = itertools.count(1)
        self._waiting: dict[int, queue.SimpleQueue[Any]] = {}
        self._lock = threading.Lock()
        self._gone = ""
        self._silent = ""
        self._speaks = False
        self._heard = time.monotonic()
        self._closed = threading.Event()
        self._rest = b""
        nonce = secrets.token_hex(8)
        # Beside the reading: the program is larger than what a pipe holds, and a far end that says
        # much before it takes anything in would wait for us as we for it.
        program = threading.Thread(
            target=self._send_program, args=[nonce], name="opsctl-program", daemon=True
        )
        program.start()
        self._handshake(nonce, start_timeout)
        self._reader = threading.Thread(target=self._read, name="opsctl-reader", daemon=True)
        self._reader.start()

    def call(self, op: str, *, timeout: float = 60.0, **params: Any) -> Any:
        number, answers = self._request(op, params)
        try:
            return _value(op, answers.get(timeout=timeout), self._gone)
        except queue.Empty:
            raise errors.Unreachable(
                f"the host gave no answer to {op!r} within {timeout:.0f} s",
                remedy="look at the host's load and the network, then run `opsctl doctor`",
                code="host_silent",
            ) from None
        finally:
            self._waiting.pop(number, None)

    def stream(self, op: str, **params: Any) -> StreamSubscription:
        number, answers = self._request(op, params)

        def end() -> None:
            self._waiting.pop(number, None)
            if not self._gone:
                self._send({"id": number, "cancel": True})

        return StreamSubscription(op, answers, end, lambda: self._gone)

    def keep_alive(self, every: float, patience: float) -> None:
        """Speak each `every` seconds from now on, which the host answers: either side takes the
        other for lost after `patience` of silence, and a half-open connection ends so."""

        if self._speaks:
            return
        self._speaks = True

        def speak() -> None:
            self._heard = time.monotonic()
            with contextlib.suppress(errors.Unreachable):
                while not self._gone and not self._closed.wait(every):
                    self._send({"alive": patience})
                    if time.monotonic() - self._heard > patience:
                        self._silent = f"the host gave no sign of life for {patience:.0f} s"
                        with contextlib.suppress(OSError, EOFError):  # it ended by itself
                            self._pipe.close()
                        return

        with contextlib.suppress(errors.Unreachable):
            self._send({"alive": patience})
        threading.Thread(target=speak, name="opsctl-alive", daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        self._pipe.close()

    def join(self, timeout: float = 5.0) -> None:
        """After `close`, wait for the reader to see the end."""
        self._reader.join(timeout)

    def _request(self, op: str, params: dict[str, Any]) -> tuple[int, queue.SimpleQueue[Any]]:
        number = next(self._numbers)
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._waiting[number] = answers
        if self._gone:
            raise _connection_lost(self._gone)
        self._send({"id": number, "op": op, "params": params})
        return number, answers

    def _send(self, frame: dict[str, Any]) -> None:
        with self._lock:
            try:
                self._pipe.send(json.dumps(frame).encode() + b"\n")
            except (OSError, EOFError) as error:  # paramiko has both for a connection that is gone
                raise _connection_lost(str(error) or "it was closed") from None

    def _send_program(self, nonce: str) -> None:
        # A far end that is gone says why in the handshake; ValueError: we closed it meanwhile.
        with self._lock, contextlib.suppress(OSError, EOFError, ValueError):
            self._pipe.send(bundle.payload(nonce))

    def _handshake(self, nonce: str, timeout: float) -> None:
        wanted = f"{MARKER} {nonce}".encode()
        deadline = time.monotonic() + timeout
        seen = b""
        while True:
            *lines, rest = seen.split(b"\n")
            if wanted in lines:
                # What a login shell printed before the marker is dropped here.
                self._rest = b"\n".join([*lines[lines.index(wanted) + 1 :], rest])
                return
            try:
                data = self._pipe.receive(max(0.01, deadline - time.monotonic()))
            except TimeoutError:
                data = b""
            if not data:
                raise _no_start(seen, self._pipe.stderr(), timed_out=time.monotonic() >= deadline)
            seen += data

    def _read(self) -> None:
        buffer, self._rest = self._rest, b""
        try:
            while True:
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    if line.strip():
                        frame = json.loads(line)
                        answers = self._waiting.get(frame["id"])
                        if answers is not None:
                            answers.put(frame)
                data = self._pipe.receive(None)
                if not data:
                    break
                self._heard = time.monotonic()
                buffer += data
            reason = (
                self._silent or self._pipe.stderr().strip()[-500:] or "the connection was closed"
            )
        except (OSError, ValueError, EOFError) as error:
            reason = self._silent or str(error) or type(error).__name__
        self._gone = reason
        for answers in list(self._waiting.values()):
            answers.put(_GONE)


class StreamSubscription:
    """See `transport.base.Subscription`."""

    def __init__(
        self,
        op: str,
        answers: queue.SimpleQueue[Any],
        end: Callable[[], None],
        gone: Callable[[], str],
    ) -> None:
        self._op = op
        self._answers = answers
        self._end = end
        self._gone = gone

    def get(self, timeout: float) -> Any:
        try:
            frame = self._answers.get(timeout=max(timeout, 0.001))
        except queue.Empty:
            return None
        return _value(self._op, frame, self._gone())

    def __enter__(self) -> StreamSubscription:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(errors.Unreachable):  # then it has ended by itself
            self._end()


def _value(op: str, frame: Any, gone: str) -> Any:
    if frame is _GONE:
        raise _connection_lost(gone)
    if "item" in frame:
        return frame["item"]
    if "error" not in frame:
        return frame.get("result")
    fault = frame["error"]
    kind = _ERRORS.get(fault["code"], errors.Refused)
    if issubclass(kind, errors.HostProgramError):
        raise kind(
            f"the host program failed in {op!r}: {fault['message']}",
            remedy="run again with --debug for its traceback, and report it",
            code=fault["code"],
            remote_traceback=fault["traceback"],
        )
    raise kind(fault["message"], remedy=fault["remedy"], code=fault["code"])


def _connection_lost(why: str) -> errors.Unreachable:
    return errors.Unreachable(
        f"the connection to the host was lost: {why}",
        remedy="run `opsctl status` to see how it left the service",
        code="connection_lost",
    )


def _no_start(seen: bytes, stderr: str, *, timed_out: bool) -> errors.OpsctlError:
    said = (stderr.strip() or seen.decode("utf-8", "replace").strip())[-400:]
    missing = any(word in said.lower() for word in ("not found", "no such file", "unknown command"))
    if missing and _NO_SUDO.search(said):
        return errors.Unreachable(
            f"there is no sudo on the host: {said}",
            remedy="connect as root, or install sudo there",
            code="sudo_missing",
        )
    if "sudo:" in said and not missing:
        return errors.AuthFailed(
            f"sudo asks for a password on the host: {said}",
            remedy="connect as root, or allow the user `NOPASSWD` for python3 in sudoers",
            code="sudo_password",
        )
    if missing:
        return errors.Unreachable(
            f"python3 does not start on the host: {said}",
            remedy="install python3 (3.8 or newer) there, or set hosts.*.python",
            code="python_missing",
        )
    why = "gave no sign of life" if timed_out else "ended before it answered"
    return errors.Unreachable(
        f"the host program {why}" + (f": {said}" if said else ""),
        remedy="run `ssh HOST python3 -V` by hand; a login shell that waits or exits does this",
        code="host_program_no_start",
    )
