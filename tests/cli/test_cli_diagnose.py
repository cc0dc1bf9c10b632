"""What `opsctl diagnose` reads, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "sglang" / "data"
CRASH = DATA / "verify-crash-0.5.12.post1-dflash-cpu.log"
HEALTHY = DATA / "healthy-0.5.12.post1-dflash-cpu.log"


def ran(
    *arguments: str, stdin: bytes | None = None, cwd: Path = ROOT
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "opsctl.cli", "diagnose", *arguments]
    feed: dict[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    return subprocess.run(
        command, capture_output=True, check=False, cwd=cwd, env=environment, **feed
    )


def test_a_file_with_an_incident() -> None:
    done = ran(str(CRASH), "--json")
    report = json.loads(done.stdout)
    assert done.returncode == report["exit_code"] == 11
    assert (report["verdict"], report["incident"]) == ("fail", True)
    assert report["kind"] == "tensor_size_mismatch"
    assert report["reasons"][0]["code"] == report["kind"]
    assert report["reasons"][0]["remedy"] == report["remedy"]


def test_for_a_person_lines_count_from_one() -> None:
    done = ran(str(CRASH))
    decisive = json.loads(ran(str(CRASH), "--json").stdout)["decisive"][0]
    shown = done.stdout.decode()
    assert f"line {decisive + 1} " in shown
    line = CRASH.read_bytes().decode().split("\n")[decisive]
    assert "must match the size of tensor b (33)" in line
    assert shown.count("One step of 33 tokens") == 1


@pytest.mark.parametrize("arguments", [("-",), ()])
def test_a_pipe(arguments: tuple[str, ...]) -> None:
    done = ran(*arguments, "--json", stdin=HEALTHY.read_bytes())
    assert (done.returncode, json.loads(done.stdout)["incident"]) == (0, False)


def test_nothing_to_read_is_no_health() -> None:
    done = ran("-", "--json", stdin=b"")
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"], report["incident"]) == (12, "inconclusive", False)


def test_journalctls_json() -> None:
    entries: list[dict[str, object]] = [
        {"MESSAGE": "[2026-01-01 00:00:00] The server is fired up and ready to roll!"},
        {"MESSAGE": list(b"torch.OutOfMemoryError: \x1b[31mCUDA out of memory. Tried")},
    ]
    lines = "".join(json.dumps({"_PID": "7", **entry}) + "\n" for entry in entries)
    report = json.loads(ran("-", "--json", stdin=lines.encode()).stdout)
    assert (report["kind"], report["decisive"]) == ("cuda_oom", [1])


def test_neither_a_host_nor_a_file() -> None:
    done = ran("no-such-thing")
    assert done.returncode == 2
    assert b"no host of the inventory (ct200" in done.stderr
    assert b"no file" in done.stderr
    assert json.loads(ran("no-such-thing", "--json").stdout)["reasons"][0]["code"] == (
        "no_such_source"
    )


def test_a_folder_is_no_journal() -> None:
    done = ran("./tests")
    assert done.returncode == 2
    assert b"Is a directory" in done.stderr


def test_two_sources() -> None:
    assert ran(str(CRASH), "--host", "ct200").returncode == 2


def test_a_module_of_a_patch_set_in_the_traceback() -> None:
    lines = (
        b"[2026-01-01 00:00:00 TP0] Scheduler hit an exception: "
        b"Traceback (most recent call last):\n"
        b'  File "/v/site-packages/sglang/srt/speculative/%s.py", line 1, in verify\n'
        b"ZeroDivisionError: division by zero\n"
    )
    ours = json.loads(ran("-", "--json", stdin=lines % b"ddtree_worker").stdout)
    theirs = json.loads(ran("-", "--json", stdin=lines % b"dflash_worker").stdout)
    assert (ours["kind"], ours["action"]) == ("python_error", "rollback_patch")
    assert (theirs["kind"], theirs["action"]) == ("python_error", "investigate")
