"""What pruning keeps, and that all of it can still be put in place."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostside_tools import Environment, sha256, with_set

from opsctl.hostside import guard, looks, operations, prune
from opsctl.hostside.errors import HostFault
from opsctl.hostside.state import State

pytest_plugins = ["hostside_fixtures"]

LONG_AGO = time.time() - 40 * 86400


def a_set(number: int) -> dict[str, bytes | None]:
    """Each has a content of its own and one of every set; some a file that is new."""
    files: dict[str, bytes | None] = {"a.py": b"VALUE = %d\n" % number, "b.py": b"B = 'all'\n"}
    if number % 2:
        files["new/d.py"] = b"D = %d\n" % (number // 3)
    return files


@pytest.fixture
def deployed(env: Environment, monkeypatch: pytest.MonkeyPatch) -> dict[int, dict[str, bytes]]:
    """Six sets after what was found; the files of each by its number."""
    monkeypatch.setattr(prune, "KEPT", 2)
    trees = {0: env.tree()}
    for _ in range(6):
        number = env.deploy(a_set(len(trees)))
        trees[number] = env.tree()
    return trees


def objects(state: State) -> set[str]:
    return {path.name for path in Path(state.path("objects")).iterdir()}


def write(state: State, name: str, content: dict[str, Any]) -> None:
    Path(state.path(name)).write_text(json.dumps(content))


def test_the_last_ones_and_the_first_are_kept_whole(
    env: Environment, deployed: dict[int, dict[str, bytes]]
) -> None:
    before = objects(env.state)
    done = prune.prune(env.state)
    assert (done["generations"], env.state.numbers()) == ([1, 2, 3, 4], [0, 5, 6])
    gone = before - objects(env.state)
    assert gone == {sha256(b"VALUE = %d\n" % n) for n in (1, 2, 3, 4)} | {sha256(b"D = 0\n")}
    assert done["objects"] == len(gone)
    assert done["bytes"] == 4 * len(b"VALUE = 1\n") + len(b"D = 0\n")
    for number in (0, 6, 5, 0, 5):
        env.swap(number)
        assert env.tree() == deployed[number]
    assert prune.prune(env.state) == {"generations": [], "objects": 0, "bytes": 0}


def test_the_next_deploy_goes_on_from_there(
    env: Environment, deployed: dict[int, dict[str, bytes]]
) -> None:
    prune.prune(env.state)
    assert env.deploy(a_set(9)) == 7
    assert env.tree() == with_set(a_set(9))
    env.swap(6)
    assert env.tree() == deployed[6]


@pytest.mark.parametrize("current", [1, 2, 3, 4])
def test_what_is_in_place_is_kept_and_the_one_before_it(
    env: Environment, deployed: dict[int, dict[str, bytes]], current: int
) -> None:
    env.swap(current)
    prune.prune(env.state)
    assert env.state.numbers() == sorted({0, current - 1, current, 5, 6})
    for number in env.state.numbers():
        env.swap(number)
        assert env.tree() == deployed[number]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (guard.TERMS, {"to": 2, "target": 3}),
        ("swap", {"from": 2, "to": 3}),
        ("swap", {"from": 6, "to": 6, "mixed": [2, 3]}),
    ],
)
def test_what_the_guard_or_a_swap_names_is_kept(
    env: Environment,
    deployed: dict[int, dict[str, bytes]],
    name: str,
    content: dict[str, Any],
) -> None:
    write(env.state, name, content)
    prune.prune(env.state)
    assert env.state.numbers() == [0, 2, 3, 5, 6]
    for number in (2, 3):
        env.swap(number)
        assert env.tree() == deployed[number]


def test_the_units_files_go_with_their_generations(env: Environment) -> None:
    def saved(number: int, **unit: str | None) -> None:
        keys = ("predecessor", "set", "version", "package_dir")
        env.state.save(
            {"number": number, "status": "confirmed", "files": {}, "unit": {"/u": unit}}
            | dict.fromkeys(keys)
        )

    env.state.prepare()
    old, new, found = (env.state.put(text) for text in (b"old", b"new", b"found"))
    saved(0, sha256=None, before_sha256=None)
    saved(1, sha256=old, before_sha256=None)
    for number in range(2, prune.KEPT + 2):
        saved(number, sha256=new, before_sha256=found)
    env.state.set_current(prune.KEPT + 1)
    assert prune.prune(env.state)["generations"] == [1]
    assert objects(env.state) == {new, found}


def test_what_a_hand_changes_again_is_spared_anew(env: Environment) -> None:
    """A swap went over the same edit long ago, and its content is stored since."""
    env.deploy(a_set(1))
    by_hand = env.state.put(b"by hand")
    os.utime(env.state.path("objects", by_hand), (LONG_AGO, LONG_AGO))
    number = env.stage(a_set(2))["number"]
    (env.package_dir / "a.py").write_bytes(b"by hand")
    env.swap(number)
    prune.prune(env.state)
    assert env.state.has(by_hand)


def test_what_a_hand_had_changed_is_spared_for_a_month(
    env: Environment, deployed: dict[int, dict[str, bytes]]
) -> None:
    late, early = (env.state.put(text) for text in (b"by hand", b"by hand, once"))
    os.utime(env.state.path("objects", early), (LONG_AGO, LONG_AGO))
    needed = sha256(deployed[6]["a.py"])
    os.utime(env.state.path("objects", needed), (LONG_AGO, LONG_AGO))
    stray = Path(env.state.path("objects", "README"))
    stray.touch()
    prune.prune(env.state)
    assert {late, needed} <= objects(env.state)
    assert early not in objects(env.state)
    assert stray.exists(), "not ours"


@pytest.mark.parametrize("name", ["generations/3.json", "generations/6.json", "swap", "current"])
def test_where_a_record_cannot_be_read_nothing_goes(
    env: Environment, deployed: dict[int, dict[str, bytes]], name: str
) -> None:
    assert deployed
    Path(env.state.path(name)).write_text("{")
    before = objects(env.state)
    with pytest.raises(HostFault):
        prune.prune(env.state)
    assert (objects(env.state), env.state.numbers()) == (before, list(range(7)))


# -- where it happens ------------------------------------------------------------------------


@pytest.fixture
def locked(env: Environment) -> Iterator[Environment]:
    """30 generations are recorded, and this process has the lock."""
    env.state.prepare()
    keys = ("predecessor", "set", "version", "package_dir")
    for number in range(30):
        env.state.save({"number": number, "status": "staged", "files": {}} | dict.fromkeys(keys))
    env.state.set_current(29)
    operations.lock(env.site, who="ann", why="test")
    yield env
    operations.unlock()


def log(env: Environment) -> list[dict[str, Any]]:
    return [e for e in looks.audit_log(env.site) if e["event"] == "prune"]


def test_a_confirmed_deploy_prunes_and_the_log_says_so(locked: Environment) -> None:
    for status in ("unconfirmed", "rolled_back", "abandoned"):
        operations.conclude(locked.site, 29, status, {})
    assert locked.state.numbers() == list(range(30))
    operations.conclude(locked.site, 29, "confirmed", {})
    assert locked.state.numbers() == [0, *range(10, 30)]
    (entry,) = log(locked)
    assert entry["generations"] == "1, 2, 3, 4, 5, 6, 7, 8, 9"
    operations.conclude(locked.site, 29, "confirmed", {})
    assert len(log(locked)) == 1, "nothing to tell"


def test_that_it_cannot_be_done_hinders_nothing(
    locked: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = locked.state.generation(3)
    locked.state.save(record | {"files": {"a.py": None}})
    operations.conclude(locked.site, 29, "confirmed", {})
    assert locked.state.numbers() == list(range(30))
    locked.state.save(record)

    def fail(path: str) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "unlink", fail)
    operations.conclude(locked.site, 29, "confirmed", {})
    assert locked.state.generation(29)["status"] == "confirmed"
    assert all(entry["why"].startswith("not done: ") for entry in log(locked))
    assert len(log(locked)) == 2
