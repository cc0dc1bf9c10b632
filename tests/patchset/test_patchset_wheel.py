"""Fetching by hash: the cache, pip's command line, and every way in which it can fail."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patchset_tools import WHEEL_NAME, ddtree, make_diff, make_set, make_wheel

from opsctl.errors import PatchError, Refused
from opsctl.events import Event
from opsctl.patchset import PatchSet, WheelPin, fetch, load, read_sources, record_sha256
from opsctl.patchset import wheel as module


@pytest.fixture
def patchset(tmp_path: Path) -> PatchSet:
    sha256 = make_wheel(tmp_path / WHEEL_NAME, {"a.py": b"x = 1\n"})
    diff = make_diff("a.py", b"x = 1\n", b"x = 2\n")
    return load(make_set(tmp_path / "fix", {"0001-a.patch": diff}, sha256=sha256))


class FakePip:
    """Stands in for subprocess.run: copies `wheel` to --dest, or fails with `stderr`."""

    def __init__(self, wheel: Path | None = None, stderr: str = "") -> None:
        self.wheel = wheel
        self.stderr = stderr
        self.commands: list[list[str]] = []
        self.requirements = ""

    def __call__(self, command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        requirements = Path(command[command.index("--requirement") + 1])
        self.requirements = requirements.read_text()
        if self.wheel is not None:
            shutil.copy(self.wheel, command[command.index("--dest") + 1])
        return subprocess.CompletedProcess(command, 0 if self.wheel else 1, "", self.stderr)


def test_download_then_cache(
    tmp_path: Path, patchset: PatchSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = FakePip(tmp_path / WHEEL_NAME)
    monkeypatch.setattr(subprocess, "run", pip)
    events: list[Event] = []
    cache = tmp_path / "cache"
    path = fetch(patchset, cache, events.append)
    assert path == cache / WHEEL_NAME
    assert fetch(patchset, cache, events.append) == path
    assert len(pip.commands) == 1
    assert [event.state for event in events] == ["start", "ok", "ok"]
    assert pip.requirements == (f"demo==1.0 --hash=sha256:{patchset.target.wheels[0].sha256}\n")
    assert [file.name for file in cache.iterdir()] == [WHEEL_NAME]
    path.write_bytes(b"damaged")
    fetch(patchset, cache)
    assert path.read_bytes() == (tmp_path / WHEEL_NAME).read_bytes()


def test_the_default_cache_follows_xdg(
    tmp_path: Path, patchset: PatchSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(subprocess, "run", FakePip(tmp_path / WHEEL_NAME))
    assert fetch(patchset) == tmp_path / "xdg" / "opsctl" / "wheels" / WHEEL_NAME


def refused(patchset: PatchSet, cache: Path) -> Refused:
    with pytest.raises(Refused) as caught:
        fetch(patchset, cache)
    assert caught.value.remedy
    return caught.value


def test_another_content_than_the_pinned(
    tmp_path: Path, patchset: PatchSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other" / WHEEL_NAME
    other.parent.mkdir()
    make_wheel(other, {"a.py": b"evil\n"})
    monkeypatch.setattr(subprocess, "run", FakePip(other))
    cache = tmp_path / "cache"
    assert refused(patchset, cache).code == "wheel_hash"
    assert list(cache.iterdir()) == []


def test_another_file_than_the_pinned(
    tmp_path: Path, patchset: PatchSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "demo-1.0-py2-none-any.whl"
    make_wheel(other, {})
    monkeypatch.setattr(subprocess, "run", FakePip(other))
    assert refused(patchset, tmp_path / "cache").code == "wheel_download"


def test_pip_fails(tmp_path: Path, patchset: PatchSet, monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = "WARNING: old\nERROR: No matching distribution found for demo==1.0\n"
    monkeypatch.setattr(subprocess, "run", FakePip(stderr=stderr))
    error = refused(patchset, tmp_path / "cache")
    assert error.message.endswith(": ERROR: No matching distribution found for demo==1.0")
    monkeypatch.setattr(subprocess, "run", FakePip())
    assert refused(patchset, tmp_path / "cache").message.endswith("pip said nothing")


def test_pip_hangs(tmp_path: Path, patchset: PatchSet, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(command: list[str], **options: Any) -> None:
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(subprocess, "run", hang)
    assert "no end after 600 s" in refused(patchset, tmp_path / "cache").message


def test_a_cache_that_cannot_be_written(tmp_path: Path, patchset: PatchSet) -> None:
    (tmp_path / "file").write_text("")
    error = refused(patchset, tmp_path / "file" / "cache")
    assert error.code == "wheel_cache"


def test_which_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.pip_command() == [sys.executable, "-m", "pip"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = {"uv": "/bin/uv", "python3": "/bin/python3"}
    monkeypatch.setattr(shutil, "which", found.get)
    assert module.pip_command() == ["/bin/uv", "tool", "run", "pip"]
    del found["uv"]
    code = 0
    monkeypatch.setattr(
        subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, code)
    )
    assert module.pip_command() == ["/bin/python3", "-m", "pip"]
    code = 1
    with pytest.raises(Refused, match="no pip"):
        module.pip_command()
    del found["python3"]
    with pytest.raises(Refused, match="no pip"):
        module.pip_command()


@pytest.mark.parametrize(
    ("filename", "options"),
    [
        (
            "sglang-0.5.12.post1-cp311-cp311-manylinux_2_34_x86_64.whl",
            [
                "--platform=manylinux_2_34_x86_64",
                "--implementation=cp",
                "--abi=cp311",
                "--python-version=3.11",
            ],
        ),
        ("demo-1.0-py3-none-any.whl", ["--platform=any", "--implementation=py", "--abi=none"]),
    ],
)
def test_pips_arguments(tmp_path: Path, filename: str, options: list[str]) -> None:
    pin = WheelPin(filename=filename, sha256="ab" * 32)
    assert module.download_arguments(pin, tmp_path / "r.txt", tmp_path) == [
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
        "--disable-pip-version-check",
        "--no-input",
        "--progress-bar=off",
        *options,
        "--dest",
        str(tmp_path),
        "--requirement",
        str(tmp_path / "r.txt"),
    ]


def test_sources_and_record(tmp_path: Path) -> None:
    wheel = tmp_path / WHEEL_NAME
    make_wheel(wheel, {"a.py": b"x = 1\n"})
    sources, hashes = read_sources(wheel, "demo", ["a.py", "b.py"])
    assert sources == {"a.py": b"x = 1\n", "b.py": None}
    assert set(hashes) == {"a.py"}
    assert (
        record_sha256('"demo/a,b.py",md5=x,1\ndemo/c.py,,\nother/d.py,sha256=AA,1\n', "demo") == {}
    )
    wheel.write_bytes(b"no zip")
    with pytest.raises(PatchError, match="as a wheel"):
        read_sources(wheel, "demo", [])


@pytest.mark.wheel
def test_the_real_wheel_comes_by_its_hash(tmp_path: Path) -> None:
    patchset = ddtree()
    path = fetch(patchset, tmp_path)
    assert module.file_sha256(path) == patchset.target.wheels[0].sha256
