"""A package's files changed at one instant: what an importer can see, cuts, and refusals."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hostside_tools import WHEEL, Environment, with_set
from mixture import measure

from opsctl.hostside import exchange, packagefiles
from opsctl.hostside.errors import HostFault
from opsctl.hostside.held import give

pytest_plugins = ["hostside_fixtures"]

NEW = b"VALUE = 'fixed'\n"
FILES: dict[str, bytes | None] = {"a.py": NEW, "extra/deep/d.py": b"D = 1\n", "sub/c.py": None}


def can_exchange(folder: Path) -> bool:
    (folder / "one" / "x").mkdir(parents=True)
    (folder / "x").mkdir()
    if exchange._file_system(str(folder)) == "overlay":
        return False
    one, other = (os.open(each, os.O_RDONLY) for each in (folder / "one", folder))
    try:
        exchange._rename_exchange("x", one, other)
    except OSError:
        return False
    finally:
        os.close(one)
        os.close(other)
    return True


@pytest.fixture
def at_once(tmp_path: Path) -> None:
    if not can_exchange(tmp_path):
        pytest.skip("this file system or kernel has no RENAME_EXCHANGE")


def strays(env: Environment) -> list[Path]:
    return [p for p in env.site_packages.rglob("*") if p.name.startswith(".opsctl-")]


def refuse(*args: Any, **kwargs: Any) -> None:
    raise OSError(errno.EXDEV, "Invalid cross-device link")


# -- what an importer can see ----------------------------------------------------------------


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "file by file"])
def test_of_many_imports_during_swaps_none_is_a_mixture(
    env: Environment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at_once: bool
) -> None:
    """Somebody starts Pythons while opsctl swaps. Without the wait for an instant of rest some
    ten in a hundred see both versions (docs/security.md), so that 150 are enough to see it."""
    if at_once and not can_exchange(tmp_path):
        pytest.skip("this file system or kernel has no RENAME_EXCHANGE")
    found = measure(env, monkeypatch, at_once=at_once, wanted=150, patience=200)
    assert len(found.during) >= 150
    assert [i for i in found.imports if i.mixed] == []
    assert {i.seen for i in found.imports} == {(0,), (1,)}, "both versions were seen, none failed"
    assert [starting for _, _, starting in found.swaps if starting] == []


# -- what it does to the tree ----------------------------------------------------------------


@pytest.mark.usefixtures("at_once")
def test_the_whole_folder_is_another_and_the_rest_of_it_the_same(env: Environment) -> None:
    (env.package_dir / "sub").chmod(0o751)
    (env.package_dir / "alias").symlink_to("sub")
    (env.package_dir / "dangling").symlink_to("nowhere")
    if os.geteuid() == 0:
        os.chown(env.package_dir / "sub", 12345, 23456)
    before = {p: (env.package_dir / p).lstat() for p in ("sub", "b.py", "data.txt", "alias")}
    folder = env.package_dir.stat().st_ino
    number = env.stage(FILES)["number"]
    assert env.swap(number) == {
        "changed": ["a.py", "extra/deep/d.py", "sub/c.py"],
        "verified": 3,
        "atomic": True,
        "starting": [],
    }
    assert env.package_dir.stat().st_ino != folder
    for name, facts in before.items():
        now = (env.package_dir / name).lstat()
        assert (now.st_mode, now.st_uid, now.st_gid) == (facts.st_mode, facts.st_uid, facts.st_gid)
        if name != "sub":
            assert (now.st_ino, now.st_nlink) == (facts.st_ino, facts.st_nlink), name
    assert (env.package_dir / "dangling").is_symlink()
    assert strays(env) == []


@pytest.mark.usefixtures("at_once")
def test_extended_attributes_of_folders_stay(env: Environment) -> None:
    try:
        os.setxattr(env.package_dir / "sub", "user.opsctl", b"label")
    except OSError:
        pytest.skip("no extended attributes here")
    env.deploy(FILES)
    assert os.getxattr(env.package_dir / "sub", "user.opsctl") == b"label"


@pytest.mark.usefixtures("at_once")
def test_what_somebody_else_writes_during_the_swap_is_not_lost(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = exchange.copy

    def meddle(package_dir: str) -> exchange.Tree | None:
        tree = copy(package_dir)
        (env.package_dir / "sub" / "theirs.py").write_bytes(b"T = 1\n")
        (env.package_dir / "late").mkdir()
        (env.package_dir / "late" / "x.txt").write_bytes(b"x")
        (env.package_dir / "b.tmp").write_bytes(b"B = 'theirs'\n")
        (env.package_dir / "b.tmp").replace(env.package_dir / "b.py")
        return tree

    monkeypatch.setattr(exchange, "copy", meddle)
    env.deploy({"a.py": NEW})
    assert env.tree() == {
        **with_set({"a.py": NEW, "b.py": b"B = 'theirs'\n"}),
        "sub/theirs.py": b"T = 1\n",
        "late/x.txt": b"x",
    }


@pytest.mark.usefixtures("at_once")
def test_a_package_that_is_a_link_stays_one(env: Environment) -> None:
    real = env.root / "real"
    env.package_dir.rename(real)
    env.package_dir.symlink_to(real)
    number = env.stage(FILES)["number"]
    assert env.swap(number)["atomic"]
    assert env.package_dir.is_symlink()
    assert env.tree() == with_set(FILES)
    assert not [p for p in env.root.iterdir() if p.name.startswith(".opsctl-")]


# -- where it is refused ---------------------------------------------------------------------


REFUSALS = {
    "exchange": (exchange, "_rename_exchange"),
    "hardlink": (os, "link"),
    "folder": (os, "mkdir"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_is_refused_is_done_file_by_file(
    what: str, env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: dict[str, bytes | None] = {"a.py": NEW, "sub/c.py": None}
    number = env.stage(files)["number"]
    folder = env.package_dir.stat().st_ino
    target, name = REFUSALS[what]
    Path(exchange.LOCKS).mkdir()
    monkeypatch.setattr(target, name, refuse)
    done = env.swap(number)
    assert (done["changed"], done["atomic"]) == (["a.py", "sub/c.py"], False)
    monkeypatch.undo()
    assert env.package_dir.stat().st_ino == folder
    assert env.tree() == with_set(files)
    assert strays(env) == []


def test_on_overlayfs_nothing_is_copied_up(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = env.stage(FILES)["number"]
    monkeypatch.setattr(exchange, "_file_system", lambda folder: "overlay")
    monkeypatch.setattr(exchange, "_copy_folder", lambda *args: pytest.fail("it is copied"))
    assert not env.swap(number)["atomic"]
    assert env.tree() == with_set(FILES)


def test_the_file_system_of_a_folder_is_known() -> None:
    assert exchange._file_system("/proc") == "proc"


def test_a_path_through_a_link_is_done_file_by_file(env: Environment) -> None:
    """In the copy an absolute link would lead back into the package that is in use."""
    (env.package_dir / "alias").symlink_to(env.package_dir / "sub")
    number = env.stage({"alias/c.py": b"C = 2\n"})["number"]
    assert not env.swap(number)["atomic"]
    assert (env.package_dir / "sub" / "c.py").read_bytes() == b"C = 2\n"


def test_a_write_that_fails_changes_nothing_at_all(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = env.stage(FILES)["number"]
    monkeypatch.setattr(packagefiles, "_take_names", lambda *args: None)
    with pytest.raises(HostFault, match="after the swap these differ"):
        env.swap(number)
    assert strays(env) == []


# -- two at once -----------------------------------------------------------------------------


def test_who_may_read_the_environment_cannot_hold_up_a_swap(env: Environment) -> None:
    """Anybody may lock a file or folder that they may open."""
    theirs = [os.open(folder, os.O_RDONLY) for folder in (env.site_packages, env.package_dir)]
    for descriptor in theirs:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    env.deploy(FILES)
    for descriptor in theirs:
        os.close(descriptor)
    locks = Path(exchange.LOCKS)
    assert locks.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in locks.iterdir()] == [0o600]


def test_a_swap_waits_for_another_in_the_same_environment(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = env.stage(FILES)["number"]
    monkeypatch.setattr(exchange, "PATIENCE", 0.2)
    with exchange.alone(str(env.package_dir), "other.service"):
        with pytest.raises(HostFault, match=r"other\.service \(process \d+\)") as caught:
            env.swap(number)
        assert caught.value.code == "env_busy"
        assert str(os.getpid()) in caught.value.remedy
        assert env.state.swap_under_way() is None
        assert env.tree() == WHEEL
    assert env.swap(number)["changed"]


def test_two_swaps_at_once_leave_one_of_the_two_whole(env: Environment) -> None:
    """Each reads what the state folder says when it is alone."""
    first = env.deploy(FILES)
    second = env.deploy({"a.py": b"VALUE = 'second'\n"})
    install = env.install
    for _ in range(5):
        with ThreadPoolExecutor() as pool:
            swaps = [pool.submit(env.swap, number, install) for number in (first, second, 0)]
        for each in swaps:
            each.result()
        current = env.state.current()
        assert current is not None
        sets = {0: WHEEL, first: with_set(FILES), second: with_set({"a.py": b"VALUE = 'second'\n"})}
        assert env.tree() == sets[current["number"]]
        assert env.state.swap_under_way() is None


# -- a package that is another user's --------------------------------------------------------

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def give_away(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def owner(path: Path) -> tuple[int, int]:
    facts = path.lstat()
    return facts.st_uid, facts.st_mode & 0o777


@pytest.fixture
def victim(env: Environment) -> Path:
    """Root's own folder, beside an environment that is nobody's."""
    give_away(env.site_packages)
    folder = env.root / "victim"
    folder.mkdir(mode=0o700)
    (folder / "c.py").write_bytes(b"root's own\n")
    return folder


@as_root
@pytest.mark.usefixtures("at_once")
def test_the_copy_is_made_where_its_owner_cannot_interfere(
    env: Environment, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner puts a link in the place of the copy as soon as that can be seen."""
    seen: list[tuple[int, int]] = []

    def meddle(descriptor: int, facts: os.stat_result) -> None:
        own = Path(exchange.beside(str(env.package_dir)))
        if not own.is_symlink():
            seen.append(owner(own))
            own.rename(env.site_packages / "away")
            own.symlink_to(victim)
        give(descriptor, facts)

    monkeypatch.setattr(exchange, "give", meddle)
    env.deploy(FILES)
    assert seen == [(0, 0o700)]
    assert owner(victim) == (0, 0o700)
    assert owner(victim / "c.py")[0] == 0
    assert sorted(path.name for path in victim.iterdir()) == ["c.py"]
    assert env.tree() == with_set(FILES)
    assert owner(env.package_dir / "extra" / "deep" / "d.py")[0] == NOBODY


