"""HTTP through the SSH connection: each TCP connection is a channel that the host opens.

No port is opened on this machine, so nobody else here can reach the server through it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import httpcore
import httpx
import paramiko

OpenChannel = Callable[[str, int, float | None], paramiko.Channel]

_ERRORS: tuple[tuple[type[Exception], type[httpx.TransportError]], ...] = (
    (httpcore.ConnectTimeout, httpx.ConnectTimeout),
    (httpcore.ReadTimeout, httpx.ReadTimeout),
    (httpcore.WriteTimeout, httpx.WriteTimeout),
    (httpcore.PoolTimeout, httpx.PoolTimeout),
    (httpcore.ConnectError, httpx.ConnectError),
    (httpcore.ReadError, httpx.ReadError),
    (httpcore.WriteError, httpx.WriteError),
    (httpcore.RemoteProtocolError, httpx.RemoteProtocolError),
    (httpcore.LocalProtocolError, httpx.LocalProtocolError),
)


class ChannelStream(httpcore.NetworkStream):
    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._channel.settimeout(timeout)
        try:
            return self._channel.recv(max_bytes)
        except TimeoutError as error:
            raise httpcore.ReadTimeout(str(error)) from None
        except OSError as error:
            raise httpcore.ReadError(str(error)) from None

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._channel.settimeout(timeout)
        try:
            self._channel.sendall(buffer)
        except TimeoutError as error:
            raise httpcore.WriteTimeout(str(error)) from None
        except OSError as error:
            raise httpcore.WriteError(str(error)) from None

    def close(self) -> None:
        self._channel.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        raise httpcore.ConnectError("TLS inside the SSH connection is not supported")

    def get_extra_info(self, info: str) -> Any:
        # httpcore asks whether an idle connection was closed by the peer.
        return self._channel.eof_received or self._channel.closed if info == "is_readable" else None


class ChannelBackend(httpcore.NetworkBackend):
    def __init__(self, open_channel: OpenChannel) -> None:
        self._open = open_channel

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        try:
            return ChannelStream(self._open(host, port, timeout))
        except paramiko.ChannelException:
            raise httpcore.ConnectError(f"nothing answers at {host}:{port} on the host") from None
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise httpcore.ConnectError(f"the host cannot reach {host}:{port}: {error}") from None


class _Body(httpx.SyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        with _translated():
            yield from self._response.iter_stream()

    def close(self) -> None:
        self._response.close()


class ChannelTransport(httpx.BaseTransport):
    """An httpx transport over channels of one SSH connection."""

    def __init__(self, open_channel: OpenChannel) -> None:
        self._pool = httpcore.ConnectionPool(
            network_backend=ChannelBackend(open_channel),
            max_connections=None,  # a load is as wide as its caller makes it
            max_keepalive_connections=0,
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        inner = httpcore.Request(
            method=request.method,
            url=httpcore.URL(
                scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _translated():
            response = self._pool.handle_request(inner)
        return httpx.Response(
            status_code=response.status,
            headers=response.headers,
            stream=_Body(response),
            extensions=response.extensions,
        )

    def close(self) -> None:
        self._pool.close()


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
        for inner, outer in _ERRORS:
            if isinstance(error, inner):
                raise outer(str(error)) from error
        raise httpx.TransportError(str(error)) from error


def direct_tcpip(transport: paramiko.Transport) -> OpenChannel:
    """Channels that `transport`'s far end connects on."""

    def open_channel(host: str, port: int, timeout: float | None) -> paramiko.Channel:
        source = (socket.gethostname(), 0)
        return transport.open_channel("direct-tcpip", (host, port), source, timeout=timeout)

    return open_channel
