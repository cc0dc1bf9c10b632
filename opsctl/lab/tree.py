"""Build the Debian tree that labs boot from, once per recipe, and find or prune what was built."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from opsctl.errors import LabUnavailable
from opsctl.events import Emit, Event
from opsctl.lab import launch, pipconfig
from opsctl.lab.recipe import Recipe, cache_folder

_BUILDING = ".building-"
_TAIL_LINES = 8


@contextlib.contextmanager
def _exclusive(folder: Path, emit: Emit) -> Iterator[None]:
    """One build at a time. The lock is the folder itself, so nothing is left behind."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            emit(
                Event("lab.tree", "info", "another build of a lab tree is running; waiting for it")
            )
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def ensure(recipe: Recipe, emit: Emit) -> Path:
    """The finished tree of `recipe`, built now where the cache has none (two to four minutes).

    Raises:
        LabUnavailable: a build step failed; the message quotes the end of its log.
    """
    finished = cache_folder() / recipe.digest
    if finished.is_dir():
        return finished
    with _exclusive(cache_folder(), emit):
        if finished.is_dir():
            return finished
        _remove_unfinished()
        return _Build(recipe, emit).run(finished)


def _remove_unfinished() -> None:
    """What killed builds left; call it only under the lock."""
    for leftover in cache_folder().glob(f"{_BUILDING}*"):
        shutil.rmtree(leftover, ignore_errors=True)


@contextlib.contextmanager
def hold(root: Path) -> Iterator[None]:
    """Keep `root` from being pruned while a lab is being booted from it."""
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def prune(keep: str, emit: Emit) -> None:
    """Delete the trees of other recipes that no lab uses; not now if a build is running."""
    cache = cache_folder()
    lock = os.open(cache, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for folder in cache.iterdir():
            if folder.is_dir() and folder.name != keep and not folder.name.startswith("."):
                _prune_one(folder, emit)
    except BlockingIOError:
        return
    finally:
        os.close(lock)


def _prune_one(folder: Path, emit: Emit) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # a running lab holds it
    else:
        # The rename first: a half-deleted tree must not pass for a whole one.
        doomed = folder.rename(folder.with_name(f"{_BUILDING}{folder.name}"))
        shutil.rmtree(doomed, ignore_errors=True)
        folder.with_name(f"build-{folder.name}.log").unlink(missing_ok=True)
        emit(Event("lab.tree", "info", f"removed the unused tree {folder.name}"))
    finally:
        os.close(handle)


class _Build:
    """One build: steps in order, each an event with its duration, output in one log file."""

    def __init__(self, recipe: Recipe, emit: Emit) -> None:
        self.recipe = recipe
        self.emit = emit
        self.area = cache_folder() / f"{_BUILDING}{recipe.digest}"
        self.tree = self.area / "tree"
        self.log = cache_folder() / f"build-{recipe.digest}.log"
        self.pip = pipconfig.read()

    def run(self, finished: Path) -> Path:
        started = time.monotonic()
        self.area.mkdir(parents=True)
        self.log.write_text("", encoding="utf-8")
        packages = ",".join(self.recipe.debian)
        debootstrap = ["debootstrap", "--variant=minbase", f"--include={packages}"]
        venv = self.recipe.venv
        self._step("Debian", [*debootstrap, self.recipe.suite, str(self.tree)])
        self._inside("virtual environment", ["python3", "-m", "venv", venv])
        self._torch()
        self._inside("SGLang's requirements", self._pip("--requirement", "/run/requirements.txt"))
        self._inside("SGLang", self._pip("--no-deps", self.recipe.sglang))
        # From source alone, imports in three processes would take most of a start.
        compile_all = [f"{venv}/bin/python", "-m", "compileall", "-q", "-j0", f"{venv}/lib"]
        self._inside("bytecode", ["sh", "-c", f"{shlex.join(compile_all)} || true"])
        self._inside("users and identity", ["sh", "-c", self.recipe.finish])
        self.tree.rename(finished)
        shutil.rmtree(self.area, ignore_errors=True)
        seconds = time.monotonic() - started
        self.emit(Event("lab.tree", "ok", f"built the lab's tree in {seconds:.0f} s"))
        return finished

    def _torch(self) -> None:
        """A CPU build if there is any way to one; the default build is CUDA and huge."""
        version = self.recipe.torch
        if self._inside("torch", self._pip(f"torch=={version}+cpu"), may_fail=True):
            return
        # uv knows where PyTorch publishes its CPU builds.
        uv = ["/opt/uv/bin/uv", "pip", "install", f"--python={self.recipe.venv}/bin/python"]
        if self._inside("uv", self._pip("--target=/opt/uv", "uv"), may_fail=True) and self._inside(
            "torch by uv", [*uv, "--torch-backend=cpu", f"torch=={version}"], may_fail=True
        ):
            return
        self.emit(
            Event(
                "lab.tree",
                "warn",
                "no CPU build of torch can be reached; fetching the default build, which with "
                "its CUDA libraries takes about 4 GB to download and 8 GB of disk",
            )
        )
        self._inside("torch with CUDA", self._pip(f"torch=={version}"))

    def _pip(self, *what: str) -> list[str]:
        options = ["--no-input", "--progress-bar=off", "--no-compile", "--no-cache-dir"]
        return [f"{self.recipe.venv}/bin/python", "-m", "pip", "install", *options, *what]

    def _inside(self, label: str, command: Sequence[str], *, may_fail: bool = False) -> bool:
        """One command in the tree, with this machine's pip configuration and resolver."""
        requirements = self.area / "requirements.txt"
        requirements.write_text(self.recipe.requirements, encoding="utf-8")
        nspawn = [*launch.NSPAWN, "--as-pid2", "--pipe", "--resolv-conf=bind-host"]
        nspawn += ["--machine=opsctl-lab-build"]
        nspawn += [f"--setenv={name}={value}" for name, value in self.pip.environment.items()]
        binds = {requirements: "/run/requirements.txt"} | {Path(p): p for p in self.pip.paths}
        nspawn += [f"--bind-ro={_escape(str(src))}:{_escape(dst)}" for src, dst in binds.items()]
        spec = {"tree": str(self.tree), "nspawn": [*nspawn, *command]}
        name = f"opsctl-lab-build-{os.getpid()}"
        argv = launch.command(name, self.area / "spec.json", spec)
        return self._step(label, argv, may_fail=may_fail)

    def _step(self, label: str, argv: Sequence[str], *, may_fail: bool = False) -> bool:
        started = time.monotonic()
        self.emit(Event("lab.tree", "start", label))
        with self.log.open("ab") as log:
            log.write(f"\n== {label}\n".encode())
            log.flush()
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
            )
        seconds = round(time.monotonic() - started, 1)
        if done.returncode == 0:
            self.emit(Event("lab.tree", "ok", f"{label} ({seconds:.0f} s)", {"seconds": seconds}))
            return True
        if may_fail:
            self.emit(Event("lab.tree", "info", f"{label}: not available here"))
            return False
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        raise LabUnavailable(
            f"building the lab's tree failed at {label!r} with status {done.returncode}:\n"
            + "\n".join(lines[-_TAIL_LINES:]),
            remedy=f"see {self.log}, mend the cause and run the command again",
            code="lab_build_failed",
        )


def _escape(path: str) -> str:
    """A path for nspawn's --bind, where a colon separates and a backslash escapes."""
    return path.replace("\\", "\\\\").replace(":", "\\:")
