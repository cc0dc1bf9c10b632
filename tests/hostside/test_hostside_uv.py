"""Stage and swap on environments that the real uv made, which share their files with its cache."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hostside_tools import DISTRIBUTION, PACKAGE, WHEEL, Environment, with_set

from opsctl.hostside import install as installed
from opsctl.hostside.errors import HostFault
from opsctl.hostside.state import State

# scripts/test installs uv beside pytest; PATH may have another.
_BESIDE = Path(sys.executable).parent / "uv"
UV = str(_BESIDE) if _BESIDE.exists() else shutil.which("uv")

pytestmark = pytest.mark.skipif(UV is None, reason="uv is not installed: pip install uv")

FIXED = b"VALUE = 'fixed'\n"
FILES: dict[str, bytes | None] = {"a.py": FIXED, "extra/deep/d.py": b"D = 1\n", "sub/c.py": None}

# An in-tree build backend: nothing is downloaded for it.
_BACKEND = """
import zipfile
def build_editable(folder, config_settings=None, metadata_directory=None):
    info = "demo_dist-1.0.dist-info"
    files = {{
        "demo_dist.pth": {source!r} + "\\n",
        info + "/METADATA": "Metadata-Version: 2.1\\nName: demo-dist\\nVersion: 1.0\\n",
        info + "/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }}
    files[info + "/RECORD"] = "".join(name + ",,\\n" for name in [*files, info + "/RECORD"])
    with zipfile.ZipFile(folder + "/demo_dist-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return "demo_dist-1.0-py3-none-any.whl"
"""


def build_wheel(folder: Path) -> None:
    folder.mkdir()
    info = "demo_dist-1.0.dist-info"
    files = {f"{PACKAGE}/{name}": data for name, data in WHEEL.items()}
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: 1.0\n".encode()
    )
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    rows = []
    for name, data in files.items():
        coded = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={coded},{len(data)}")
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]).encode() + b"\n"
    with zipfile.ZipFile(folder / "demo_dist-1.0-py3-none-any.whl", "w") as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)


class UvEnvironment(Environment):
    """One that uv made and filled; `root` holds the wheel and the cache too."""

    def __init__(self, root: Path, name: str, mode: str) -> None:
        self.root, self.mode = root, mode
        self.uv("venv", "--python", sys.executable, str(root / name))
        self.python = root / name / "bin" / "python"
        self.site_packages = next((root / name / "lib").glob("python3*")) / "site-packages"
        self.package_dir = self.site_packages / PACKAGE
        self.dist_info = self.site_packages / "demo_dist-1.0.dist-info"
        self.state = State(str(root / "state"), "serve")
        self.add()

    def uv(self, *argv: str) -> None:
        assert UV is not None
        own = {
            "UV_CACHE_DIR": str(self.root / "cache"),
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_OFFLINE": "1",
            "UV_NO_CONFIG": "1",
        }
        done = subprocess.run(
            [UV, *argv], env={**os.environ, **own}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def add(self, *options: str) -> None:
        self._install = None
        self.uv(
            *(
                "pip",
                "install",
                f"--python={self.python}",
                "--no-index",
                f"--link-mode={self.mode}",
            ),
            *(f"--find-links={self.root / 'dist'}", *options, DISTRIBUTION),
        )


@pytest.fixture
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[UvEnvironment, UvEnvironment]:
    build_wheel(tmp_path / "dist")
    mode = str(request.param)
    return UvEnvironment(tmp_path, "env", mode), UvEnvironment(tmp_path, "sibling", mode)


both = pytest.mark.parametrize("pair", ["hardlink", "symlink"], indirect=True)


def facts(root: Path) -> dict[str, tuple[bytes, int, int, int]]:
    """Every file below: its content, its own inode and mode, and its target's inode."""
    return {
        str(path.relative_to(root)): (
            path.read_bytes(),
            path.lstat().st_ino,
            path.stat().st_mode,
            path.stat().st_ino,
        )
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }


@both
def test_the_sibling_and_the_cache_stay_as_they_were(
    pair: tuple[UvEnvironment, UvEnvironment],
) -> None:
    env, sibling = pair
    cache = env.root / "cache"
    shared = env.package_dir / "a.py"
    if env.mode == "hardlink":
        assert shared.stat().st_ino == (sibling.package_dir / "a.py").stat().st_ino
        assert shared.stat().st_nlink >= 3, "env, sibling and cache"
    else:
        assert shared.is_symlink()
        assert cache in shared.resolve().parents
    before = facts(sibling.package_dir), facts(cache)
    assert any(data == WHEEL["a.py"] for data, *_ in before[1].values()), "it is in the cache"
    hashes = env.tree()
    assert hashes == WHEEL
    assert env.run("import demo_pkg.a; print(demo_pkg.a.VALUE)") == "wheel"

    number = env.deploy(FILES)
    assert env.tree() == with_set(FILES)
    assert env.run("import demo_pkg.a; print(demo_pkg.a.VALUE)") == "fixed"
    assert sibling.run("import demo_pkg.a; print(demo_pkg.a.VALUE)") == "wheel"
    assert (facts(sibling.package_dir), facts(cache)) == before
    assert env.state.generation(number)["files"]["a.py"]["pristine_sha256"] == (
        hashlib.sha256(WHEEL["a.py"]).hexdigest()
    )

    env.swap(0)
    assert env.tree() == hashes
    assert env.folders() == {"sub"}, "what was added is gone"
    assert installed.audit(env.install, PACKAGE) == {"modified": [], "missing": [], "extra": []}
    assert (facts(sibling.package_dir), facts(cache)) == before


@both
def test_stale_bytecode_of_the_same_size_and_time_does_not_run(
    pair: tuple[UvEnvironment, UvEnvironment],
) -> None:
    env, _ = pair
    path, show = env.package_dir / "a.py", "import demo_pkg.a; print(demo_pkg.a.VALUE)"
    assert env.run(show) == "wheel"
    time = path.stat().st_mtime
    assert len(FIXED) == len(WHEEL["a.py"])
    env.deploy({"a.py": FIXED})
    os.utime(path, (time, time))
    assert env.run(show) == "fixed"


@both
def test_a_reinstall_in_between_is_recognised(pair: tuple[UvEnvironment, UvEnvironment]) -> None:
    env, sibling = pair
    env.deploy(FILES)
    env.add("--reinstall")
    left = {"extra/deep/d.py": b"D = 1\n"}
    assert env.tree() == {**WHEEL, **left}, "uv takes away what its RECORD lists, no more"
    assert installed.audit(env.install, PACKAGE)["extra"] == ["extra/deep/d.py"]
    record = env.stage({"b.py": b"B = 2\n"})
    found = env.state.generation(record["predecessor"])
    assert (found["status"], found["number"], record["number"]) == ("found", 2, 3)
    env.swap(3)
    assert env.tree() == {**with_set({"b.py": b"B = 2\n"})}, "the set that was taken away is gone"
    env.swap(0)
    assert env.tree() == WHEEL
    assert sibling.tree() == WHEEL


@pytest.mark.parametrize("pair", ["hardlink"], indirect=True)
def test_an_editable_install_is_recognised_and_left_alone(
    pair: tuple[UvEnvironment, UvEnvironment],
) -> None:
    env, _ = pair
    env.deploy({"a.py": FIXED})
    project = env.root / "project"
    shutil.copytree(env.package_dir, project / PACKAGE)
    (project / "backend.py").write_text(_BACKEND.format(source=str(project)))
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "{DISTRIBUTION}"\nversion = "1.0"\n'
    )
    env.uv("pip", "install", f"--python={env.python}", "--no-index", "-e", str(project))
    env._install = None
    assert env.install["editable"]
    assert env.install["package_dir"] == str(project / PACKAGE)
    before = facts(project)
    attempts: list[Callable[[], object]] = [
        lambda: env.swap(0),
        lambda: env.stage({"a.py": b"A = 1\n"}),
    ]
    for attempt in attempts:
        with pytest.raises(HostFault) as caught:
            attempt()
        assert caught.value.code == "editable_install"
    assert facts(project) == before, "somebody's checkout is not a release to patch"
