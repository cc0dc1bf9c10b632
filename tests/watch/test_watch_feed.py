"""The feed, against a host that is made up: connections that break, starts that change."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from watch_samples import entry, unit

from opsctl.errors import AuthFailed, Unreachable, UsageError
from opsctl.journal import Entry
from opsctl.rollout.session import StartJournal
from opsctl.sglang import Load, ServerError
from opsctl.units.properties import Unit
from opsctl.watch import feed as feeds
from opsctl.watch import heard
from opsctl.watch.asking import Endpoint
from opsctl.watch.feed import Feed


@dataclass
class Host:
    """A `Session`, as far as a feed uses it. `script` is what the stream gives on each
    connection; at its end the connection is lost."""

    script: list[list[Any]]
    units: list[Unit]
    journal: dict[str, list[Entry]]
    faults: list[Exception] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    emit: Any = None
    no_key: bool = True

    @property
    def remote(self) -> Any:
        if self.faults:
            raise self.faults.pop(0)
        self.connections += 1
        self.open += 1
        return SimpleNamespace(where="root@host")

    def keep_alive(self) -> None: ...

    def call(self, op: str) -> dict[str, Any]:
        assert op == "recorded", "nothing that changes anything"
        return {"generation": None, "loads": [], "lock": None}

    def unit(self) -> Unit:
        return self.units[min(self.connections, len(self.units)) - 1]

    def read(self, invocation: str, lines: int) -> StartJournal:
        return StartJournal(self.journal.get(invocation, []), invocation)

    @contextlib.contextmanager
    def watch(self, **how: Any) -> Iterator[Any]:
        self.after.append(how["after"])
        items = list(self.script[self.connections - 1]) if self.script else []

        def get(timeout: float) -> Any:
            if not items:
                raise Unreachable("the connection to the host was lost", code="connection_lost")
            item = items.pop(0)
            if item is None:
                time.sleep(0.05)
            return item

        yield SimpleNamespace(get=get)

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        if self.no_key:
            raise UsageError("the API key of serve: not set")
        yield None

    def close(self) -> None:
        self.open = 0


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[Any]]]:
    """Runs a feed until an event makes `until` true; everything that it said."""
    monkeypatch.setattr(feeds, "_RETRY", (0.01,))
    running: list[Feed] = []

    def go(host: Host, until: Callable[[list[Any]], bool]) -> list[Any]:
        said: queue.SimpleQueue[heard.Heard] = queue.SimpleQueue()
        feed = Feed("host", host, said.put)  # type: ignore[arg-type]
        running.append(feed)
        feed.start()
        found: list[Any] = []
        while not until(found):
            found.append(said.get(timeout=10).what)
        return found

    yield go
    for feed in running:
        feed.end()
        feed.join(5)


def sent(*entries: Entry) -> dict[str, Any]:
    return {
        "time": 0.0,
        "entries": [
            {
                "MESSAGE": each.message,
                "__CURSOR": each.cursor,
                "_SYSTEMD_INVOCATION_ID": each.invocation,
                "__REALTIME_TIMESTAMP": str(int(each.realtime * 1e6)),
            }
            for each in entries
        ],
    }


def kinds(found: list[Any]) -> list[str]:
    return [type(each).__name__ for each in found]


def messages(found: list[Any]) -> list[str]:
    return [e.message for each in found if isinstance(each, heard.Entries) for e in each.entries]


def test_first_what_was_there_and_then_what_is_new(run: Callable[..., list[Any]]) -> None:
    old, new = entry("old", 1.0), entry("new", 2.0)
    host = Host([[None, sent(new), None]], [unit()], {"aaaa1111": [old]})
    found = run(host, lambda said: "new" in messages(said))
    assert kinds(found) == [
        "Connecting", "Connected", "Recorded", "UnitSeen", "Entries", "CaughtUp", "Note", "Entries",
    ]  # fmt: skip
    assert messages(found) == ["old", "new"]
    assert host.after == [old.cursor], "the stream goes on where the reading ended"
    (note,) = (each for each in found if isinstance(each, heard.Note))
    assert "the endpoint is not asked: the API key" in note.text, "the rest works without"


def test_a_lost_connection_is_made_again_and_nothing_is_said_twice(
    run: Callable[..., list[Any]],
) -> None:
    one, two = entry("one", 1.0), entry("two", 2.0)
    host = Host([[], [sent(two), None, None]], [unit()], {"aaaa1111": [one]})
    found = run(host, lambda said: "two" in messages(said))
    assert messages(found) == ["one", "two"]
    (lost,) = (each for each in found if isinstance(each, heard.Lost))
    assert lost.message == "the connection to the host was lost"
    assert host.after == [one.cursor, one.cursor]
    assert host.connections == 2


def test_a_restart_while_nobody_heard_it(run: Callable[..., list[Any]]) -> None:
    """The old start's last words come before what the new one said."""
    one, two = entry("one", 1.0), entry("last words", 2.0)
    three = entry("three", 3.0, "bbbb2222")
    host = Host(
        [[], [None] * 50],
        [unit(), unit("bbbb2222")],
        {"aaaa1111": [one], "bbbb2222": [three]},
    )

    def until(said: list[Any]) -> bool:
        host.journal["aaaa1111"] = [one, two] if messages(said) else [one]
        return "three" in messages(said)

    found = run(host, until)
    assert messages(found) == ["one", "last words", "three"]


