"""A TCP proxy between opsctl and the lab's sshd that can do what networks do."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading


class _Pair:
    """One connection. What is read while a direction is frozen is lost, as behind a dead NAT."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.frozen = {"up": False, "down": False}
        for source, sink, way in ((client, server, "up"), (server, client, "down")):
            threading.Thread(target=self._pump, args=(source, sink, way), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not self.frozen[way]:
                    sink.sendall(data)
            if not self.frozen[way]:  # an end that nobody hears of
                sink.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """An RST to both ends."""
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):  # it is over already
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RD)  # wakes the pump, which still holds it
            end.close()


class Proxy:
    """Listens on a port of its own; `freeze` and `reset` act on the connections of the moment."""

    def __init__(self, address: str, port: int) -> None:
        self._target = (address, port)
        self._pairs: list[_Pair] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._target, timeout=5)
                except OSError:
                    client.close()
                    continue
                server.settimeout(None)
                self._pairs.append(_Pair(client, server))

    def freeze(self, *ways: str) -> None:
        """From now on lose what goes `up` (to the host), `down`, or both; new connections work."""
        for pair in self._pairs:
            for way in ways:
                pair.frozen[way] = True

    def reset(self) -> None:
        for pair in self._pairs:
            pair.reset()
        self._pairs.clear()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset()
