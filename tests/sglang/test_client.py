"""The client against recorded answers of a real server, and against sockets that misbehave."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from opsctl.sglang import ServerError, SglangClient, parse_metrics
from opsctl.sglang.metrics import by_rank

DATA = Path(__file__).parent / "data"
KEY = "sk-very-secret"


@pytest.fixture
def recorded() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(
        (DATA / "answers-0.5.12.post1-dflash-cpu.json").read_text(encoding="utf-8")
    )
    return loaded


def client_of(handler: Callable[[httpx.Request], httpx.Response]) -> SglangClient:
    return SglangClient("http://server", KEY, httpx.MockTransport(handler))


def test_recorded_answers(recorded: dict[str, Any]) -> None:
    asked: list[tuple[str, Any]] = []
    by_path = {
        "/v1/models": recorded["models"],
        "/server_info": recorded["server_info"] | {"api_key": KEY},
        "/generate": recorded["generate"],
        "/v1/chat/completions": recorded["chat"],
    }

    def handler(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == f"Bearer {KEY}"
        asked.append((request.url.path, json.loads(request.content or "null")))
        return httpx.Response(200, json=by_path[request.url.path])

    with client_of(handler) as client:
        assert client.models() == ("tiny",)
        info = client.server_info()
        assert info["version"] == client.version == "0.5.12.post1"
        assert KEY not in json.dumps(info)
        assert "api_key" not in info["internal_states"][0]
        native = client.generate("def add(a, b):", 32, timeout=5)
        assert native.meta.verify_steps == 19
        assert native.meta.block_size == 8
        assert len(native.output_ids) == native.completion_tokens == 32
        assert native.finish_reason == "length"
        chat = client.chat("Write quicksort.", 128, timeout=5, model="tiny")
        assert (chat.completion_tokens, chat.prompt_tokens, chat.finish_reason) == (
            128,
            53,
            "length",
        )
        assert KEY not in repr(client)
    sent = dict(asked)
    assert sent["/generate"]["sampling_params"] == {"temperature": 0, "max_new_tokens": 32}
    assert sent["/v1/chat/completions"]["temperature"] == 0
    assert "ignore_eos" not in json.dumps(asked)


def test_metrics() -> None:
    values = parse_metrics((DATA / "metrics-0.5.12.post1-dflash-cpu.txt").read_text())
    assert values["sglang:spec_accept_length"] == 5.0
    assert values['sglang:cuda_graph_passes_total{mode="decode_none"}'] == 95.0
    assert not any("bucket" in name or "tp_rank" in name for name in values)
    ranks = (
        'sglang:x{tp_rank="0",dp_rank="0"} 1\nsglang:x{tp_rank="1",dp_rank="0"} 1\n'
        'sglang:x{tp_rank="0",dp_rank="1"} 2\nsglang:y{path="/v1/{model}",mode="a"} 4\nother 3\n'
    )
    found = parse_metrics(ranks)
    assert found == {
        'sglang:x{dp_rank="0"}': 1.0,
        'sglang:x{dp_rank="1"}': 2.0,
        'sglang:y{mode="a",path="/v1/{model}"}': 4.0,
    }
    assert by_rank(found, "sglang:x") == {"DP0": 1.0, "DP1": 2.0}
    assert by_rank(values, "sglang:spec_accept_length") == {"": 5.0}
    assert by_rank(values, "sglang:none") == {}


def test_metrics_that_are_none() -> None:
    with client_of(lambda request: httpx.Response(200, text="sglang:y oops\n")) as client:
        with pytest.raises(ServerError) as caught:
            client.metrics()
        assert caught.value.cause == "malformed"


@pytest.mark.parametrize(
    ("response", "cause", "status"),
    [
        (httpx.Response(503, text="starting"), "status", 503),
        (httpx.Response(401, text=f"bad key {KEY}"), "status", 401),
        (httpx.Response(200, text="<html>"), "malformed", 200),
        (httpx.Response(200, json=[1]), "malformed", 200),
        (httpx.Response(200, json={"object": "error"}), "malformed", 200),
        (httpx.Response(200, json={"meta_info": None}), "malformed", 200),
        (httpx.Response(500, text="x" * 9999), "status", 500),
    ],
)
def test_bad_answers(response: httpx.Response, cause: str, status: int) -> None:
    with (
        client_of(lambda request: response) as client,
        pytest.raises(ServerError) as caught,
    ):
        client.generate("x", 16, timeout=1)
    assert (caught.value.cause, caught.value.status) == (cause, status)
    assert KEY not in caught.value.message + caught.value.body
    assert len(caught.value.body) < 400
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_the_older_name_of_server_info() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/server_info":
            return httpx.Response(404)
        return httpx.Response(200, json={"version": "0.5.4"})

    with client_of(handler) as client:
        assert client.server_info() == {"version": "0.5.4"}


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def answer_once(server: socket.socket, reply: bytes) -> threading.Thread:
    def serve() -> None:
        connection, _ = server.accept()
        with closing(connection):
            connection.recv(65536)
            connection.sendall(reply)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize(
    "reply", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{", b"SSH-2.0-OpenSSH_9.2\r\n"]
)
def test_a_connection_that_ends_in_mid_answer(listener: socket.socket, reply: bytes) -> None:
    thread = answer_once(listener, reply)
    port = listener.getsockname()[1]
    with (
        SglangClient(f"http://127.0.0.1:{port}") as client,
        pytest.raises(ServerError) as caught,
    ):
        client.generate("x", 16, timeout=5)
    thread.join()
    assert caught.value.cause == "reset"


def test_no_answer_in_time(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with (
        SglangClient(f"http://127.0.0.1:{port}") as client,
        pytest.raises(ServerError, match=r"no answer within 0\.2 s") as caught,
    ):
        client.generate("x", 16, timeout=0.2)
    assert caught.value.cause == "timeout"


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with SglangClient(f"http://127.0.0.1:{port}") as client, pytest.raises(ServerError) as caught:
        client.models()
    assert caught.value.cause == "refused"
