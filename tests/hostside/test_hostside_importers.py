"""Who is starting a Python just now: real processes of real environments."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hostside_tools import Environment

from opsctl.hostside import importers, probe
from opsctl.hostside.errors import HostFault

pytest_plugins = ["hostside_fixtures"]

_SLEEP = "import sys, time; print('up', flush=True); time.sleep(60)"


@contextmanager
def running(*argv: object, **options: Any) -> Iterator[int]:
    words = [*map(str, argv), "-c", _SLEEP]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, **options)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def test_a_young_process_of_the_environment_is_starting(env: Environment) -> None:
    python = str(env.python)
    assert importers.starting(python) == []
    with running(env.python, "-I") as pid:
        assert importers.starting(python) == [pid]
        time.sleep(0.05)
        assert importers.starting(python, young=0.02) == [], "it has started long ago"
    assert importers.starting(python) == []


def test_another_environment_of_the_same_python_is_not_it(
    env: Environment, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Environment(tmp_path_factory.mktemp("other"))
    with running(other.python) as pid:
        assert importers.starting(str(other.python)) == [pid]
        assert importers.starting(str(env.python)) == []


@pytest.mark.parametrize("called", ["by PATH", "from its folder"])
def test_it_is_found_however_it_was_called(env: Environment, called: str) -> None:
    folder = env.python.parent
    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "by PATH": ("python", {"env": {"PATH": f"{folder}:/usr/bin:/bin"}}),
        "from its folder": ("./python", {"cwd": folder}),
    }
    name, options = calls[called]
    with running(name, executable=folder / "python", **options) as pid:
        assert importers.starting(str(env.python)) == [pid]


def test_opsctl_itself_does_not_count_where_the_service_runs_in_the_systems_python(
    tmp_path: Path,
) -> None:
    python = str(Path(sys.executable).resolve())
    guard = tmp_path / "guard.py"
    guard.write_text(_SLEEP)
    with subprocess.Popen([python, "-I", str(guard)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with running(python) as pid:
            found = importers.starting(python)
        process.kill()
    assert pid in found
    assert process.pid not in found


def test_the_wait_ends_when_nobody_is_starting_or_with_the_patience() -> None:
    still: list[int] = []
    looks = iter([[7], [7, 8], []])
    with importers.at_rest("python", "serve.service", still, look=lambda python: next(looks)):
        assert still == []
    began = time.monotonic()
    with importers.at_rest("python", "serve.service", still, 0.1, look=lambda python: [9]):
        assert 0.1 <= time.monotonic() - began < 5
    assert still == [9]


def test_the_priority_is_for_the_instant_only() -> None:
    before = os.sched_getscheduler(0)
    with importers.at_rest("python", "serve.service", [], look=lambda python: []):
        if os.geteuid() == 0:
            assert os.sched_getscheduler(0) == os.SCHED_FIFO
    assert os.sched_getscheduler(0) == before


def test_without_the_right_to_a_priority_it_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refused)
    with importers.at_rest("python", "serve.service", [], look=lambda python: []):
        pass


def test_a_service_that_somebody_starts_meanwhile_is_not_waited_for(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "in_unit", lambda pid, unit: unit == "serve.service")
    with (
        running(env.python),
        pytest.raises(HostFault, match="a swap needs it stopped") as caught,
        importers.at_rest(str(env.python), "serve.service", []),
    ):
        pytest.fail("the files change under it")
    assert caught.value.code == "unit_running"
