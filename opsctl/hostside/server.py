"""The conversation: requests in on stdin, answers out on stdout, one JSON object a line.

Request  ``{"id": 1, "op": "inspect", "params": {...}}`` or ``{"id": 1, "cancel": true}``.
Answer   ``{"id": 1, "item": ...}`` any number of times from a stream, then once
``{"id": 1, "result": ...}`` or ``{"id": 1, "error": {code, message, remedy, traceback}}``.

Each request runs in a thread of its own, so a long `watch` does not hold up `unit_state`. What
changes something runs alone, even where its client gave up waiting for the one before it.
End of input ends the program, and with it every lock that it held. So does silence, once a
client has said ``{"alive": SECONDS}``: a half-open connection never ends by itself. Each such
word is answered by ``{"id": 0, "alive": true}``.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import sys
import threading
import time
import traceback
from typing import Any, BinaryIO, Callable, Collection, Dict, Iterator, Optional

from . import operations
from .errors import HostFault
from .streams import Stream

MARKER = "OPSCTL-HOST-1"
# Seconds that a change waits for the one before it: less than any client waits for an answer.
PATIENCE = 30.0

Params = Dict[str, Any]
Operation = Callable[..., Any]


class Server:
    def __init__(
        self,
        operations: Dict[str, Operation],
        streams: Dict[str, Operation],
        source: BinaryIO,
        sink: BinaryIO,
        *,
        changes: Collection[str] = (),
        patience: float = PATIENCE,
    ) -> None:
        """`changes` are those of `operations` that run one at a time."""
        self._operations = operations
        self._streams = streams
        self._source = source
        self._sink = sink
        self._changes = changes
        self._change_patience = patience
        self._change_lock = threading.Lock()
        self._changing = ("", 0.0)  # what runs alone, and since when
        self._write_lock = threading.Lock()
        self._running: Dict[int, Stream] = {}
        self._heard = time.monotonic()
        self._patience = 0.0  # seconds; 0 before a client promised to speak

    def serve(self, nonce: str) -> None:
        """Answer until the input ends."""
        # A line of its own, so that whatever a login shell printed before is told apart.
        self._write_line("\n%s %s" % (MARKER, nonce))
        for line in self._source:
            if not line.strip():
                continue
            request = json.loads(line)
            self._heard = time.monotonic()
            if "alive" in request:
                self._expect_life(float(request["alive"]))
                self._answer(0, "alive", True)  # no request's number: a sign of life in return
                continue
            number = request["id"]
            if request.get("cancel"):
                stream = self._running.get(number)
                if stream is not None:
                    stream.cancelled.set()
                continue
            stream = Stream(functools.partial(self._answer, number, "item"))
            self._running[number] = stream
            threading.Thread(
                target=self._run,
                args=(number, request["op"], request.get("params") or {}, stream),
                daemon=True,
            ).start()
        for stream in list(self._running.values()):
            stream.cancelled.set()

    def _expect_life(self, patience: float) -> None:
        first, self._patience = self._patience == 0, patience
        if first:
            threading.Thread(target=self._watch_life, daemon=True).start()

    def _watch_life(self) -> None:
        while time.monotonic() - self._heard < self._patience:
            time.sleep(1.0)
        os._exit(1)

    def _run(self, number: int, op: str, params: Params, stream: Stream) -> None:
        try:
            if op in self._streams:
                result = self._streams[op](stream, **params)
            elif op in self._operations:
                with self._alone(op):
                    result = self._operations[op](**params)
            else:
                raise HostFault("unknown_operation", "no operation is called %r" % op)
            self._answer(number, "result", result)
        except HostFault as fault:
            self._answer(number, "error", _error(fault.code, fault.message, fault.remedy))
        except OSError as error:
            self._answer(number, "error", _error(*_describe(error), trace=traceback.format_exc()))
        except Exception as error:
            text = "%s: %s" % (type(error).__name__, error)
            self._answer(number, "error", _error("host_bug", text, trace=traceback.format_exc()))
        finally:
            self._running.pop(number, None)

    @contextlib.contextmanager
    def _alone(self, op: str) -> Iterator[None]:
        if op not in self._changes:
            yield
            return
        if not self._change_lock.acquire(timeout=self._change_patience):
            other, since = self._changing
            raise HostFault(
                "host_busy",
                "%r was not begun: the host is still at %r, for %.0f s"
                % (op, other, time.monotonic() - since),
                "look at the host's disk and load; `opsctl status` shows how it ends",
            )
        try:
            self._changing = (op, time.monotonic())
            yield
        finally:
            self._change_lock.release()

    def _answer(self, number: int, kind: str, value: Any) -> None:
        self._write_line(json.dumps({"id": number, kind: value}))

    def _write_line(self, text: str) -> None:
        try:
            with self._write_lock:
                self._sink.write(text.encode("utf-8", "surrogateescape") + b"\n")
                self._sink.flush()
        except (OSError, ValueError):
            os._exit(1)  # nobody reads any more: end at once, and free the locks


def _error(code: str, message: str, remedy: str = "", trace: str = "") -> Dict[str, str]:
    return {"code": code, "message": message, "remedy": remedy, "traceback": trace}


def _describe(error: OSError) -> "tuple[str, str, str]":
    what = "%s: %s" % (error.filename, error.strerror) if error.filename else str(error)
    known = {
        errno.ENOSPC: ("disk_full", "free some space on that file system"),
        errno.EROFS: ("read_only", "the file system is mounted read-only: remount it read-write"),
        errno.EACCES: ("permission", "connect as root, or as a user with `sudo -n`"),
        errno.EPERM: ("permission", "connect as root, or as a user with `sudo -n`"),
    }
    code, remedy = known.get(error.errno or 0, ("os_error", ""))
    return code, what, remedy


def main(nonce: str, source: Optional[BinaryIO] = None, sink: Optional[BinaryIO] = None) -> None:
    """Serve on stdin and stdout. Whatever else prints goes to stderr, out of the frames."""
    if sink is None:
        sink = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        sys.stdout = sys.stderr
    source = source or sys.stdin.buffer
    known = operations.OPERATIONS, operations.STREAMS
    Server(*known, source, sink, changes=operations.CHANGES).serve(nonce)
    # Not freed before the program ends: a thread may be in the middle of a swap.
    operations.note_end()
    # Threads may still be inside systemctl or journalctl; nothing is owed to a gone client.
    os._exit(0)
