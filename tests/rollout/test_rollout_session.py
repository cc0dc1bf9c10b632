"""The session: one connection made when needed, and what each operation is told."""

from __future__ import annotations

import contextlib
import getpass
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, cast

import httpx
import pytest
from rollout_tools import SERVICE, facts

from opsctl.errors import EXIT_USAGE, Unreachable, UsageError
from opsctl.events import Event
from opsctl.inventory import Host, SecretRef, Ssh
from opsctl.rollout import session as module
from opsctl.rollout.session import Session, whoami
from opsctl.transport import Remote

KEY = "sk-do-not-print-me"


class FakeRemote:
    where = "nowhere"
    guard: ClassVar[Any] = {"terms": None, "report": None}
    guards = 0

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.requests: list[httpx.Request] = []

    def call(self, op: str, **params: Any) -> Any:
        if op == "lock_state":  # asked by itself at each connect
            self.guards += 1
            if isinstance(self.guard, Exception):
                raise self.guard
            return self.guard
        self.calls.append((op, params))
        return facts()["unit"] if op.startswith("unit_") else [] if op == "journal" else {}

    def http(self) -> httpx.BaseTransport:
        def answer(request: httpx.Request) -> httpx.Response:
            self.requests.append(request)
            return httpx.Response(200, json={"data": [{"id": "tiny"}]})

        return httpx.MockTransport(answer)


class Connector:
    """Makes a remote at each connect, after so many refusals."""

    def __init__(self, refusals: int = 0) -> None:
        self.refusals = refusals
        self.remotes: list[FakeRemote] = []
        self.open = 0

    @contextlib.contextmanager
    def __call__(self) -> Iterator[Remote]:
        if self.refusals:
            self.refusals -= 1
            raise Unreachable("no route to host")
        self.remotes.append(FakeRemote())
        self.open += 1
        try:
            yield cast(Remote, self.remotes[-1])
        finally:
            self.open -= 1


def session(connect: Connector, **differs: Any) -> Session:
    host = Host(ssh=Ssh(address="a"), services={"serve": SERVICE})
    return Session(host, host.services["serve"].model_copy(update=differs), connect)


def test_the_connection_is_made_at_its_first_use() -> None:
    connect = Connector()
    found = session(connect)
    assert connect.remotes == []
    found.call("generations")
    found.call("generations")
    assert (len(connect.remotes), connect.open) == (1, 1)
    found.close()
    assert connect.open == 0
    found.close()


def test_what_the_host_program_is_told() -> None:
    connect = Connector()
    found = session(connect)
    found.inspect(audit=True)
    found.unit()
    found.control("stop")
    found.journal("i1", lines=5, grep="x")
    (inspect, unit, control, journal) = connect.remotes[0].calls
    assert inspect[1]["site"] == {
        "service": "serve",
        "unit": "serve.service",
        "python": "/opt/venv/bin/python",
        "distribution": "sglang",
        "package": "sglang",
        "listen": "0.0.0.0",
        "port": 30001,
        "state_dir": "/var/lib/opsctl",
    }
    assert inspect[1]["audit"] is True
    assert unit == ("unit_state", {"unit": "serve.service"})
    assert (control[0], control[1]["site"]["unit"]) == ("unit_control", "serve.service")
    assert (control[1]["verb"], "@" in control[1]["who"]) == ("stop", True)
    assert (journal[1]["invocation"], journal[1]["lines"], journal[1]["grep"]) == ("i1", 5, "x")


def test_a_starts_journal_and_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "entries": [{"MESSAGE": "Suppressed 3 messages from s.service"}, {"MESSAGE": "b"}],
        "facts": {"started": 100.0, "begins": 160.0, "suppressed": []},
        "left_out": True,
        "report": None,  # for the question at the connect
    }
    monkeypatch.setattr(FakeRemote, "call", lambda self, op, **given: said)
    found = session(Connector()).read("i1")
    assert [entry.message for entry in found.entries][1:] == ["b"]
    assert (found.invocation, found.left_out) == ("i1", True)
    assert [(gap.kind, gap.count) for gap in found.gaps] == [("rotated", None), ("suppressed", 3)]


