"""Driving the machine: a scripted host, a scripted server, real clocks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from opsctl.events import Event, ignore
from opsctl.readiness import Failed, Readiness, Ready, wait_down, wait_ready
from opsctl.readiness.wait import _from_the_start
from opsctl.sglang import SglangClient

READY = "The server is fired up and ready to roll!"


class Watch:
    """Items in order; after them, silence."""

    def __init__(self, *items: dict[str, Any] | None) -> None:
        self.items = list(items)

    def get(self, timeout: float) -> Any:
        if self.items:
            return self.items.pop(0)
        time.sleep(min(timeout, 0.02))
        return None

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


def unit(state: str, invocation: str = "new") -> dict[str, Any]:
    active, _, sub = state.partition("/")
    shown = {"ActiveState": active, "SubState": sub, "InvocationID": invocation}
    return {"unit": {"Id": "serve.service", "LoadState": "loaded", **shown}}


def line(text: str, invocation: str = "new", age: float = 0.0) -> dict[str, Any]:
    entry = {
        "MESSAGE": text,
        "_SYSTEMD_INVOCATION_ID": invocation,
        "_SOURCE_REALTIME_TIMESTAMP": str(int((1_700_000_000 - age) * 1e6)),
    }
    return {"entries": [entry], "time": 1_700_000_000.0}


def client(answer: Callable[[], httpx.Response]) -> SglangClient:
    return SglangClient("http://server", transport=httpx.MockTransport(lambda request: answer()))


def serving() -> httpx.Response:
    return httpx.Response(200, json={"data": [{"id": "tiny"}]})


def machine(**differs: Any) -> Readiness:
    given = {"budget": 20.0, "stall": 20.0, "started": time.monotonic(), **differs}
    return Readiness(previous_invocation="old", **given)


def test_ready_is_the_word_and_an_answer() -> None:
    events: list[Event] = []
    watch = Watch(
        unit("inactive/dead", "old"), unit("active/running"), line("Load weight begin."), None,
        line(READY, age=0.3),
    )  # fmt: skip
    refusals = [httpx.Response(503), httpx.Response(503)]
    with client(lambda: refusals.pop() if refusals else serving()) as server:
        found = wait_ready(machine(), watch, server, events.append)
    assert isinstance(found, Ready)
    assert (found.invocation, found.models) == ("new", ("tiny",))
    assert 0.3 <= found.lag_s < 5
    assert 0 < found.ready_s < 5
    labels = [event.message for event in events]
    assert labels == ["starting", "loading weights", "ready"]
    assert events[-1].data["budget_s"] == 20.0
    assert {event.state for event in events} == {"progress"}


def test_a_server_of_before_that_still_answers_is_not_asked() -> None:
    def answer() -> httpx.Response:
        pytest.fail("asked before this start said ready")

    watch = Watch(unit("active/running"), line(READY, "old"), None, unit("failed/failed"))
    with client(answer) as server:
        found = wait_ready(machine(), watch, server, ignore)
    assert isinstance(found, Failed)
    assert found.cause == "unit_failed"


def test_silence_ends_by_the_clock_alone() -> None:
    with client(serving) as server:
        found = wait_ready(machine(budget=0.1), Watch(), server, ignore)
    assert isinstance(found, Failed)
    assert found.cause == "budget_exceeded"


@pytest.mark.parametrize("down", ["inactive/dead", "failed/failed"])
def test_down(down: str) -> None:
    watch = Watch(unit("active/running"), None, line("bye"), unit("deactivating/stop"), unit(down))
    found = wait_down(watch, 20, ignore)
    assert found is not None
    assert found.down


def test_what_does_not_go_down() -> None:
    assert wait_down(Watch(unit("deactivating/stop-sigterm")), 0.1, ignore) is None


@pytest.mark.parametrize("state", ["active/running", "activating/start", "inactive/dead"])
def test_down_or_started_again_by_somebody(state: str) -> None:
    old, stopping = unit("active/running", "one"), unit("deactivating/stop", "two")
    watch = Watch(old, unit("deactivating/stop", "one"), stopping, unit(state, "two"))
    found = wait_down(watch, 20, ignore, "one")
    assert found is not None
    assert (found.invocation_id, found.active_state) == ("two", state.partition("/")[0])


@pytest.mark.parametrize(("ready_s", "silent"), [(20.0, 14.0), (6.0, 0.0), (5.0, 0.0)])
def test_a_loads_phases_count_from_the_start(ready_s: float, silent: float) -> None:
    """The log begins when the imports are over."""
    found = _from_the_start([("starting", 0.0, 1.0), ("loading weights", 1.0, 6.0)], ready_s)
    assert found == (
        ("starting", 0.0, 1.0 + silent),
        ("loading weights", 1.0 + silent, 6.0 + silent),
    )
    assert _from_the_start([], ready_s) == ()
