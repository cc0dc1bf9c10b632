"""The steps of the runbooks, with a host that answers as it is told to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rollout_tools import SERVICE, facts

from opsctl.errors import Refused
from opsctl.events import Event
from opsctl.playbook.spec import ChooseArguments, DrainArguments, RoomArguments
from opsctl.rollout import care, choosing, room
from opsctl.rollout.run import Options, Run, StepFailed
from opsctl.rollout.session import Session
from opsctl.sglang.arguments import DRAFT, value
from opsctl.text import counted
from opsctl.units.properties import Unit

GIB = 1 << 30


def place(path: str, free: int, device: int = 1, **more: Any) -> dict[str, Any]:
    found = {"path": path, "mount": path, "device": device, "size": 100 * GIB, "free": free}
    return {**found, "inodes": 1000, "inodes_free": 900, "read_only": False, **more}


class Host:
    """`answers` by operation: a value, or several in turn."""

    host = SimpleNamespace(name="alpha")
    service = SERVICE

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.events: list[Event] = []
        self.requests: list[int] = []
        self.remote = self

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def call(self, op: str, timeout: float = 60.0, **params: Any) -> Any:
        self.asked.append((op, params))
        answer = self.answers[op]
        return answer.pop(0) if isinstance(answer, list) and op == "machine" else answer

    def inspect(self) -> dict[str, Any]:
        found: dict[str, Any] = self.answers["inspect"]
        return found

    def unit(self) -> Unit:
        return Unit.from_show(facts()["unit"])

    @contextmanager
    def client(self) -> Iterator[Any]:
        def loads() -> list[Any]:
            count = self.requests.pop(0) if len(self.requests) > 1 else self.requests[0]
            return [SimpleNamespace(requests=count)]

        yield SimpleNamespace(server_info=dict, loads=loads)


def run_on(host: Host, **options: Any) -> Run:
    return Run("rollback", cast(Session, host), Options(**options))


def machine(**filesystems: Any) -> dict[str, Any]:
    return {"filesystems": filesystems}


# -- a full disk ----------------------------------------------------------------------------------


FULL = machine(state=place("/var", 0), tmp=place("/tmp", 50 * GIB, device=2))
FREE = machine(state=place("/var", 50 * GIB), tmp=place("/tmp", 50 * GIB, device=2))
LARGEST = {
    "files": [{"path": "/var/core.1", "bytes": 3 * GIB, "modified": 0.0}],
    "deleted": [{"path": "/var/x (deleted)", "bytes": GIB, "pid": 7, "command": "tail -f x"}],
    "complete": True,
}
DONE = {"generations": [1, 2], "objects": 3, "bytes": 9, "journal": "freed 1.0G"}


def test_a_full_disk_is_said_with_what_fills_it() -> None:
    host = Host(machine=[FULL], largest=LARGEST)
    assert room.space(run_on(host)) == "full: /var"
    told = [event.message for event in host.events]
    assert told[0].startswith("/var is full")
    assert told[1:] == [
        "3.0 GiB /var/core.1",
        "1.0 GiB /var/x (deleted), held open by pid 7 (tail -f x)",
    ]


def test_where_there_is_room_nothing_is_looked_for() -> None:
    host = Host(machine=[FREE, FREE])
    assert room.space(run_on(host)).startswith("there is room")
    assert room.enough(run_on(host))
    assert [op for op, _ in host.asked] == ["machine", "machine"]


def test_room_is_made_and_seen() -> None:
    host = Host(machine=[FREE], make_room=DONE)
    run = run_on(host)
    run.arguments = RoomArguments(journal="200M", keep=3)
    assert room.make_room(run) == "2 old generations; journal: freed 1.0G"
    assert host.asked[0] == ("make_room", {"journal": "200M", "keep": 3})
    assert run.touched


def test_too_little_room_names_what_is_left_to_a_person() -> None:
    host = Host(machine=[FULL], make_room=DONE, largest=LARGEST)
    run = run_on(host)
    run.arguments = RoomArguments()
    with pytest.raises(StepFailed, match="/var is full") as caught:
        room.make_room(run)
    assert caught.value.code == "disk_full"
    assert "3.0 GiB /var/core.1" in caught.value.remedy


# -- which generation to return to -----------------------------------------------------------------


def generation(number: int, status: str = "confirmed", **more: Any) -> dict[str, Any]:
    return {
        "number": number,
        "status": status,
        "predecessor": number - 1 if number else None,
        "set": {"name": "ddtree", "version": f"{number}.0"},
        "version": "1.0",
        "files": {},
        **more,
    }


def recorded(*records: dict[str, Any]) -> Host:
    there = facts(
        {
            "generation": records[-1],
            "generations": [record["number"] for record in records],
            "install.version": "1.0",
        }
    )
    return Host(inspect=there, generations=list(records))


def test_the_predecessor_or_the_one_that_was_named() -> None:
    host = recorded(generation(0, "found"), generation(1), generation(2))
    run = run_on(host)
    assert choosing.choose(run) == "generation 1 (ddtree 1.0)"
    assert (run.target, run.target_status, run.strict) == (1, "confirmed", False)
    named = run_on(host, generation=0)
    choosing.choose(named)
    assert named.target == 0


def test_the_last_that_served_is_not_the_one_before() -> None:
    host = recorded(generation(0, "found"), generation(1), generation(2, "unconfirmed"))
    host.answers["generations"][1]["status"] = "rolled_back"
    run = run_on(host)
    run.arguments = ChooseArguments(to="served")
    choosing.choose(run)
    assert run.target == 0


def test_where_nothing_is_to_return_to_it_says_so() -> None:
    host = recorded(generation(0, "found"))
    assert not choosing.can_return(run_on(host))
    with pytest.raises(Refused, match="nothing is older"):
        choosing.choose(run_on(host))


# -- the weights, orphans, a quiet moment ----------------------------------------------------------


def weights(**more: Any) -> dict[str, Any]:
    held = {"files": 64, "bytes": 9, "config": True}
    return {**place("/m", GIB), "exists": True, "weights": held, **more}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (weights(exists=False), "there is no such folder"),
        (weights(weights={"files": 0, "bytes": 0, "config": True}), "the folder holds none"),
        (weights(weights={"files": 2, "bytes": 9, "config": False}), "config.json is not there"),
        ({"path": "/m", "fault": "no answer within 3 s"}, "no answer within 3 s"),
    ],
)
def test_weights_that_are_not_there_end_it(found: dict[str, Any], said: str) -> None:
    host = Host(machine=[machine(model=found)])
    with pytest.raises(StepFailed, match=said) as caught:
        care.weights(run_on(host))
    assert caught.value.code == "weights_missing"


def test_weights_that_are_there() -> None:
    host = Host(machine=[machine(model=weights())])
    assert care.weights(run_on(host)) == "model: 64 files"


@pytest.mark.parametrize(
    ("argv", "path"),
    [
        (("x", "--speculative-draft-model-path=/d"), "/d"),
        (("x", "--speculative-draft-model-path", "/d", "y"), "/d"),
        (("x", "--speculative-draft-model-path"), None),
        ((), None),
    ],
)
def test_the_drafters_path_however_it_is_given(argv: tuple[str, ...], path: str | None) -> None:
    assert value(argv, DRAFT) == path


def orphan(pid: int, left: str = "") -> dict[str, Any]:
    return {
        "pid": pid,
        "user": "root",
        "argv": ["python"],
        "why": ["it holds port 1"],
        "left": left,
    }


def test_orphans_that_are_others_are_named_and_left() -> None:
    host = Host(find_orphans={"orphans": [orphan(7), orphan(8, "a shell")], "missing": {}})
    run = run_on(host)
    assert care.orphans(run) == "1 process to end"
    assert [each["pid"] for each in run.orphans] == [7]
    assert [event.state for event in host.events] == ["info", "warn"]


def test_an_orphan_that_outlives_everything_is_a_failure() -> None:
    stuck = {"pid": 7, "why": "state D"}
    host = Host(end_orphans={"ended": [], "gone": [], "left": [], "remaining": [stuck]})
    run = run_on(host)
    run.orphans = [orphan(7)]
    with pytest.raises(StepFailed, match="pid 7: state D"):
        care.end_orphans(run)


@pytest.mark.parametrize(
    ("requests", "timeout", "said"),
    [([2, 1, 0, 0, 0, 0, 0], 30.0, "idle after"), ([3], 0.3, "3 requests under way still after")],
)
def test_a_quiet_moment_is_waited_for_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, requests: list[int], timeout: float, said: str
) -> None:
    monkeypatch.setattr(care, "_LOOK_EVERY", 0.05)
    monkeypatch.setattr(care, "_IDLE_FOR", 0.1)
    host = Host()
    host.requests = list(requests)
    run = run_on(host)
    run.arguments = DrainArguments(timeout=timeout)
    assert care.drain(run).startswith(said)
    first = host.events[0]
    assert first.message == f"{counted(requests[0], 'request')} under way"
    assert first.data == {"elapsed_s": 0.0, "budget_s": timeout}, "how long it may take is seen"
