"""A blocking httpx transport, such as the one through SSH, for asynchronous clients.

paramiko's channels block, so each request waits in a thread of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Final, TypeVar, cast

import anyio
import anyio.to_thread
import httpx

_Item = TypeVar("_Item")
# Requests at once; a thread that waits costs little.
_MOST: Final = 512
_END: Final = object()


class _Body(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream, limiter: anyio.CapacityLimiter) -> None:
        self._stream, self._limiter = stream, limiter

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces: Iterator[bytes] = iter(self._stream)
        while True:
            piece = await anyio.to_thread.run_sync(
                next, pieces, _END, abandon_on_cancel=True, limiter=self._limiter
            )
            if piece is _END:
                return
            yield cast(bytes, piece)

    async def aclose(self) -> None:
        # Also after a cancellation: it ends the read that was abandoned.
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._stream.close, limiter=self._limiter)


class ThreadedTransport(httpx.AsyncBaseTransport):
    """`inner`, whose errors pass as they are."""

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner
        self._limiter = anyio.CapacityLimiter(_MOST)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        whole = httpx.Request(
            request.method,
            request.url,
            headers=request.headers,
            content=await request.aread(),
            extensions=request.extensions,
        )
        response = await anyio.to_thread.run_sync(
            self._inner.handle_request, whole, abandon_on_cancel=True, limiter=self._limiter
        )
        return httpx.Response(
            response.status_code,
            headers=response.headers,
            stream=_Body(cast(httpx.SyncByteStream, response.stream), self._limiter),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await anyio.to_thread.run_sync(self._inner.close, limiter=self._limiter)
