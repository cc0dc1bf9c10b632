"""A planted API key, and every place where it must not turn up."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
from hostside_tools import Environment, put_tool
from typer.testing import CliRunner

from opsctl import inventory
from opsctl.cli import context
from opsctl.cli.app import app
from opsctl.events import Event
from opsctl.inventory import Host, Service
from opsctl.rollout.session import Connect, Session
from opsctl.sglang import ServerError
from opsctl.transport import local
from opsctl.transport.local import _ProcessPipe

pytest_plugins = ["hostside_fixtures"]

KEY = "sk-planted-5f3a9c"


class Chatty(BaseHTTPRequestHandler):
    """A server that fails and repeats what it was sent, as debug pages do."""

    seen: list[str] = []  # noqa: RUF012 - the handler is made anew for each request

    def do_GET(self) -> None:
        sent = str(self.headers["Authorization"])
        self.seen.append(sent)
        body = f"no such model; you sent Authorization: {sent}\n".encode()
        self.send_response(500, f"failed for {sent}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - the base class's name

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    found = ThreadingHTTPServer(("127.0.0.1", 0), Chatty)
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    Chatty.seen.clear()
    yield found
    found.shutdown()
    found.server_close()
    thread.join()


@pytest.fixture
def book(
    env: Environment, tools: Path, server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """An inventory of this machine as the host; the unit runs, the journal is empty."""
    (env.root / "key").write_text(KEY + "\n")
    (env.root / "unit").write_text(
        "LoadState=loaded\nActiveState=active\nSubState=running\nInvocationID=i1\nMainPID=1\n"
        f"Environment=SGLANG_API_KEY={KEY}\n"
        f"ExecStart={{ path=/p ; argv[]=/p -m sglang --api-key {KEY} ; ignore_errors=no }}\n"
    )
    entry = {"MESSAGE": f"server_args=ServerArgs(api_key='{KEY}')", "__REALTIME_TIMESTAMP": "1"}
    put_tool(tools, "journalctl", f"cat <<'E'\n{json.dumps(entry)}\nE\n")
    path = env.root / "inventory.yaml"
    path.write_text(
        f"""\
version: 1
hosts:
  alpha:
    ssh: {{address: 192.0.2.1}}
    services:
      serve:
        unit: serve.service
        python: {env.python}
        distribution: demo-dist
        port: {server.server_port}
        endpoint: http://127.0.0.1:{server.server_port}
        model: {{path: /m, served_name: m}}
        api_key: {{file: {env.root / "key"}}}
        state_dir: {env.root / "state"}
        load: {{budget: 2s, stall: 2s}}
        smoke: {{timeout: 2s}}
"""
    )
    monkeypatch.setenv("OPSCTL_INVENTORY", str(path))
    monkeypatch.setattr(context, "_way_in", lambda host, service: (local, service))
    return path


COMMANDS = [
    ["status"],
    ["doctor"],
    ["smoke"],
    ["metrics"],
    ["triage"],
    ["logs", "--all-starts"],
    ["wait", "--budget", "2s"],
    ["plan", "--patch-set", "fix"],
    ["deploy", "--patch-set", "fix", "--yes"],
]


@pytest.mark.parametrize("argv", COMMANDS, ids=lambda argv: argv[0])
@pytest.mark.parametrize("form", ["--json", "--debug"])
def test_no_output_holds_the_key(argv: list[str], form: str, book: Path) -> None:
    line = [form, *argv] if form == "--debug" else [*argv, form]
    shown = CliRunner().invoke(app, line)
    assert shown.output
    assert KEY not in shown.output
    assert KEY not in repr(shown.exception)


def test_the_key_goes_to_the_server_and_nowhere_else(
    book: Path, env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not into a frame to the host program, its command line, its environment, or its state."""
    frames: list[bytes] = []
    send = _ProcessPipe.send

    def record(self: _ProcessPipe, data: bytes) -> None:
        frames.append(data)
        send(self, data)

    monkeypatch.setattr(_ProcessPipe, "send", record)
    host, service = inventory.select(inventory.load(book))
    assert isinstance(host, Host)
    assert isinstance(service, Service)
    events: list[Event] = []
    session = Session(host=host, service=service, connect=cast(Connect, local), emit=events.append)
    try:
        session.inspect()
        session.lock("because")
        with session.client() as client, pytest.raises(ServerError) as caught:
            client.models()
        assert f"Bearer {KEY}" in Chatty.seen, "it is used"
        process = session.remote._pipe._process  # type: ignore[attr-defined]
        proc = Path(f"/proc/{process.pid}")
        for name in ("cmdline", "environ"):
            assert KEY.encode() not in (proc / name).read_bytes()
    finally:
        session.close()
    assert KEY not in str(caught.value)
    assert KEY not in repr(caught.value.__dict__)
    assert KEY.encode() not in b"".join(frames)
    assert KEY not in repr((events, session, service, host))
    for path in (env.root / "state").rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
