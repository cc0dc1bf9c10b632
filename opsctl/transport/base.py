"""What the core asks of a connection."""

from __future__ import annotations

from typing import Any, Protocol

import httpx


class Subscription(Protocol):
    """Items of one streaming operation. Leave its `with` block to end it on the host."""

    def get(self, timeout: float) -> Any:
        """The next item, or None when none came within `timeout` seconds.

        Raises:
            HostProgramError: the operation failed on the host.
            Unreachable: the connection is gone.
        """

    def __enter__(self) -> Subscription: ...

    def __exit__(self, *exc: object) -> None: ...


class Remote(Protocol):
    """A host in conversation. Closing it frees what the host program held for it."""

    @property
    def where(self) -> str:
        """How a person names this connection, such as ``root@10.1.2.200``."""

    def call(self, op: str, *, timeout: float = 60.0, **params: Any) -> Any:
        """Run one operation of `opsctl.hostside.operations` and return its result.

        Raises:
            OpsctlError: the operation refused or failed, as the error tree says.
            Unreachable: no answer within `timeout` seconds, or the connection is gone.
        """

    def stream(self, op: str, **params: Any) -> Subscription: ...

    def keep_alive(self, every: float, patience: float) -> None:
        """Tell the host each `every` seconds that this side lives. After `patience` seconds of
        silence the host program ends, and frees its lock: a half-open connection never would."""

    def http(self) -> httpx.BaseTransport:
        """A transport whose connections start on the remote host."""

    def close(self) -> None: ...
