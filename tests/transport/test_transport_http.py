"""HTTP through channels of a real SSH connection, to a real HTTP server, all on loopback."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import paramiko
import pytest
from paramiko.common import (
    AUTH_SUCCESSFUL,
    OPEN_FAILED_CONNECT_FAILED,
    OPEN_SUCCEEDED,
)

from opsctl.transport.http import ChannelTransport, direct_tcpip


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/slow":
            time.sleep(0.6)
        if self.path == "/chunked":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for number in range(3):
                data = b"%d" % number * 40000
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
            return
        if self.path == "/cut":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"half")
            self.close_connection = True
            return
        if self.path == "/silent":
            self.close_connection = True
            return
        self._answer({"path": self.path, "host": self.headers["Host"]})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer({"length": len(body), "key": self.headers["Authorization"]})

    def _answer(self, content: object) -> None:
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


class Forwarder(paramiko.ServerInterface):
    """An SSH server that does nothing but connect on."""

    def __init__(self) -> None:
        self.destinations: list[tuple[str, int]] = []
        self.sockets: dict[int, socket.socket] = {}

    def check_auth_none(self, username: str) -> int:
        return AUTH_SUCCESSFUL

    def check_channel_direct_tcpip_request(
        self, chanid: int, origin: tuple[str, int], destination: tuple[str, int]
    ) -> int:
        self.destinations.append(destination)
        try:
            self.sockets[chanid] = socket.create_connection(destination, 5)
        except OSError:
            return OPEN_FAILED_CONNECT_FAILED
        return OPEN_SUCCEEDED

    def serve(self, transport: paramiko.Transport) -> None:
        while transport.is_active():
            channel = transport.accept(0.05)
            if channel is not None:
                target = self.sockets.pop(channel.chanid)
                for ends in ((channel, target), (target, channel)):
                    threading.Thread(target=_pump, args=ends, daemon=True).start()


def _pump(source: paramiko.Channel | socket.socket, sink: paramiko.Channel | socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError, EOFError):
        sink.shutdown(1)
    if isinstance(source, socket.socket):
        source.close()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
def ssh() -> Iterator[tuple[paramiko.Transport, Forwarder]]:
    ours, theirs = socket.socketpair()
    forwarder = Forwarder()
    server, client = paramiko.Transport(theirs), paramiko.Transport(ours)
    server.add_server_key(paramiko.ECDSAKey.generate())
    server.start_server(server=forwarder, event=threading.Event())
    client.start_client(timeout=20)
    client.auth_none("tester")
    accepting = threading.Thread(target=forwarder.serve, args=(server,))
    accepting.start()
    yield client, forwarder
    client.close()
    server.close()
    accepting.join()


@pytest.fixture
def client(ssh: tuple[paramiko.Transport, Forwarder], port: int) -> Iterator[httpx.Client]:
    transport = ChannelTransport(direct_tcpip(ssh[0]))
    with httpx.Client(transport=transport, base_url=f"http://127.0.0.1:{port}") as found:
        yield found


def test_a_request_is_made_on_the_far_side(
    client: httpx.Client, ssh: tuple[paramiko.Transport, Forwarder], port: int
) -> None:
    answer = client.get("/v1/models?x=%20y", timeout=20)
    assert answer.json() == {"path": "/v1/models?x=%20y", "host": f"127.0.0.1:{port}"}
    assert ssh[1].destinations == [("127.0.0.1", port)]


def test_connections_are_not_kept_for_a_server_that_is_about_to_restart(
    client: httpx.Client, ssh: tuple[paramiko.Transport, Forwarder]
) -> None:
    for _ in range(3):
        assert client.get("/", timeout=20).status_code == 200
    assert len(ssh[1].destinations) == 3


def test_a_large_body_up_and_a_chunked_one_down(client: httpx.Client) -> None:
    answer = client.post("/", content=b"x" * 3_000_000, headers={"Authorization": "k"}, timeout=20)
    assert answer.json() == {"length": 3_000_000, "key": "k"}
    with client.stream("GET", "/chunked", timeout=20) as streamed:
        assert b"".join(streamed.iter_bytes()) == b"0" * 40000 + b"1" * 40000 + b"2" * 40000


def test_many_at_once(client: httpx.Client) -> None:
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(client.get("/", timeout=20).status_code))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [200] * 8


def test_nobody_listens_there(ssh: tuple[paramiko.Transport, Forwarder]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    with (
        httpx.Client(transport=ChannelTransport(direct_tcpip(ssh[0]))) as client,
        pytest.raises(httpx.ConnectError, match=f"nothing answers at 127.0.0.1:{free} on the host"),
    ):
        client.get(f"http://127.0.0.1:{free}/", timeout=20)


def test_no_answer_in_time(client: httpx.Client) -> None:
    with pytest.raises(httpx.ReadTimeout):
        client.get("/slow", timeout=httpx.Timeout(20, read=0.1))


@pytest.mark.parametrize("path", ["/cut", "/silent"])
def test_a_server_that_dies_in_the_middle(client: httpx.Client, path: str) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        client.get(path, timeout=20)
    assert client.get("/", timeout=20).status_code == 200


def test_the_ssh_connection_is_gone(
    client: httpx.Client, ssh: tuple[paramiko.Transport, Forwarder]
) -> None:
    ssh[0].close()
    with pytest.raises(httpx.ConnectError):
        client.get("/", timeout=20)


def test_tls_is_refused_and_not_attempted(client: httpx.Client, port: int) -> None:
    with pytest.raises(httpx.ConnectError, match="TLS inside the SSH connection"):
        client.get(f"https://127.0.0.1:{port}/", timeout=20)