@pytest.mark.parametrize(("answer", "message"), [({"MESSAGE": "a"}, "a"), (None, None)])
def test_the_first_entry_that_matches(
    monkeypatch: pytest.MonkeyPatch, answer: Any, message: str | None
) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def call(self: FakeRemote, op: str, **given: Any) -> Any:
        asked.append((op, given))
        return answer if op == "journal_first" else self.guard

    monkeypatch.setattr(FakeRemote, "call", call)
    found = session(Connector()).first("i1", "x")
    assert (found and found.message) == message
    op, given = asked[-1]
    assert (op, given["invocation"], given["grep"]) == ("journal_first", "i1", "x")


def test_a_lost_connection_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    connect = Connector()
    found = session(connect)
    found.call("generations")
    connect.refusals = 3
    found.reconnect()
    assert (len(connect.remotes), connect.open) == (2, 1)
    connect.refusals = 10**9
    monkeypatch.setattr(module, "RECONNECT_FOR", 0.0)
    with pytest.raises(Unreachable, match="no route to host"):
        found.reconnect()


REPORT = {
    "why": "its client was lost",
    "token": "theirs",
    "who": "ann@laptop",
    "command": "deploy",
    "to": 3,
    "at": 0.0,
    "serving": True,
    "healthy": True,
    "error": "",
    "seconds": 12.3,
}


def test_what_the_guard_did_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeRemote, "guard", {"terms": None, "report": REPORT})
    events: list[Event] = []
    found = session(Connector())
    found.emit = events.append
    found.call("generations")
    found.call("generations")
    assert [(e.step, e.state) for e in events] == [("guard", "warn")]
    assert "made sure of generation 3, as the deploy by ann@laptop was lost" in events[0].message
    found.close()
    found.call("generations")
    assert len(events) == 1, "not again on a new connection"
    found.close()
    monkeypatch.setattr(FakeRemote, "guard", {"terms": None, "report": REPORT | {"at": 9.0}})
    found.call("generations")
    assert len(events) == 2
    found.close()
    monkeypatch.setattr(FakeRemote, "guard", {"terms": None, "report": REPORT | {"at": 19.0}})
    found.token = "theirs"  # our own rollout's: the engine tells of it
    found.call("generations")
    assert len(events) == 2


def test_no_word_of_the_guard_hinders_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeRemote, "guard", Unreachable("lost"))
    connect = Connector()
    session(connect).call("generations")
    assert connect.remotes[0].guards == 1
    assert connect.remotes[0].calls[0][0] == "generations"


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:30001/v1/models"),
        ("10.0.0.5", "http://10.0.0.5:30001/v1/models"),
        ("fd00::5", "http://[fd00::5]:30001/v1/models"),
    ],
)
def test_requests_go_through_the_connection(
    monkeypatch: pytest.MonkeyPatch, listen: str, url: str
) -> None:
    monkeypatch.setenv("SERVE_KEY", KEY)
    connect = Connector()
    found = session(connect, listen=listen, api_key=SecretRef(env="SERVE_KEY"))
    with found.client() as client:
        assert client.models() == ("tiny",)
    request = connect.remotes[0].requests[0]
    assert str(request.url) == url
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in repr(found) + repr(client)


def test_an_endpoint_of_its_own_needs_no_connection() -> None:
    connect = Connector()
    with session(connect, endpoint="http://gateway:8080").client():
        pass
    assert connect.remotes == []


def test_a_key_that_is_not_there_is_named_by_its_reference(tmp_path: Path) -> None:
    found = session(Connector(), api_key=SecretRef(file=tmp_path / "gone"))
    with pytest.raises(UsageError) as caught, found.client():
        pass
    assert caught.value.exit_code == EXIT_USAGE
    assert caught.value.code == "secret_missing"
    assert str(tmp_path / "gone") in caught.value.message


@pytest.mark.parametrize(
    ("variables", "user"),
    [
        ({"GITHUB_ACTOR": "octo"}, "octo"),
        ({"GITLAB_USER_LOGIN": "tanuki"}, "tanuki"),
        ({}, "tester"),
    ],
)
def test_who_deploys(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], user: str) -> None:
    for name in ("GITHUB_ACTOR", "GITLAB_USER_LOGIN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(getpass, "getuser", lambda: "tester")
    assert whoami().partition("@")[0] == user


def test_a_uid_without_a_name_deploys_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_ACTOR", "GITLAB_USER_LOGIN"):
        monkeypatch.delenv(name, raising=False)

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert whoami().partition("@")[0].isdigit()
