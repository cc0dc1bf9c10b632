"""Many real imports of a package while its files are swapped, each with what it saw and when."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hostside_tools import Environment

from opsctl.hostside import exchange

MODULES = tuple(f"m{number:02}" for number in range(15))

# A fork for each import: a process that has nothing of the package, without the time that a
# fresh interpreter takes. No bytecode: two versions of one size and second are told apart by
# nothing else here. The second half is imported late, as SGLang does much.
_IMPORTER = """
import importlib, json, os, sys, time
sys.dont_write_bytecode = True
site, modules, out, stop = sys.argv[1], sys.argv[2].split(","), sys.argv[3], sys.argv[4]
sys.path.insert(0, site)
log = os.open(out, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def one():
    began, seen = time.monotonic(), []
    for number, name in enumerate(modules):
        if number == len(modules) // 2:
            time.sleep(0.002)
        seen.append(importlib.import_module("demo_pkg." + name).VERSION)
    os.write(log, (json.dumps([began, time.monotonic(), sorted(set(seen))]) + "\\n").encode())
while not os.path.exists(stop):
    if os.fork() == 0:
        try:
            one()
        except BaseException as error:
            os.write(log, (json.dumps([0, 0, [repr(error)]]) + "\\n").encode())
        os._exit(0)
    os.wait()
"""


def version(number: int) -> dict[str, bytes]:
    return {f"{name}.py": b"VERSION = %d\n" % number for name in MODULES}


@dataclass(frozen=True, slots=True)
class Import:
    began: float
    ended: float
    seen: tuple[object, ...]

    @property
    def mixed(self) -> bool:
        return len(self.seen) != 1


@contextmanager
def importing(env: Environment, processes: int = 3) -> Iterator[Callable[[], list[Import]]]:
    """Imports all the time, until the block ends; the function gives those that are done."""
    out, stop = env.root / "imports", env.root / "stop"
    stop.unlink(missing_ok=True)
    out.write_text("")
    argv = [sys.executable, "-I", "-c", _IMPORTER, str(env.site_packages), ",".join(MODULES)]
    running = [subprocess.Popen([*argv, str(out), str(stop)]) for _ in range(processes)]

    def done() -> list[Import]:
        lines = out.read_text().splitlines()
        return [Import(b, e, tuple(seen)) for b, e, seen in map(json.loads, lines)]

    try:
        yield done
    finally:
        stop.touch()
        for process in running:
            process.wait(30)


@dataclass(frozen=True, slots=True)
class Swapping:
    """What a run of swaps and imports gave. An instant is when the folders changed places."""

    imports: list[Import]
    swaps: list[tuple[float, float]]
    instants: list[tuple[float, float]]

    @property
    def during(self) -> list[Import]:
        """Those that began while a swap was under way."""
        return [i for i in self.imports if any(b <= i.began <= e for b, e in self.swaps)]

    @property
    def clear(self) -> list[Import]:
        """Those of them that were not over an instant."""
        return [i for i in self.during if not self.straddles(i)]

    def straddles(self, one: Import) -> bool:
        return any(one.began <= after and one.ended >= before for before, after in self.instants)


def measure(
    env: Environment, patch: pytest.MonkeyPatch, *, at_once: bool, wanted: int, patience: float
) -> Swapping:
    """Swap to and fro until `wanted` imports began during swaps that are not over an instant of
    exchange, but for `patience` seconds at most."""
    swaps: list[tuple[float, float]] = []
    instants: list[tuple[float, float]] = []
    rename = exchange._rename_exchange

    def timed(one: str, other: str) -> None:
        before = time.monotonic()
        rename(one, other)
        instants.append((before, time.monotonic()))

    patch.setattr(exchange, "_rename_exchange", timed)
    if not at_once:
        patch.setattr(exchange, "copy", lambda package_dir: None)
    env.reinstall({"__init__.py": b"", **version(0)})
    install = env.install
    number = env.stage(version(1), install=install)["number"]
    deadline = time.monotonic() + patience
    with importing(env) as done:
        found = Swapping([], swaps, instants)
        while len(found.clear) < wanted and time.monotonic() < deadline:
            for target in (number, 0):
                began = time.monotonic()
                answer = env.swap(target, install)
                swaps.append((began, time.monotonic()))
                assert answer["atomic"] == at_once
                assert len(answer["changed"]) == len(MODULES)
                time.sleep(0.02)
            found = Swapping(done(), swaps, instants)
    return Swapping(done(), swaps, instants)


def _main() -> None:
    """Figures for docs/security.md: python tests/hostside/mixture.py"""
    import tempfile

    for at_once in (False, True):
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            env = Environment(Path(folder))
            found = measure(env, patch, at_once=at_once, wanted=600, patience=90)
            during = found.during
            over = [i for i in found.imports if found.straddles(i)]
            sys.stdout.write(
                f"{'at once' if at_once else 'one by one'}: {len(found.swaps)} swaps, "
                f"{len(found.imports)} imports, {len(during)} began during swaps, "
                f"{sum(i.mixed for i in during)} of these mixed; {len(over)} over the instant, "
                f"{sum(i.mixed for i in over)} of these mixed\n"
            )


if __name__ == "__main__":
    _main()
