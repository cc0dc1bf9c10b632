"""journalctl's command lines and answers, with a stand-in for journalctl."""

from __future__ import annotations

import json
import time
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


def test_a_follower_goes_on_after_a_cursor(tools: Path) -> None:
    asked = journalctl(tools, "exec sleep 30")
    for after in ("", "s=1;i=2"):
        follower = journal.Follower("s.service", "i1", after)
        deadline = time.monotonic() + 20
        while not (asked.exists() and asked.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        follower.close()
        words = asked.read_text()
        asked.unlink()
        assert "--follow --lines=all" in words
        assert ("--after-cursor=s=1;i=2" in words) == bool(after)


def test_a_follower_outlives_journalctl(tools: Path) -> None:
    journalctl(tools, "exit 0")
    follower = journal.Follower("s.service", "i1")
    assert follower.read(0.05) == []
    assert follower.read(0.05) == []
    follower.close()


SHOWN = "InvocationID=i1\nExecMainStartTimestampMonotonic=%d\n"
HEAD = '{"MESSAGE": "Started", "__REALTIME_TIMESTAMP": "1700000000500000"}'
DROPPED = (
    '{"MESSAGE": "Suppressed 12 messages from s.service", "_TRANSPORT": "driver",'
    ' "__REALTIME_TIMESTAMP": "1700000007000000"}'
)


def host(tools: Path, said: str, ticks: int = 0) -> Path:
    """A journal of one start, and what journald says of itself."""
    put_tool(tools, "systemctl", f"cat <<'.'\n{SHOWN % ticks}.")
    return journalctl(
        tools,
        f'echo "$@" >> {tools}/every\ncase "$*" in\n*MESSAGE_ID=*) cat <<\'.\'\n{said}\n.\n;;\n'
        f"*) cat <<'.'\n{HEAD}\n.\nesac",
    )


def test_what_is_left_of_a_start_and_what_was_dropped(tools: Path) -> None:
    ticks = int((time.monotonic() - 60) * 1e6)
    host(tools, DROPPED, ticks)
    found = journal.read("s.service", "i1", lines=5)
    assert [entry["MESSAGE"] for entry in found["entries"]] == ["Started"]
    facts = found["facts"]
    assert facts["begins"] == 1700000000.5
    assert facts["suppressed"] == [{"time": 1700000007.0, "count": 12}]
    assert facts["started"] == pytest.approx(time.time() - 60, abs=5)
    asked = (tools / "every").read_text()
    assert "--since=@1700000000.500000 MESSAGE_ID=a596d6fe7bfa4994828e72309e95d61e" in asked


def test_of_a_long_start_the_lines_that_tell_come_along(tools: Path) -> None:
    entries = [json.dumps({"__CURSOR": name, "MESSAGE": name}) for name in "abcde"]
    lines = "\\n".join
    journalctl(
        tools,
        f"""case "$*" in
*--grep=error*) printf '{lines(entries[i] for i in (3, 1, 0))}\\n' ;;
*MESSAGE_ID=*) ;;
*--lines=*) printf '{lines(entries[2:])}\\n' ;;
esac""",
    )
    found = journal.read("s.service", "i1", lines=3, telling="error")
    assert [entry["MESSAGE"] for entry in found["entries"]] == list("abcde"), "each once, in order"
    assert found["left_out"] is True
    whole = journal.read("s.service", "i1", lines=4, telling="error")
    assert [entry["MESSAGE"] for entry in whole["entries"]] == list("cde")
    assert whole["left_out"] is False


@pytest.mark.parametrize(
    "said",
    [
        DROPPED.replace("s.service", "other.service"),
        DROPPED.replace("driver", "stdout"),
        DROPPED.replace('"Suppressed', '"Forwarded'),
        "",
    ],
)
def test_only_journald_itself_speaks_of_drops(tools: Path, said: str) -> None:
    host(tools, said)
    assert journal.facts("s.service", "i1")["suppressed"] == []


def test_the_start_of_an_earlier_invocation_is_not_known(tools: Path) -> None:
    host(tools, "", ticks=5)
    assert journal.facts("s.service", "i0")["started"] is None
    assert journal.facts("s.service", "i1")["started"] is not None
    host(tools, "", ticks=0)
    assert journal.facts("s.service", "i1")["started"] is None, "it never ran"


def test_a_start_of_which_nothing_is_left(tools: Path) -> None:
    put_tool(tools, "systemctl", "exit 0")
    journalctl(tools, "exit 1")
    assert journal.facts("s.service", "i1") == {"started": None, "begins": None, "suppressed": []}


def test_the_first_match_is_not_waited_for(tools: Path) -> None:
    asked = journalctl(tools, 'echo \'{"MESSAGE": "ready"}\'; exec sleep 300')
    began = time.monotonic()
    assert journal.first("s.service", "i1", grep="ready") == {"MESSAGE": "ready"}
    assert time.monotonic() - began < 60
    assert "--lines" not in asked.read_text(), "it would read from the end"
    assert "--grep=ready _SYSTEMD_INVOCATION_ID=i1" in asked.read_text()


def test_the_first_match_leaves_journalctls_buffer_at_once(tools: Path) -> None:
    # grep's standard output is fully buffered into a pipe, as journalctl's is.
    journalctl(tools, "(echo '{}'; exec sleep 60) | grep .")
    began = time.monotonic()
    assert journal.first("s.service", "i1") == {}
    assert time.monotonic() - began < 45


def test_a_line_separator_in_a_message_ends_no_line(tools: Path) -> None:
    journalctl(tools, 'printf \'{"MESSAGE": "a\\342\\200\\250b"}\\n\'')
    assert journal.query("s.service") == [{"MESSAGE": "a\u2028b"}]
