"""Whose Python root does not run as root: real environments of another user."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from opsctl.hostside import install, owner
from opsctl.hostside.errors import HostFault

NOBODY = 65534
SYSTEM_PYTHON = Path("/usr/bin/python3")

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not SYSTEM_PYTHON.exists(),
    reason="only root can be another user, who needs a Python within reach",
)


def environment(root: Path) -> Path:
    """An environment with a package in it, whose start-up writes down who runs it; its Python."""
    argv = [str(SYSTEM_PYTHON), "-I", "-m", "venv", "--without-pip", str(root / "env")]
    subprocess.run(argv, check=True)
    site = next((root / "env" / "lib").glob("python3*")) / "site-packages"
    (site / "demo").mkdir()
    (site / "demo" / "__init__.py").touch()
    info = site / "demo-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    (info / "direct_url.json").write_text('{"url": "file:///src", "dir_info": {"editable": true}}')
    (root / "who").touch()
    (root / "who").chmod(0o666)
    (site / "who.pth").write_text(
        f"import os; open({str(root / 'who')!r}, 'a').write("
        "'%d %d %s\\n' % (os.getuid(), os.getgid(), os.getgroups()))\n"
    )
    return root / "env" / "bin" / "python"


def give(root: Path) -> None:
    for path in (root, *root.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def asked(root: Path, python: Path) -> set[str]:
    """What the two questions to that Python ran as: user, group, groups."""
    found = install.locate(str(python), "demo", "demo")
    assert (found["version"], found["editable"]) == ("1.0", True)
    assert found["package_dir"].startswith(str(root))
    (bad,) = install.compile_check(str(python), {"a.py": b"x = 1\n", "b.py": b"def\n"})
    assert bad["path"] == "b.py"
    return set((root / "who").read_text().splitlines())


@pytest.fixture
def reachable() -> Iterator[Path]:
    """pytest's own folders are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_roots_own_runs_as_root(reachable: Path) -> None:
    python = environment(reachable)
    assert owner.owner(str(python)) is None
    assert {line.split()[0] for line in asked(reachable, python)} == {"0"}


@pytest.mark.parametrize(
    "what", ["env", "env/bin/python", "env/pyvenv.cfg", "env/lib/python3*/site-packages"]
)
def test_another_users_runs_as_that_user(reachable: Path, what: str) -> None:
    python = environment(reachable)
    for path in reachable.glob(what):
        give(path)
    groups = os.getgrouplist("nobody", NOBODY)
    assert asked(reachable, python) == {f"{NOBODY} {NOBODY} {groups}"}


def test_in_another_users_folder_it_could_be_replaced(reachable: Path) -> None:
    python = environment(reachable)
    os.chown(reachable, NOBODY, NOBODY)
    assert {line.split()[0] for line in asked(reachable, python)} == {str(NOBODY)}


def test_who_cannot_get_there_is_only_a_number(tmp_path: Path) -> None:
    """As of an archive that was unpacked in root's home."""
    python = environment(tmp_path)
    give(tmp_path / "env")
    tmp_path.chmod(0o700)
    assert {line.split()[0] for line in asked(tmp_path, python)} == {"0"}


def test_a_number_without_a_user_has_no_groups(reachable: Path) -> None:
    python = environment(reachable)
    for path in (reachable / "env").rglob("*"):
        os.chown(path, 54321, 0, follow_symlinks=False)
    assert asked(reachable, python) == {"54321 65534 []"}


def test_an_owner_who_cannot_run_it_is_named(reachable: Path) -> None:
    python = environment(reachable)
    give(reachable / "env")
    python.unlink()
    closed = reachable / "closed"
    closed.mkdir(mode=0o700)
    (closed / "python").symlink_to(SYSTEM_PYTHON)
    python.symlink_to(closed / "python")
    with pytest.raises(HostFault, match=r"(?s)as its owner \(uid 65534\).*Permission") as caught:
        install.locate(str(python), "demo", "demo")
    assert caught.value.code == "python_broken"
