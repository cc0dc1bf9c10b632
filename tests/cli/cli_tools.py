"""opsctl run within the test, against an inventory of one host that nothing connects to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from opsctl.cli import context
from opsctl.cli.app import app

INVENTORY = """\
version: 1
hosts:
  alpha:
    ssh: {address: 192.0.2.1}
    services:
      serve:
        {unit: s.service, python: /p, port: 1, model: {path: /m, served_name: m}, patch_set: ddtree}
"""


@contextmanager
def nobody() -> Iterator[None]:
    """The connection of these tests, which is never used."""
    yield


def invoker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs opsctl with the words that it is given."""
    path = tmp_path / "inventory.yaml"
    path.write_text(INVENTORY)
    monkeypatch.setenv("OPSCTL_INVENTORY", str(path))
    monkeypatch.delenv("OPSCTL_HOST", raising=False)
    monkeypatch.setattr(context, "_way_in", lambda host, service: (nobody, service))
    return lambda *argv: CliRunner().invoke(app, list(argv))