@as_root
@pytest.mark.parametrize("when", ["before it is written", "before it takes its name"])
def test_a_folder_that_becomes_a_link_is_not_followed(
    env: Environment, victim: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    number = env.stage({"sub/c.py": NEW, "sub/d.py": NEW})["number"]
    monkeypatch.setattr(exchange, "copy", lambda package_dir: None)
    name = "_write_beside" if when == "before it is written" else "_take_names"
    real = getattr(packagefiles, name)

    def meddle(*args: Any) -> Any:
        folder = env.package_dir / "sub"
        if not folder.is_symlink():
            folder.rename(env.package_dir / "away")
            folder.symlink_to(victim)
        return real(*args)

    monkeypatch.setattr(packagefiles, name, meddle)
    with pytest.raises((HostFault, OSError)):
        env.swap(number)
    assert owner(victim) == (0, 0o700)
    assert sorted(path.name for path in victim.iterdir()) == ["c.py"]
    assert (victim / "c.py").read_bytes() == b"root's own\n"


@as_root
@pytest.mark.usefixtures("at_once")
def test_what_is_carried_over_stays_in_the_package(
    env: Environment, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner writes into the old tree during the swap, and has a link in the new one."""
    carry_over = exchange.Tree.carry_over

    def meddle(tree: exchange.Tree, but: Any) -> None:
        old = Path(tree.path)
        (old / "late").mkdir()
        (old / "late" / "evil.py").write_bytes(b"theirs\n")
        (env.package_dir / "late").symlink_to(victim)
        carry_over(tree, but)

    monkeypatch.setattr(exchange.Tree, "carry_over", meddle)
    with contextlib.suppress(HostFault):
        env.deploy(FILES)
    assert sorted(path.name for path in victim.iterdir()) == ["c.py"]


# -- cuts ------------------------------------------------------------------------------------

CALLS = ("link", "mkdir", "replace", "unlink", "rmdir", "chmod")


def die_at(patch: pytest.MonkeyPatch, call: int) -> None:
    """In a child: no cleaning up, as after a kill or a power cut, before the n-th change."""
    left = [call]

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call_or_die(*args: Any, **kwargs: Any) -> Any:
            if left[0] == 0:
                os._exit(9)
            left[0] -= 1
            return function(*args, **kwargs)

        return call_or_die

    for name in CALLS:
        patch.setattr(os, name, counted(getattr(os, name)))
    patch.setattr(exchange, "_rename_exchange", counted(exchange._rename_exchange))


def cuts(env: Environment, install: dict[str, Any], number: int) -> Iterator[int]:
    """The swap to `number`, cut before its first change, its second, until one is not cut."""
    for call in range(400):
        child = os.fork()
        if child == 0:
            with pytest.MonkeyPatch.context() as patch:
                die_at(patch, call)
                env.swap(number, install)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        yield call
        if os.waitstatus_to_exitcode(status) == 0:
            return
    raise AssertionError("it never got to its end")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.usefixtures("at_once")
def test_cut_anywhere_the_disk_is_one_of_the_two_and_a_second_run_finishes(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    install = env.install
    env.run("import demo_pkg.a, demo_pkg.sub.c")  # bytecode, to be taken along
    number = env.stage(FILES, install=install)["number"]
    last = seen_old = seen_new = 0
    for last in cuts(env, install, number):
        whole = env.tree()
        assert whole in (WHEEL, with_set(FILES)), f"a mixture, cut before change {last}"
        seen_old += whole == WHEEL
        seen_new += whole != WHEEL
        if last % 2:
            env.swap(number, install)
            assert env.tree() == with_set(FILES)
        env.swap(0, install)
        assert env.tree() == WHEEL
        assert strays(env) == []
        assert env.state.swap_under_way() is None
    assert last > 20
    assert seen_old > 5
    assert seen_new > 5
