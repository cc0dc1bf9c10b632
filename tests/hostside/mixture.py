"""Many real imports of a package while its files are swapped, each with what it saw and when.

Hundreds of Pythons are started, as a timer, a cron job or a person starts them: at any moment,
often several at once, and never all the time without a rest.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hostside_tools import Environment

from opsctl.hostside import exchange, importers

MODULES = tuple(f"m{number:02}" for number in range(15))

# The second half is imported late, as SGLang does much. No bytecode: two versions of one size
# and second are told apart by nothing else here.
_IMPORTER = """
import importlib, json, os, sys, time
out, modules = sys.argv[1], sys.argv[2].split(",")
began, seen = time.monotonic(), []
for number, name in enumerate(modules):
    if number == len(modules) // 2:
        time.sleep(0.005)
    try:
        seen.append(importlib.import_module("demo_pkg." + name).VERSION)
    except BaseException as error:
        seen.append(repr(error))
line = (json.dumps([began, time.monotonic(), sorted(set(seen))]) + "\\n").encode()
os.write(os.open(out, os.O_WRONLY | os.O_APPEND), line)
"""

# One of those who start them. Its own name is not that of the environment's Python.
_STARTER = """
import os, random, subprocess, sys, time
pause, stop, argv = float(sys.argv[1]), sys.argv[2], sys.argv[3:]
while not os.path.exists(stop):
    subprocess.run(argv, check=True)
    time.sleep(random.uniform(0, 2 * pause))
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


@contextlib.contextmanager
def importing(
    env: Environment, starters: int = 3, pause: float = 0.1
) -> Iterator[Callable[[], list[Import]]]:
    """Starts all the time, until the block ends; the function gives the imports that are done."""
    out, stop = env.root / "imports", env.root / "stop"
    stop.unlink(missing_ok=True)
    out.write_text("")
    importer = [str(env.python), "-I", "-B", "-c", _IMPORTER, str(out), ",".join(MODULES)]
    starter = [sys.executable, "-I", "-c", _STARTER, str(pause), str(stop), *importer]
    running = [subprocess.Popen(starter) for _ in range(starters)]

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
    """What a run of swaps and imports gave; a swap is (began, ended, who was still starting)."""

    imports: list[Import]
    swaps: list[tuple[float, float, list[int]]]

    @property
    def during(self) -> list[Import]:
        """Those that were under way while a swap was."""
        return [
            i for i in self.imports if any(i.began <= e and i.ended >= b for b, e, _ in self.swaps)
        ]


def measure(
    env: Environment,
    patch: pytest.MonkeyPatch,
    *,
    at_once: bool,
    waits: bool = True,
    wanted: int,
    patience: float,
) -> Swapping:
    """Swap to and fro until `wanted` imports were under way during swaps, but for `patience`
    seconds at most. Without `waits` a swap does not wait for an instant of rest: the control."""
    swaps: list[tuple[float, float, list[int]]] = []
    if not at_once:
        patch.setattr(exchange, "copy", lambda package_dir: None)
    if not waits:
        patch.setattr(importers, "at_rest", lambda python, unit, still: contextlib.nullcontext())
    env.reinstall({"__init__.py": b"", **version(0)})
    install = env.install
    number = env.stage(version(1), install=install)["number"]
    deadline = time.monotonic() + patience
    with importing(env) as done:
        found = Swapping([], swaps)
        while len(found.during) < wanted and time.monotonic() < deadline:
            for target in (number, 0):
                began = time.monotonic()
                answer = env.swap(target, install)
                swaps.append((began, time.monotonic(), answer["starting"]))
                assert answer["atomic"] == at_once
                assert len(answer["changed"]) == len(MODULES)
            found = Swapping(done(), swaps)
    return Swapping(done(), swaps)


def _main() -> None:
    """Figures for docs/security.md: python tests/hostside/mixture.py"""
    import tempfile

    for at_once in (True, False):
        for waits in (True, False):
            with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
                env = Environment(Path(folder))
                found = measure(env, patch, at_once=at_once, waits=waits, wanted=600, patience=120)
                took = sorted(e - b for b, e, _ in found.swaps)
                sys.stdout.write(
                    f"{'at once' if at_once else 'file by file'}, "
                    f"{'waits' if waits else 'does not wait'}: {len(found.swaps)} swaps, "
                    f"median {took[len(took) // 2]:.3f} s, longest {took[-1]:.3f} s, "
                    f"{sum(bool(s) for _, _, s in found.swaps)} out of patience; "
                    f"{len(found.during)} imports during swaps, "
                    f"{sum(i.mixed for i in found.imports)} mixed\n"
                )


if __name__ == "__main__":
    _main()