def test_it_waits_longer_where_it_is_refused(
    run: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Host([], [unit()], {}, faults=[AuthFailed("no key fits", remedy="ssh-add")])
    found = run(refused, lambda said: "Lost" in kinds(said))
    assert (found[-1].message, found[-1].remedy) == ("no key fits", "ssh-add")
    assert found[-1].retry_in == 60.0
    down = Host([], [unit()], {}, faults=[Unreachable("down", code="host_down")] * 3)
    found = run(down, lambda said: "Connected" in kinds(said))
    assert [each.attempt for each in found if isinstance(each, heard.Connecting)] == [1, 2, 3, 4]


def test_a_bug_is_told_and_does_not_end_it(run: Callable[..., list[Any]]) -> None:
    host = Host([[None]], [unit()], {}, faults=[ZeroDivisionError("division by zero")])
    found = run(host, lambda said: "Connected" in kinds(said))
    assert "a bug in opsctl: ZeroDivisionError" in found[1].message


def test_a_silent_host_counts_as_lost(
    run: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "_SILENCE", 0.1)
    host = Host([[None] * 50, [None] * 50], [unit()], {})
    found = run(host, lambda said: "Lost" in kinds(said))
    assert "no word from the host" in found[-1].message


# -- the endpoint ----------------------------------------------------------------------------


@dataclass
class Client:
    loaded: Any
    gauges: dict[str, float] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def server_info(self) -> dict[str, Any]:
        self.asked.append("server_info")
        return {"max_total_num_tokens": 1000}

    def loads(self) -> list[Load]:
        self.asked.append("loads")
        if isinstance(self.loaded, Exception):
            raise self.loaded
        found: list[Load] = self.loaded
        return found

    def metrics(self) -> dict[str, float]:
        self.asked.append("metrics")
        return self.gauges


def test_the_loads_of_all_ranks_are_summed() -> None:
    client = Client([Load(3, 250, 1), Load(2, 250, 0)])
    endpoint = Endpoint(client)  # type: ignore[arg-type]
    assert endpoint.ask("i1") == heard.Asked(running=4, queued=1, usage=0.25)
    endpoint.ask("i1")
    assert client.asked == ["server_info", "loads", "loads"], "the pool's size once a start"
    endpoint.ask("i2")
    assert client.asked.count("server_info") == 2


def test_a_load_of_an_old_server_does_not_tell_who_waits() -> None:
    endpoint = Endpoint(Client([Load(3, 250)]))  # type: ignore[arg-type]
    assert endpoint.ask("i1") == heard.Asked(running=3, queued=None, usage=0.25)


def test_a_server_without_loads_is_asked_for_its_metrics() -> None:
    missing = ServerError("HTTP 404", cause="status", status=404)
    gauges = {"sglang:num_running_reqs": 4.0, "sglang:num_queue_reqs": 2.0}
    client = Client(missing, gauges)
    endpoint = Endpoint(client)  # type: ignore[arg-type]
    assert endpoint.ask("i1") == heard.Asked(running=4, queued=2)
    endpoint.ask("i1")
    assert client.asked == ["server_info", "loads", "metrics", "metrics"]


def test_a_server_that_does_not_answer() -> None:
    client = Client(ServerError("no answer within 10 s", cause="timeout"))
    with pytest.raises(ServerError):
        Endpoint(client).ask("i1")  # type: ignore[arg-type]
