"""Fixtures of the guard's tests, for `pytest_plugins` (see hostside_fixtures)."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from guard_tools import Answering, Host
from hostside_tools import Environment

from opsctl.hostside import guardian


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture
def host(env: Environment, tools: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Host:
    for name in ("_POLL", "_RETRY", "_GRACE"):
        monkeypatch.setattr(guardian, name, 0.02)
    return Host(env, port)
