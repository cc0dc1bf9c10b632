"""`opsctl lock` against the host program: held while a command runs, ended, waited for."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hostside_tools import Environment

from opsctl.errors import LockHeld, Refused, UsageError
from opsctl.events import Event
from opsctl.hostside import guard
from opsctl.hostside.guardian import WHO
from opsctl.inventory import Host, Service, Ssh
from opsctl.rollout import locking
from opsctl.rollout.run import Options
from opsctl.rollout.session import Connect, Session
from opsctl.transport import local

pytest_plugins = ["hostside_fixtures"]

TERMS = {"command": "deploy", "who": "ann@laptop", "armed": 0.0, "to": 3, "token": "t"}


@pytest.fixture
def sessions(env: Environment) -> Iterator[Callable[[], Session]]:
    service = Service.model_validate(
        {
            "unit": "serve.service",
            "python": str(env.python),
            "port": 1,
            "state_dir": str(env.root / "state"),
            "model": {"path": "/m", "served_name": "tiny"},
        }
    )
    made: list[Session] = []

    def make() -> Session:
        host = Host(ssh=Ssh(address="a"), services={"serve": service})
        host._name = "alpha"
        events: list[Event] = []
        session = Session(host, service_of(host), cast(Connect, local), emit=events.append)
        made.append(session)
        return session

    def service_of(host: Host) -> Service:
        return host.services["serve"]

    yield make
    for session in made:
        session.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locking, "_LOOK_EVERY", 0.2)


def arm(env: Environment, **changes: Any) -> None:
    env.state.prepare()
    Path(env.state.path(guard.TERMS)).write_text(json.dumps({**TERMS, **changes}))


def test_a_command_runs_under_the_lock(
    env: Environment, sessions: Callable[[], Session], tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    lock = env.state.path("lock")
    code = f"import sys; open({str(seen)!r}, 'w').write(open({lock!r}).read()); sys.exit(7)"
    argv = [sys.executable, "-c", code]
    report = locking.take(sessions(), Options(why="a backup"), argv, quiet=True)
    assert (report.exit_code, report.verdict, report.data["status"]) == (7, "fail", 7)
    assert json.loads(seen.read_text())["why"] == "a backup"
    assert sessions().lock_state()["holder"] is None
    report = locking.take(sessions(), Options(), ["true"], quiet=True)
    assert (report.exit_code, report.verdict) == (0, "pass")
    with pytest.raises(UsageError):
        locking.take(sessions(), Options(), ["/no/such/command"], quiet=True)


def test_a_command_that_a_signal_ended(sessions: Callable[[], Session]) -> None:
    report = locking.take(sessions(), Options(), ["sh", "-c", "kill -9 $$"], quiet=True)
    assert report.exit_code == 137


def test_it_shows_ends_and_tells_the_holder(
    env: Environment, sessions: Callable[[], Session]
) -> None:
    holder, other = sessions(), sessions()
    assert locking.show(other).summary == "nobody holds the lock"
    assert locking.release(other, other.lock_state()).summary.startswith("nothing to do")
    holder.lock("a long job")
    shown = locking.show(other)
    assert "holds the lock" in shown.summary
    assert "a long job" in shown.summary
    assert shown.data["holder"]["pid"]
    with pytest.raises(LockHeld) as caught:
        locking.take(other, Options(), quiet=True)
    assert re.search(r"holds the lock.*, since \d\d:\d\d:\d\d \(\ds ago\)", caught.value.message)
    assert "--lock-wait 10m" in caught.value.remedy
    assert "opsctl lock show alpha" in caught.value.remedy
    arm(env)
    assert "the guard on the host is armed" in locking.show(other).summary
    report = locking.release(other, other.lock_state())
    assert "the guard on the host now acts" in report.summary
    assert "the lock is free: ended was " in report.summary
    assert report.summary.count("a long job") == 1
    assert report.exit_code == 0
    assert other.lock_state()["holder"] is None
    shown = locking.show(other)
    assert "has lost its client; the guard puts generation 3 back" in shown.summary
    assert "opsctl confirm alpha" in shown.summary


def test_the_guards_own_lock_is_not_ended(
    env: Environment, sessions: Callable[[], Session]
) -> None:
    holder, other = sessions(), sessions()
    holder.token = WHO
    holder.lock("a rollout was lost")
    arm(env)
    now = other.lock_state()
    assert now["by_guard"]
    with pytest.raises(LockHeld, match="the guard is putting generation 3 back") as held:
        other.lock("a deploy")
    assert held.value.remedy.startswith("wait")
    with pytest.raises(Refused) as caught:
        locking.release(other, now)
    assert caught.value.code == "guard_at_work"


def test_a_holder_that_was_ended_says_so(sessions: Callable[[], Session]) -> None:
    holder, other = sessions(), sessions()

    def end() -> None:
        deadline = time.monotonic() + 20
        while other.lock_state()["holder"] is None and time.monotonic() < deadline:
            time.sleep(0.05)
        other.call("release_lock", who="bob")

    thread = threading.Thread(target=end)
    thread.start()
    report = locking.take(holder, Options(), quiet=True)
    thread.join()
    assert (report.exit_code, report.reasons[0].code) == (5, "lock_lost")


def test_waiting_for_a_rollout_and_for_the_guard(
    env: Environment, sessions: Callable[[], Session]
) -> None:
    holder, waiting = sessions(), sessions()
    assert locking.settle(waiting, Options()).lock_wait == 0
    holder.lock("a deploy")
    began = time.monotonic()
    told: list[Event] = []
    waiting.emit = told.append
    with pytest.raises(LockHeld, match="a deploy; waited 2s for it and gave up"):
        locking.settle(waiting, Options(lock_wait=2.2))
    assert time.monotonic() - began >= 2.2
    assert len(told) == 1, "once a holder, not once a look"
    arm(env)
    threading.Timer(0.5, lambda: holder.remote.call("unlock")).start()
    threading.Timer(1.5, Path(env.state.path(guard.TERMS)).unlink).start()
    began = time.monotonic()
    left = locking.settle(waiting, Options(lock_wait=30))
    assert time.monotonic() - began > 1.0
    assert 20 < left.lock_wait < 30
    arm(env)
    assert locking.settle(waiting, Options(lock_wait=30), guard=False).lock_wait > 29


def test_a_lost_rollout_is_ended_before_the_lock_is_for_the_taking(
    env: Environment, sessions: Callable[[], Session]
) -> None:
    """Its guard waits for the lock, and would wait for as long as somebody holds it by hand."""
    arm(env)
    taking = sessions()
    with pytest.raises(LockHeld) as caught:
        locking.take(taking, Options(), ["true"], quiet=True)
    assert caught.value.code == "guard_pending"
    assert taking.lock_state()["holder"] is None
    # Its holder is lost while somebody waits for it: then the guard has the next word.
    holder = sessions()
    holder.lock("a deploy")
    threading.Timer(0.5, holder.close).start()
    threading.Timer(2.5, Path(env.state.path(guard.TERMS)).unlink).start()
    began = time.monotonic()
    assert locking.take(taking, Options(lock_wait=30), ["true"], quiet=True).exit_code == 0
    assert time.monotonic() - began >= 2.5
