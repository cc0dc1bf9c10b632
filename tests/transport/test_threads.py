"""A blocking transport behind an asynchronous client."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import anyio
import httpx
import pytest

from opsctl.transport.threads import ThreadedTransport


class Slow(httpx.BaseTransport):
    """Blocks its thread until it is let go, or for a moment."""

    def __init__(self, seconds: float = 0.05) -> None:
        self.seconds, self.now, self.most = seconds, 0, 0
        self.lock, self.go = threading.Lock(), threading.Event()
        self.closed = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/error":
            raise httpx.ConnectError("nobody")
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.go.wait(5 if request.url.path == "/hang" else self.seconds)
        with self.lock:
            self.now -= 1
        return httpx.Response(200, stream=Body(request.read()))

    def close(self) -> None:
        self.closed = True


class Body(httpx.SyncByteStream):
    closed = 0

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __iter__(self) -> Iterator[bytes]:
        for byte in self.content:
            time.sleep(0.001)
            yield bytes([byte])

    def close(self) -> None:
        Body.closed += 1


def client(inner: Slow) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(
        base_url="http://s", transport=ThreadedTransport(inner), limits=limits, timeout=5
    )


def test_many_at_once_and_whole() -> None:
    inner = Slow(0.5)

    async def run() -> list[bytes]:
        found: dict[int, bytes] = {}

        async def one(number: int) -> None:
            response = await http.post("/", content=b"body %d" % number)
            found[number] = response.content

        async with client(inner) as http, anyio.create_task_group() as group:
            for number in range(64):
                group.start_soon(one, number)
        return [found[number] for number in range(64)]

    assert anyio.run(run) == [b"body %d" % number for number in range(64)]
    assert inner.most > 40, "threads wait beside each other"
    assert inner.closed


def test_errors_pass_as_they_are() -> None:
    async def run() -> None:
        async with client(Slow()) as http:
            await http.get("/error")

    with pytest.raises(httpx.ConnectError, match="nobody"):
        anyio.run(run)


def test_who_gives_up_does_not_wait_for_the_thread() -> None:
    inner = Slow()

    async def run() -> None:
        async with client(inner) as http:
            with anyio.move_on_after(0.1):
                await http.get("/hang")

    began = time.monotonic()
    try:
        anyio.run(run)
        assert time.monotonic() - began < 2
    finally:
        inner.go.set()


def test_a_body_that_is_left_is_closed() -> None:
    before = Body.closed

    async def run() -> None:
        async with client(Slow()) as http, http.stream("POST", "/", content=b"x" * 500) as response:
            async for _ in response.aiter_raw():
                break

    anyio.run(run)
    assert Body.closed == before + 1
