"""Fixtures of this folder, for `pytest_plugins`: mypy knows only one module called conftest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hostside_tools import Environment, put_tool

from opsctl.hostside import exchange


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    monkeypatch.setattr(exchange, "LOCKS", str(tmp_path / "locks"))
    return Environment(tmp_path)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that comes first on PATH, with a systemctl that shows the file `unit` and
    writes what it is told to the file `told`."""
    folder = tmp_path / "bin"
    (tmp_path / "unit").write_text("ActiveState=inactive\nInvocationID=\nControlGroup=\n")
    put_tool(
        folder,
        "systemctl",
        f"""\
case "$1" in
  --version) echo "systemd 252 (252.39-1~deb12u1)"; exit ;;
  show) cat {tmp_path}/unit ;;
esac
echo "$@" >> {tmp_path}/told
""",
    )
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder
