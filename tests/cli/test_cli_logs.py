"""What of the journal `opsctl logs` shows."""

from __future__ import annotations

import pytest

from opsctl.cli import host
from opsctl.journal import Entry

ENTRY = Entry(realtime=0.0, message="server_args=ServerArgs(api_key='sk-1', tp_size=8)")


def test_the_servers_api_key_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    host._print([ENTRY])
    shown = capsys.readouterr().out + str(host._entry(ENTRY))
    assert "sk-1" not in shown
    assert shown.count("tp_size=8") == 2
