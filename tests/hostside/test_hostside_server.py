"""The frames: requests in, answers out, whatever the operations do."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import pytest

from opsctl.hostside import operations
from opsctl.hostside.errors import HostFault
from opsctl.hostside.server import MARKER, Server
from opsctl.hostside.streams import Stream


def fail_with(error: BaseException) -> Callable[[], None]:
    def operation() -> None:
        raise error

    return operation


def count(stream: Stream, up_to: int) -> str:
    for number in range(up_to):
        stream.send(number)
    stream.cancelled.wait(20 if up_to else 0)
    return "cancelled" if stream.cancelled.is_set() else "ended"


GATE = threading.Event()

OPERATIONS: dict[str, Callable[..., Any]] = {
    "echo": lambda **params: params,
    "nothing": lambda: None,
    "wait": lambda: GATE.wait(20),
    "open": GATE.set,
    "odd": object,
    "surrogate": lambda: os.fsdecode(b"caf\xe9"),
    "fault": fail_with(HostFault("some_code", "what", "do this")),
    "bug": fail_with(KeyError("site")),
    "full": fail_with(OSError(errno.ENOSPC, "No space left on device", "/var/lib/x")),
    "read_only": fail_with(OSError(errno.EROFS, "Read-only file system", "/opt/x")),
    "denied": fail_with(PermissionError(errno.EACCES, "Permission denied", "/opt/x")),
    "other": fail_with(OSError(errno.EIO, "Input/output error")),
}


class Client:
    def __init__(self, requests: BinaryIO, answers: BinaryIO) -> None:
        self.requests = requests
        self.answers = answers

    def send(self, *frames: dict[str, Any]) -> None:
        for frame in frames:
            self.requests.write(json.dumps(frame).encode() + b"\n")
        self.requests.flush()

    def receive(self) -> dict[str, Any]:
        line: dict[str, Any] = json.loads(self.answers.readline())
        return line

    def ask(self, op: str, **params: Any) -> dict[str, Any]:
        self.send({"id": 1, "op": op, "params": params})
        return self.receive()


@pytest.fixture
def client() -> Iterator[Client]:
    GATE.clear()
    (source, requests), (answers, sink) = os.pipe(), os.pipe()
    with (
        os.fdopen(source, "rb") as source_file,
        os.fdopen(requests, "wb") as requests_file,
        os.fdopen(answers, "rb") as answers_file,
        os.fdopen(sink, "wb") as sink_file,
    ):
        server = Server(
            OPERATIONS,
            {"count": count},
            source_file,
            sink_file,
            changes={"wait", "nothing"},
            patience=0.2,
        )
        thread = threading.Thread(target=server.serve, args=("n0nce",))
        thread.start()
        assert answers_file.readline() == b"\n"
        assert answers_file.readline() == f"{MARKER} n0nce\n".encode()
        yield Client(requests_file, answers_file)
        requests_file.close()
        thread.join(20)
        assert not thread.is_alive(), "the end of input ends the program"


def test_an_answer_carries_its_requests_number(client: Client) -> None:
    client.send({"id": 7, "op": "echo", "params": {"a": "ä\n", "b": [1, None]}})
    assert client.receive() == {"id": 7, "result": {"a": "ä\n", "b": [1, None]}}
    client.requests.write(b"\n  \n")
    client.send({"id": 8, "op": "nothing"})
    assert client.receive() == {"id": 8, "result": None}


def test_a_slow_operation_does_not_hold_up_another(client: Client) -> None:
    client.send({"id": 1, "op": "wait"}, {"id": 2, "op": "echo"})
    assert client.receive() == {"id": 2, "result": {}}
    client.send({"id": 3, "op": "open"})
    answers = [client.receive(), client.receive()]
    assert {answer["id"]: answer["result"] for answer in answers} == {1: True, 3: None}


def test_changes_are_made_one_at_a_time(client: Client) -> None:
    """Its client gave up waiting for the first; that goes on all the same."""
    client.send({"id": 1, "op": "wait"})
    error = client.ask("nothing")["error"]
    assert (error["code"], bool(error["remedy"])) == ("host_busy", True)
    assert "'nothing' was not begun: the host is still at 'wait'" in error["message"]
    client.send({"id": 2, "op": "nothing"}, {"id": 3, "op": "open"})
    answers = [client.receive() for _ in range(3)]
    assert {answer["id"]: answer["result"] for answer in answers} == {1: True, 2: None, 3: None}
    assert client.ask("nothing")["result"] is None, "one that failed or ended is no hindrance"


def test_every_change_is_an_operation() -> None:
    assert set(operations.OPERATIONS) >= operations.CHANGES
    looks = {"inspect", "read", "lock_state", "audit_log", "check_swap", "generations"}
    looks |= {"check_plain", "model_facts", "list_baselines", "read_baseline", "discover"}
    looks |= {"unit_state", "journal", "journal_read", "journal_first", "recorded"}
    looks |= {"machine", "find_orphans", "largest", "stacks", "lint_facts"}
    looks |= {"tell"}  # nothing of the host is another for it
    assert set(operations.OPERATIONS) - operations.CHANGES == looks


@pytest.mark.parametrize(
    ("op", "code", "message", "remedy"),
    [
        ("fault", "some_code", "what", "do this"),
        ("unheard_of", "unknown_operation", "no operation is called 'unheard_of'", ""),
        ("bug", "host_bug", "KeyError: 'site'", ""),
        ("full", "disk_full", "/var/lib/x: No space left on device", "free some space"),
        ("read_only", "read_only", "/opt/x: Read-only file system", "remount"),
        ("denied", "permission", "/opt/x: Permission denied", "connect as root"),
        ("other", "os_error", "[Errno 5] Input/output error", ""),
        ("odd", "host_bug", "TypeError: Object of type object is not JSON serializable", ""),
    ],
)
def test_a_failure_is_an_answer_too(
    client: Client, op: str, code: str, message: str, remedy: str
) -> None:
    error = client.ask(op)["error"]
    assert (error["code"], error["message"]) == (code, message)
    assert remedy in error["remedy"]
    assert ("Traceback" in error["traceback"]) == (op not in {"fault", "unheard_of"}), (
        "only what nobody expected has a traceback"
    )
    assert client.ask("echo", still="there")["result"] == {"still": "there"}


def test_missing_parameters_are_a_bug_of_the_caller(client: Client) -> None:
    assert client.ask("nothing", extra=1)["error"]["code"] == "host_bug"


def test_bytes_of_a_file_name_cross_the_frame(client: Client) -> None:
    assert client.ask("surrogate")["result"] == "caf\udce9"


def test_a_stream_sends_items_until_it_is_cancelled(client: Client) -> None:
    client.send({"id": 4, "op": "count", "params": {"up_to": 2}})
    assert [client.receive() for _ in range(2)] == [{"id": 4, "item": 0}, {"id": 4, "item": 1}]
    client.send({"id": 4, "cancel": True}, {"id": 99, "cancel": True})
    assert client.receive() == {"id": 4, "result": "cancelled"}


def test_the_end_of_input_cancels_streams(client: Client) -> None:
    client.send({"id": 4, "op": "count", "params": {"up_to": 1}})
    assert client.receive() == {"id": 4, "item": 0}
    client.requests.close()
    assert client.receive() == {"id": 4, "result": "cancelled"}
