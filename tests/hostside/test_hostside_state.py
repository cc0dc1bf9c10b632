"""The state folder: atomic writes, generations, contents, load times, and the lock."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from opsctl.hostside.errors import HostFault
from opsctl.hostside.looks import _recorded
from opsctl.hostside.state import Lock, State, describe_holder, lock_holder, write_atomically


@pytest.fixture
def state(tmp_path: Path) -> State:
    found = State(str(tmp_path / "state"), "serve")
    found.prepare()
    return found


def a_generation(number: int) -> dict[str, Any]:
    keys = ("predecessor", "set", "files", "version", "package_dir")
    return {"number": number, "status": "found", **dict.fromkeys(keys)}


# -- write_atomically ------------------------------------------------------------------------


def test_a_write_replaces_the_inode(tmp_path: Path) -> None:
    path, twin = tmp_path / "f", tmp_path / "twin"
    path.write_bytes(b"old")
    os.link(path, twin)
    write_atomically(str(path), b"new", 0o640)
    assert (path.read_bytes(), twin.read_bytes()) == (b"new", b"old")
    assert path.stat().st_mode & 0o7777 == 0o640


@pytest.mark.parametrize("failing", ["fsync", "replace", "fchmod"])
def test_a_write_that_fails_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def fail(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(str(path), b"new")
    monkeypatch.undo()
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("f", b"old")]


# -- generations and contents ----------------------------------------------------------------


def test_reading_creates_nothing(tmp_path: Path) -> None:
    state = State(str(tmp_path / "state"), "serve")
    assert state.numbers() == []
    assert state.current() is None
    assert state.swap_under_way() is None
    assert state.loads() == []
    assert lock_holder(state) is None
    assert list(tmp_path.iterdir()) == []


def test_generations_are_in_the_order_of_their_numbers(state: State) -> None:
    for number in (0, 2, 10, 9):
        state.save(a_generation(number))
    Path(state.path("generations", "x.json")).touch()
    for name in (".opsctl-half", "3.json\n", "03.json", "٣.json", "3.json.bak"):
        Path(state.path("generations", name)).touch()
    assert state.numbers() == [0, 2, 9, 10]
    state.set_current(10)
    assert state.current() == a_generation(10)
    with pytest.raises(HostFault, match="no generation 3; recorded: 0, 2, 9, 10") as caught:
        state.generation(3)
    assert caught.value.code == "generation_missing"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "-a", "a b", ".hidden", "ä", "serve\n"]
)
def test_a_service_name_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(HostFault) as caught:
        State(str(tmp_path), name)
    assert caught.value.code == "bad_service_name"


def test_contents_are_kept_once_and_checked(state: State) -> None:
    digest = state.put(b"content")
    assert digest == state.put(b"content")
    assert state.has(digest)
    assert state.get(digest) == b"content"
    path = Path(state.path("objects", digest))
    path.write_bytes(b"contemt")
    with pytest.raises(HostFault, match="damaged"):
        state.get(digest)
    state.put(b"content")
    assert state.get(digest) == b"content"
    path.unlink()
    with pytest.raises(HostFault, match="missing"):
        state.get(digest)


def test_load_times_survive_a_torn_line(state: State) -> None:
    for seconds in (1.0, 2.0004, 3.0):
        state.record_load(seconds, 7)
    with Path(state.path("loads.jsonl")).open("a") as f:
        f.write('"text"\n{"seconds": null}\n{"generation": 1}\n{"seconds": 4.0, "gen')
    assert state.loads() == [1.0, 2.0, 3.0]
    assert state.loads(last=5) == [3.0]


# -- the lock; across processes it is tested in test_hostside_operations ------------------


def test_the_lock_says_who_holds_it(state: State) -> None:
    lock = Lock()
    assert not lock.held(state)
    lock.take(state, {"who": "ann@laptop", "why": "fix"})
    assert lock.held(state)
    holder = lock_holder(state)
    assert holder is not None
    assert (holder["who"], holder["why"], holder["pid"]) == ("ann@laptop", "fix", os.getpid())
    with pytest.raises(HostFault) as caught:
        Lock().take(state, {"who": "bob", "why": "too"})
    assert caught.value.code == "lock_held"
    assert caught.value.message.startswith("ann@laptop holds the lock of this service for 0 s: fix")
    lock.release()
    assert not lock.held(state)
    assert lock_holder(state) is None
    lock.release()  # once more is nothing
    other = Lock()
    other.take(state, {"who": "bob", "why": "too"})
    other.release()


def test_the_lock_of_one_service_is_not_that_of_another(state: State, tmp_path: Path) -> None:
    other = State(str(tmp_path / "state"), "other")
    first, second = Lock(), Lock()
    first.take(state, {"who": "ann", "why": "x"})
    second.take(other, {"who": "bob", "why": "y"})
    assert not first.held(other)
    first.release()
    second.release()


def test_a_look_at_the_lock_does_not_fail_who_takes_it(state: State) -> None:
    with Path(state.path("lock")).open("w+") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        timer = threading.Timer(0.15, fcntl.flock, (looking, fcntl.LOCK_UN))
        timer.start()
        lock = Lock()
        lock.take(state, {"who": "ann", "why": "x"})
        timer.join()
    lock.release()


def test_a_holder_that_wrote_nothing_readable_is_somebody(state: State) -> None:
    lock = Lock()
    lock.take(state, {"who": "ann", "why": "x"})
    Path(state.path("lock")).write_text("{torn")
    with pytest.raises(HostFault, match="somebody holds the lock of this service: unknown"):
        Lock().take(state, {"who": "bob", "why": "y"})
    lock.release()


def test_an_error_that_is_no_lock_is_told_as_it_is(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(OSError, match="No locks available"):
        Lock().take(state, {"who": "ann", "why": "x"})


def test_a_lock_that_is_free_again_has_no_holder_to_name() -> None:
    assert describe_holder(None) == "the lock of this service was held a moment ago"
    assert describe_holder({"pid": 1}) == (
        "somebody holds the lock of this service: no reason given"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("current", "zzz"),
        ("current", "77"),
        ("generations/0.json", '{"number": 0, "fil'),
        ("generations/0.json", "[]"),
        ("generations/0.json", "{}"),
        ("swap", "garbage"),
    ],
)
def test_damage_is_told_and_hides_nothing_else(state: State, name: str, text: str) -> None:
    state.prepare()
    state.save(a_generation(0))
    state.set_current(0)
    Path(state.path(name)).write_text(text)
    facts = _recorded(state)
    assert facts["state_fault"]["code"] == "state_damaged"
    assert state.path(name) in facts["state_fault"]["message"]
    assert facts["lock"] is None


def test_a_load_time_that_is_no_number_is_left_out(state: State) -> None:
    state.prepare()
    Path(state.path("loads.jsonl")).write_text(
        '{"seconds": "nan"}\n{"seconds": 1e999}\n{"seconds": 9}\n\xff\n'
    )
    assert state.loads() == [9.0]


def test_a_lost_current_is_damage_and_not_a_fresh_host(tmp_path: Path) -> None:
    state = State(str(tmp_path), "svc")
    state.prepare()
    state.save({"number": 0})
    assert state.current() is None, "the first deploy was cut off before it named one"
    state.save({"number": 1})
    with pytest.raises(HostFault, match="it is missing, and generations are recorded"):
        state.current()


# -- modes and owners ------------------------------------------------------------------------


def modes(root: str) -> set[tuple[str, int, int]]:
    every = [Path(root), *Path(root).rglob("*")]
    return {
        ("folder" if p.is_dir() else "file", p.stat().st_mode & 0o7777, p.stat().st_uid)
        for p in every
        if not p.is_symlink()
    }


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_is_recorded_is_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    state = State(str(tmp_path / "state"), "serve")
    before = os.umask(umask)
    try:
        lock = Lock()
        lock.take(state, {"who": "ann", "why": "x"})
        state.save(a_generation(0))
        state.set_current(0)
        state.put(b"content")
        state.record_load(1.0, 0)
        lock.release()
    finally:
        os.umask(before)
    assert modes(state.root) == {
        ("folder", 0o700, os.geteuid()),
        ("file", 0o600, os.geteuid()),
    }


def test_what_an_older_version_left_open_is_closed(state: State, tmp_path: Path) -> None:
    state.save(a_generation(0))
    digest = state.put(b"content")
    state.record_load(1.0, 0)
    Path(state.path("lock")).touch()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch(mode=0o644)
    Path(state.path("link")).symlink_to(elsewhere)
    for path in [Path(state.root), *Path(state.root).rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o777 if path.is_dir() else 0o666)
            if os.geteuid() == 0:
                os.chown(path, 12345, 12345)
    state.prepare()
    assert modes(state.root) == {
        ("folder", 0o700, os.geteuid()),
        ("file", 0o600, os.geteuid()),
    }
    assert state.get(digest) == b"content"
    assert elsewhere.stat().st_mode & 0o7777 == 0o644, "a link is not followed"
