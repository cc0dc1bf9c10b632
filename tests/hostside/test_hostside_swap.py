"""Stage and swap, on real files of a real virtual environment."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hostside_tools import WHEEL, Environment, sha256, with_set
from hypothesis import given, settings
from hypothesis import strategies as st

from opsctl.hostside import exchange, importers, packagefiles
from opsctl.hostside import install as installed
from opsctl.hostside import state as state_module
from opsctl.hostside import swap as module
from opsctl.hostside.errors import HostFault

pytest_plugins = ["hostside_fixtures"]


@pytest.fixture(params=["at once", "one by one"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to put files in place; the second where a file system refuses the first."""
    if request.param == "one by one":
        monkeypatch.setattr(exchange, "copy", lambda package_dir: None)


NEW = b"VALUE = 'fixed'\n"
FILES: dict[str, bytes | None] = {"a.py": NEW, "extra/deep/d.py": b"D = 1\n", "sub/c.py": None}


def refused(code: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> HostFault:
    with pytest.raises(HostFault) as caught:
        function(*args, **kwargs)
    assert caught.value.code == code
    return caught.value


# -- stage -----------------------------------------------------------------------------------


def test_the_first_stage_records_what_was_found(env: Environment) -> None:
    record = env.stage(FILES)
    assert (record["number"], record["predecessor"], record["status"]) == (1, 0, "staged")
    assert record["version"] == "1.0"
    assert record["package_dir"] == str(env.package_dir)
    found = env.state.generation(0)
    assert (found["status"], found["set"], found["predecessor"]) == ("found", None, None)
    assert {p: f["sha256"] for p, f in found["files"].items()} == {
        "a.py": sha256(WHEEL["a.py"]),
        "extra/deep/d.py": None,
        "sub/c.py": sha256(WHEEL["sub/c.py"]),
    }
    current = env.state.current()
    assert current is not None
    assert current["number"] == 0
    assert env.tree() == WHEEL, "staging touches nothing of the package"


def test_a_hand_edit_found_before_the_first_deploy_comes_back(env: Environment) -> None:
    (env.package_dir / "a.py").write_bytes(b"VALUE = 'by hand'\n")
    env.deploy({"a.py": NEW})
    env.swap(0)
    assert env.tree()["a.py"] == b"VALUE = 'by hand'\n"


def test_what_changed_since_the_plan_is_refused(env: Environment) -> None:
    seen = env.seen(FILES)
    (env.package_dir / "a.py").write_bytes(b"VALUE = 'meanwhile'\n")
    fault = refused("changed_since_plan", env.stage, FILES, seen=seen)
    assert fault.message == "a.py changed on the host since the plan was made"
    assert env.state.numbers() == []


def test_what_does_not_compile_is_refused(env: Environment) -> None:
    fault = refused("does_not_compile", env.stage, {"a.py": b"x = 1\ndef f(:\n"})
    assert fault.message.startswith("a.py:2: invalid syntax")
    assert "Python 3." in fault.message
    assert env.state.numbers() == []


def test_files_that_are_no_python_are_not_compiled(env: Environment) -> None:
    env.deploy({"data.txt": b"def f(:\n"})
    assert env.tree()["data.txt"] == b"def f(:\n"


def test_content_that_was_damaged_on_the_way_is_refused(env: Environment) -> None:
    digest = sha256(NEW)
    fault = refused(
        "content_damaged",
        module.stage,
        env.state,
        env.install,
        env.target({"a.py": NEW}),
        {digest: "VkFMVUU="},
        seen=env.seen(["a.py"]),
        found_set=None,
    )
    assert digest in fault.message


@pytest.mark.parametrize("reinstalled", ["same version", "other version"])
def test_a_reinstall_in_between_is_recorded_as_found(env: Environment, reinstalled: str) -> None:
    env.deploy({"a.py": NEW})
    if reinstalled == "same version":
        env.reinstall()  # wipes the edit
    else:
        env.reinstall({**WHEEL, "a.py": b"VALUE = 'wheel 2'\n"}, version="2.0")
    before = env.tree()
    record = env.stage({"b.py": b"B = 2\n"})
    assert (record["number"], record["predecessor"]) == (3, 2)
    found = env.state.generation(2)
    assert (found["status"], found["set"]) == ("found", None)
    env.swap(3)
    env.swap(2)
    assert env.tree() == before


def test_a_second_deploy_does_not_record_what_it_found_again(env: Environment) -> None:
    env.deploy({"a.py": NEW})
    assert env.deploy({"a.py": b"VALUE = 'again'\n"}) == 2
    assert env.state.numbers() == [0, 1, 2]
    assert env.state.generation(2)["predecessor"] == 1


OUTSIDE = ["../x.py", "/etc/passwd", "sub/../../x.py", ".", "", "..", "link/x.py", "../demo_pkg2/x"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_path_outside_the_package_is_refused(env: Environment, path: str) -> None:
    (env.root / "elsewhere").mkdir()
    (env.package_dir / "link").symlink_to(env.root / "elsewhere")
    files = {"a.py": NEW, path: b"X = 1\n"}
    refused("path_outside", env.stage, files, seen={})
    assert env.state.numbers() == []
    # A record from elsewhere gets no further: it is refused before the first write.
    number = env.stage({"a.py": NEW})["number"]
    record = env.state.generation(number)
    record["files"][path] = {"sha256": sha256(NEW), "pristine_sha256": None}
    env.state.save(record)
    refused("path_outside", env.swap, number)
    assert env.tree()["a.py"] == WHEEL["a.py"]
    assert env.state.swap_under_way() is None
    assert list((env.root / "elsewhere").iterdir()) == []


def test_a_folder_that_links_within_the_package_is_inside(env: Environment) -> None:
    (env.package_dir / "alias").symlink_to("sub")
    env.deploy({"alias/c.py": b"C = 2\n"})
    assert (env.package_dir / "sub" / "c.py").read_bytes() == b"C = 2\n"


def test_a_package_below_a_symlinked_folder_is_inside(env: Environment) -> None:
    """As /opt/sglang -> /data/sglang."""
    (env.root / "alias").symlink_to(env.site_packages)
    install = {**env.install, "package_dir": str(env.root / "alias" / "demo_pkg")}
    number = env.stage({"a.py": NEW}, install=install)["number"]
    env.swap(number, install)
    assert env.tree()["a.py"] == NEW


# -- swap ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("way")
def test_there_and_back_to_the_byte(env: Environment) -> None:
    number = env.stage(FILES)["number"]
    done = env.swap(number)
    assert (done["changed"], done["verified"]) == (["a.py", "extra/deep/d.py", "sub/c.py"], 3)
    assert env.tree() == with_set(FILES)
    assert env.run("import demo_pkg.extra.deep.d as d, demo_pkg.a as a; print(d.D, a.VALUE)") == (
        "1 fixed"
    )
    assert env.swap(number)["changed"] == []
    env.swap(0)
    assert env.tree() == WHEEL
    assert env.folders() == {"sub"}, "folders that the set made are gone, their bytecode too"


@pytest.mark.usefixtures("way")
def test_whole_sets_replace_whole_sets(env: Environment) -> None:
    env.deploy({"a.py": NEW, "new.py": b"N = 1\n", "sub/c.py": b"C = 2\n"})
    env.deploy({"sub/c.py": b"C = 3\n", "b.py": b"B = 1\n"})
    assert env.tree() == with_set({"sub/c.py": b"C = 3\n", "b.py": b"B = 1\n"})


def test_a_folder_that_others_use_stays(env: Environment) -> None:
    env.deploy({"extra/d.py": b"D = 1\n"})
    (env.package_dir / "extra" / "theirs.txt").write_text("theirs")
    env.swap(0)
    assert env.tree() == {**WHEEL, "extra/theirs.txt": b"theirs"}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("mode", [0o644, 0o600, 0o755, 0o444])
def test_mode_and_owner_stay(env: Environment, mode: int) -> None:
    path = env.package_dir / "a.py"
    path.chmod(mode)
    owner = (12345, 23456) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(path, *owner)
    env.deploy({"a.py": NEW})
    facts = path.stat()
    assert (facts.st_mode & 0o7777, facts.st_uid, facts.st_gid) == (mode, *owner)


@pytest.mark.usefixtures("way")
def test_what_is_added_can_be_read_by_whoever_reads_the_package(env: Environment) -> None:
    owner = (12345, 23456) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    for path in (env.package_dir, env.package_dir / "__init__.py"):
        os.chown(path, *owner)
    number = env.stage({"extra/deep/d.py": b"D = 1\n"})["number"]
    before = os.umask(0o077)
    try:
        env.swap(number)
    finally:
        os.umask(before)
    for name, mode in (("extra", 0o755), ("extra/deep", 0o755), ("extra/deep/d.py", 0o644)):
        facts = (env.package_dir / name).stat()
        assert (facts.st_mode & 0o7777, facts.st_uid, facts.st_gid) == (mode, *owner), name


@pytest.mark.usefixtures("way")
def test_a_hardlink_to_uvs_cache_is_not_written_through(env: Environment) -> None:
    path = env.package_dir / "a.py"
    cache, sibling = env.root / "cached.py", env.root / "sibling.py"
    os.link(path, cache)
    os.link(path, sibling)
    assert path.stat().st_nlink == 3
    env.deploy({"a.py": NEW})
    assert path.read_bytes() == NEW
    assert path.stat().st_nlink == 1
    assert cache.read_bytes() == sibling.read_bytes() == WHEEL["a.py"]
    assert cache.stat().st_nlink == 2
    env.swap(0)
    assert path.stat().st_ino != cache.stat().st_ino


@pytest.mark.usefixtures("way")
def test_a_symlink_into_uvs_cache_is_replaced_and_not_followed(env: Environment) -> None:
    path, cache = env.package_dir / "a.py", env.root / "cached.py"
    path.rename(cache)
    cache.chmod(0o640)
    path.symlink_to(cache)
    env.deploy({"a.py": NEW, "sub/c.py": None})
    assert not path.is_symlink()
    assert path.read_bytes() == NEW
    assert path.stat().st_mode & 0o7777 == 0o640
    assert cache.read_bytes() == WHEEL["a.py"]
    env.swap(0)
    assert path.read_bytes() == WHEEL["a.py"]
    assert cache.read_bytes() == WHEEL["a.py"]


def test_taking_a_symlink_away_leaves_its_target(env: Environment) -> None:
    path, cache = env.package_dir / "sub" / "c.py", env.root / "cached.py"
    path.rename(cache)
    path.symlink_to(cache)
    env.deploy({"sub/c.py": None})
    assert not path.is_symlink()
    assert cache.read_bytes() == WHEEL["sub/c.py"]


@pytest.mark.parametrize("bytecode_is_dropped", [True, False])
def test_old_bytecode_of_the_same_size_and_mtime_does_not_run(
    env: Environment, monkeypatch: pytest.MonkeyPatch, bytecode_is_dropped: bool
) -> None:
    """The second case is the control: left alone, Python does run the old code."""
    path = env.package_dir / "a.py"
    show = "import demo_pkg.a; print(demo_pkg.a.VALUE)"
    os.utime(path, (1_700_000_000, 1_700_000_000))
    assert env.run(show) == "wheel"
    assert list((env.package_dir / "__pycache__").glob("a.*.pyc"))
    number = env.stage({"a.py": NEW})["number"]
    assert len(NEW) == len(WHEEL["a.py"])
    if not bytecode_is_dropped:
        monkeypatch.setattr(packagefiles, "_drop_bytecode", lambda full: None)
    env.swap(number)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    assert env.run(show) == ("fixed" if bytecode_is_dropped else "wheel")


def test_only_the_files_own_bytecode_is_dropped(env: Environment) -> None:
    cache = env.package_dir / "__pycache__"
    cache.mkdir()
    names = [
        "a.cpython-311.pyc",
        "a.cpython-39.opt-2.pyc",
        "a.b.cpython-311.pyc",
        "ab.cpython-311.pyc",
    ]
    for name in names:
        (cache / name).write_bytes(b"")
    env.deploy({"a.py": NEW})
    left = {path.name for path in cache.iterdir()}
    assert left - {"a.b.cpython-311.pyc"} == {"ab.cpython-311.pyc"}


def test_another_version_is_refused(env: Environment) -> None:
    env.deploy({"a.py": NEW})
    env.reinstall(version="2.0")
    fault = refused("version_changed", env.swap, 1)
    assert fault.message == "generation 1 is of version 1.0, but 2.0 is installed now"
    assert env.tree() == WHEEL


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_stored_content_is_looked_at_before_the_first_write(
    env: Environment, damage: str
) -> None:
    number = env.stage(FILES)["number"]
    stored = Path(env.state.path("objects", sha256(b"D = 1\n")))
    if damage == "missing":
        stored.unlink()
    else:
        stored.write_bytes(b"D = 2\n")
    fault = refused("object_damaged", env.swap, number)
    assert fault.message.endswith(f"is {damage}")
    assert env.tree() == WHEEL
    assert env.state.swap_under_way() is None
    env.stage(FILES)  # staging the same again mends the store
    env.swap(number)
    assert env.tree() == with_set(FILES)


def test_a_generation_that_there_is_not(env: Environment) -> None:
    env.stage(FILES)
    fault = refused("generation_missing", env.swap, 7)
    assert fault.message == "there is no generation 7; recorded: 0, 1"


# -- a swap that is cut ----------------------------------------------------------------------


class Cut(Exception):
    """The connection, the power or the disk went away."""


def cut_after(monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    """Cut when so many files have taken their names; what takes its name before the first is
    the marker."""
    left = [files + 1]
    real = os.replace

    def replace(source: str, target: str) -> None:
        if left[0] == 0:
            raise Cut
        left[0] -= 1
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("side", ["forward", "back"])
@pytest.mark.parametrize("files", [0, 1])
def test_a_cut_swap_is_known_and_finished_to_either_side(
    env: Environment, monkeypatch: pytest.MonkeyPatch, files: int, side: str
) -> None:
    number = env.stage(FILES)["number"]
    with monkeypatch.context() as patch:
        cut_after(patch, files)
        with pytest.raises(Cut):
            env.swap(number)
    under_way = env.state.swap_under_way()
    assert under_way is not None
    assert (under_way["from"], under_way["to"]) == (0, number)
    current = env.state.current()
    assert current is not None
    assert current["number"] == 0
    assert env.tree() != with_set(FILES)
    assert not list(env.package_dir.rglob(".opsctl-*")), "no temporary file is left"
    env.swap(number if side == "forward" else 0)
    assert env.tree() == (with_set(FILES) if side == "forward" else WHEEL)
    assert env.folders() == ({"sub", "extra", "extra/deep"} if side == "forward" else {"sub"})
    assert env.state.swap_under_way() is None


@pytest.mark.usefixtures("way")
def test_a_cut_swap_can_end_in_a_third_generation(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.deploy({"b.py": b"B = 1\n"})
    number = env.stage(FILES)["number"]
    with monkeypatch.context() as patch:
        cut_after(patch, 1)
        with pytest.raises(Cut):
            env.swap(number)
    env.swap(0)
    assert env.tree() == WHEEL


def test_the_way_back_of_a_cut_swap_may_be_cut_too(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At once, a cut leaves nothing half done: see test_hostside_exchange.
    monkeypatch.setattr(exchange, "copy", lambda package_dir: None)
    env.deploy({"b.py": b"B = 1\n"})
    number = env.stage({"a.py": NEW, "extra/d.py": b"D = 1\n"})["number"]
    for towards, files in ((number, 1), (1, -1)):
        with monkeypatch.context() as patch:
            cut_after(patch, files)
            with pytest.raises(Cut):
                env.swap(towards)
    env.swap(1)
    assert env.tree() == with_set({"b.py": b"B = 1\n"}), "nothing of the cut generation is left"


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("cut_off", [False, True])
def test_a_unit_that_runs_changes_nothing(
    env: Environment, monkeypatch: pytest.MonkeyPatch, cut_off: bool
) -> None:
    """Whole files are not left marked as a mixture, and a mixture stays marked."""
    before, number = env.tree(), int(env.stage(FILES)["number"])
    marker = Path(env.state.path("swap"))
    if cut_off:
        marker.write_text('{"from": 0, "to": 1, "mixed": [1]}')

    def at_rest(python: str, unit: str, still: list[int]) -> None:
        raise importers.UnitRunning(unit)

    monkeypatch.setattr(importers, "at_rest", at_rest)
    refused("unit_running", env.swap, number)
    assert env.tree() == before
    assert marker.exists() is cut_off


def test_what_is_in_place_needs_no_write(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deploy that failed on a full disk must still find its way back."""
    number = env.stage(FILES)["number"]
    with monkeypatch.context() as patch:
        cut_after(patch, -1)
        with pytest.raises(Cut):
            env.swap(number)
        env.swap(0)
    assert env.tree() == WHEEL


def test_the_way_back_of_a_cut_swap_needs_no_room_in_the_state_folder(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It got full in the middle of the swap: the old files must come back all the same."""
    monkeypatch.setattr(exchange, "copy", lambda package_dir: None)
    number = env.stage(FILES)["number"]
    with monkeypatch.context() as patch:
        cut_after(patch, 1)
        with pytest.raises(Cut):
            env.swap(number)
    assert env.tree() != WHEEL

    def full(path: str, *args: Any) -> str:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    # Its own files; those of the package are written from another module.
    monkeypatch.setattr(state_module, "write_beside", full)
    env.swap(0)
    assert env.tree() == WHEEL
    assert env.state.swap_under_way() is None


def test_a_hand_edit_that_a_rollback_replaces_is_kept(env: Environment) -> None:
    env.deploy({"a.py": NEW})
    (env.package_dir / "a.py").write_bytes(b"VALUE = 'by hand'\n")
    env.swap(0)
    assert env.state.get(sha256(b"VALUE = 'by hand'\n"))


def test_a_write_that_does_not_stay_is_noticed(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = env.stage({"a.py": NEW})["number"]
    monkeypatch.setattr(packagefiles, "_take_names", lambda *args: None)
    fault = refused("swap_unverified", env.swap, number)
    assert fault.message == "after the swap these differ: a.py"
    assert env.state.swap_under_way() is not None


_PATHS = ["a.py", "sub/c.py", "extra/d.py", "extra/deep/e.py"]
_SETS = st.dictionaries(
    st.sampled_from(_PATHS), st.sampled_from([b"x = 1\n", b"y = 1\n", None]), min_size=1
)
_MOVES = st.lists(
    st.tuples(st.sampled_from(["deploy", "go"]), _SETS, st.integers(0, 4), st.integers(0, 2)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=15, deadline=None)
@given(moves=_MOVES)
def test_after_any_history_the_disk_is_the_generation(
    moves: list[tuple[str, Mapping[str, bytes | None], int, int]],
) -> None:
    """Deploys, returns to any generation, and cuts, in any order."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        env = Environment(Path(folder))
        install = env.install
        patch.setattr(installed, "compile_check", lambda python, sources: [])
        expected = {0: dict(sorted(WHEEL.items()))}
        for kind, files, pick, writes in moves:
            if kind == "deploy":
                number = env.stage(files, install=install)["number"]
                expected[number] = with_set(files)
            else:
                number = pick % len(expected)
                if not env.state.numbers():
                    continue
            with pytest.MonkeyPatch.context() as cut:
                if writes < 2:
                    cut_after(cut, writes)
                try:
                    env.swap(number, install)
                except Cut:
                    assert env.state.swap_under_way() is not None
            env.swap(number, install)
            assert env.tree() == expected[number]
            assert env.state.swap_under_way() is None


def test_a_name_of_opsctls_own_is_no_sets(env: Environment) -> None:
    for path in (".opsctl-x.py", "sub/.opsctl-x.py", ".opsctl-y/x.py"):
        with pytest.raises(HostFault) as caught:
            env.stage({path: NEW})
        assert (caught.value.code, bool(caught.value.remedy)) == ("path_reserved", True)


@pytest.mark.usefixtures("way")
def test_such_a_name_of_an_older_generation_does_not_break_swaps(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: dict[str, bytes | None] = {".opsctl-x.py": b"X = 1\n", "b.py": b"B = 1\n"}
    with monkeypatch.context() as patch:
        patch.setattr(packagefiles, "check_new", lambda package_dir, path: None)
        first = env.deploy(files)
        second = env.deploy({**files, "b.py": b"B = 2\n"})
    for number in (first, second, 0, second, 0):
        env.swap(number)
    assert env.tree() == WHEEL


@pytest.mark.usefixtures("way")
def test_a_file_to_remove_may_be_gone_already(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_names = packagefiles._take_names

    def meddle(*args: Any) -> None:
        (env.package_dir / "sub" / "c.py").unlink(missing_ok=True)
        take_names(*args)

    number = env.stage({"sub/c.py": None})["number"]
    monkeypatch.setattr(packagefiles, "_take_names", meddle)
    env.swap(number)
    assert env.tree() == with_set({"sub/c.py": None})
