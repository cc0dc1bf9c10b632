"""A webhook's receiver on this machine's loopback, that answers as it is told to."""

from __future__ import annotations

import contextlib
import datetime
import http.server
import ipaddress
import json
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

SECRET = "T0PLANTED/B0/x7s3cr3t"


@dataclass
class Answer:
    """One answer. `hang` seconds pass before it; `close` ends the connection in its place, and
    `drip` makes it one byte a second."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hang: float = 0.0
    close: bool = False
    drip: bool = False


@dataclass(frozen=True)
class Received:
    at: float  # monotonic, seconds
    path: str
    agent: str
    body: dict[str, Any]


class Receiver:
    """Running from when it is made. `answers` are used up one by one; after them all is well."""

    def __init__(self, *answers: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.answers = list(answers)
        self.received: list[Received] = []
        self._over = threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.port = self._server.server_port
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._scheme = "https" if tls else "http"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}/services/{SECRET}"

    @property
    def events(self) -> list[str]:
        """Of the generic form, in the order of their arrival."""
        return [each.body["event"] for each in self.received]

    def await_event(self, event: str, timeout: float = 30.0) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for each in self.received:
                if each.body.get("event") == event:
                    return each.body
            time.sleep(0.05)
        raise AssertionError(f"no {event}, but {self.events}")

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                agent = str(self.headers["User-Agent"])
                got = Received(time.monotonic(), self.path, agent, json.loads(content))
                receiver.received.append(got)
                answer = receiver.answers.pop(0) if receiver.answers else Answer()
                receiver._over.wait(answer.hang)
                if answer.close:
                    self.close_connection = True
                    return
                with contextlib.suppress(OSError):
                    self._answer(answer)

            def _answer(self, answer: Answer) -> None:
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                while answer.drip and not receiver._over.wait(0.2):
                    self.wfile.write(b"X")
                    self.wfile.flush()
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

            def handle(self) -> None:
                # A client that gives up, in the middle of a handshake too, is what is tested.
                with contextlib.suppress(OSError):
                    super().handle()

        return Handler


@contextlib.contextmanager
def receiver(*answers: Answer, tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    found = Receiver(*answers, tls=tls)
    try:
        yield found
    finally:
        found.close()


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, Path]:
    """A server's context with a certificate of its own making for `name`, and that certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "opsctl's test")])
    now = datetime.datetime.now(datetime.UTC)
    try:
        alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        alternative = x509.DNSName(name)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path, key_path = folder / "certificate.pem", folder / "key.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, key_path)
    return context, path
