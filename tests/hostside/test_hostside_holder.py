"""Ending who holds the lock: the one who does, whatever the record of the lock says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hostside_tools import Environment

from opsctl.errors import LockHeld
from opsctl.hostside.holder import end_holder
from opsctl.hostside.state import lock_holder
from opsctl.transport import local

pytest_plugins = ["hostside_fixtures"]

# Opens the lock, takes it as its first argument says, and waits.
HOLD = """
import fcntl, sys, time
f = open(sys.argv[1], "r+")
fcntl.flock(f, getattr(fcntl, sys.argv[2]))
print("ready", flush=True)
time.sleep(600)
"""

Hold = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def hold(env: Environment) -> Iterator[Hold]:
    """Start a process that has the lock's file open: with the lock, or only to look."""
    env.state.prepare()
    path = Path(env.state.path("lock"))
    path.touch()
    made = []

    def start(kind: str = "LOCK_EX") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(path), kind], stdout=subprocess.PIPE, text=True
        )
        made.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in made:
        process.kill()
        process.communicate()


def record(env: Environment, text: str) -> None:
    Path(env.state.path("lock")).write_text(text)


def of(process: subprocess.Popen[str], **more: Any) -> str:
    return json.dumps({"who": "ann@laptop", "why": "a deploy", "pid": process.pid, **more})


def release(env: Environment) -> Any:
    with local() as remote:
        return remote.call("release_lock", site=env.site, who="bob")


@pytest.mark.parametrize("text", ["of an old opsctl", "damaged"])
def test_a_holder_without_a_token_is_ended(env: Environment, hold: Hold, text: str) -> None:
    looking = hold("LOCK_UN")
    holder = hold()
    record(env, of(holder) if text == "of an old opsctl" else '{"who": "ann@lap')
    assert release(env)["who"] == ("ann@laptop" if text == "of an old opsctl" else "somebody")
    assert holder.wait(10) == -9
    assert lock_holder(env.state) is None
    assert looking.poll() is None, "it only has the file open"


@pytest.mark.parametrize("more", [{}, {"token": "t"}])
def test_a_pid_that_does_not_hold_the_lock_is_left_alone(
    env: Environment, hold: Hold, more: dict[str, str]
) -> None:
    """The recorded process is gone, and its number is another's by now."""
    holder, other = hold(), hold("LOCK_UN")
    record(env, of(other, **more))
    with pytest.raises(LockHeld, match="could not be ended") as caught:
        release(env)
    assert f"fuser -v {env.state.path('lock')}" in caught.value.remedy
    assert (holder.poll(), other.poll()) == (None, None)


def test_another_token_is_anothers(env: Environment, hold: Hold) -> None:
    holder = hold()
    record(env, of(holder, token="theirs"))
    end_holder(env.state, "mine", patience=0.3)
    end_holder(env.state, None, patience=0.3)
    assert holder.poll() is None
