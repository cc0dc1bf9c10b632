"""journalctl's command lines and answers, with a stand-in for journalctl."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostside_tools import put_tool

from opsctl.errors import UsageError
from opsctl.hostside import journal
from opsctl.hostside.errors import HostFault
from opsctl.transport import local

pytest_plugins = ["hostside_fixtures"]


def journalctl(tools: Path, script: str) -> Path:
    put_tool(tools, "journalctl", f'echo "$@" > {tools}/asked\n{script}')
    return tools / "asked"


def test_the_scope_of_one_start_has_systemds_own_lines() -> None:
    assert journal.scope("s.service", "i1") == [
        "_SYSTEMD_INVOCATION_ID=i1",
        "+",
        "INVOCATION_ID=i1",
    ]
    assert journal.scope("s.service", None) == journal.scope("s.service", "")
    assert journal.scope("s.service", None) == ["--unit=s.service"]


def test_a_query(tools: Path) -> None:
    asked = journalctl(tools, 'echo \'{"MESSAGE": "b"}\'; echo \'{"MESSAGE": "a"}\'; echo "-- --"')
    found = journal.query("s.service", lines=7, grep="x y", since=1700000000.5)
    assert found == [{"MESSAGE": "a"}, {"MESSAGE": "b"}], "oldest first, as without --grep"
    words = asked.read_text()
    assert "--lines=7 --since=@1700000000.500000 --grep=x y --reverse --unit=s.service" in words
    assert "--output=json" in words


def test_no_match_is_no_failure(tools: Path) -> None:
    journalctl(tools, "exit 1")
    assert journal.query("s.service", grep="x") == []


def test_a_journal_that_cannot_be_read(tools: Path) -> None:
    journalctl(tools, "echo 'Failed to seek: Bad message' >&2; exit 1")
    with pytest.raises(HostFault, match="Failed to seek") as caught:
        journal.query("s.service")
    assert caught.value.code == "journal_failed"


def test_a_pattern_that_is_none(tools: Path) -> None:
    """What journalctl of systemd 252 says; the command line is wrong, not the host."""
    said = 'Bad pattern "[": missing terminating ] for character class'
    journalctl(tools, f"echo '{said}' >&2; exit 1")
    with local() as remote, pytest.raises(UsageError) as caught:
        remote.call("journal", unit="s.service", grep="[")
    assert caught.value.code == "bad_pattern"
    assert caught.value.message == (
        "'[' is not a regular expression: missing terminating ] for character class"
    )
    assert caught.value.remedy
    with pytest.raises(HostFault) as refused:
        journal.query("s.service")
    assert refused.value.code == "journal_failed", "no pattern was given"


def test_a_follower_waits_for_the_rest_of_a_line(tools: Path) -> None:
    journalctl(
        tools,
        'printf \'{"MESSAGE": "a"}\\n{"MESS\'; sleep 0.2; printf \'AGE": "b"}\\n\'; exec sleep 30',
    )
    follower = journal.Follower("s.service", "i1")
    try:
        assert follower.read(20) == [{"MESSAGE": "a"}]
        assert follower.read(20) == [{"MESSAGE": "b"}]
        assert follower.read(0.01) == []
    finally:
        follower.close()


def test_a_follower_outlives_journalctl(tools: Path) -> None:
    journalctl(tools, "exit 0")
    follower = journal.Follower("s.service", "i1")
    assert follower.read(0.05) == []
    assert follower.read(0.05) == []
    follower.close()
