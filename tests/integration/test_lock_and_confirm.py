"""opsctl lock and confirm as commands, against a real host with the light service."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from light_lab import LOAD, Client, LightLab, running

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LightLab]:
    with running(LightLab, "light", tmp_path_factory) as found:
        yield found


def opsctl(light: LightLab, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit status and report of one command."""
    return ended(light.start(*words))


def ended(client: Client) -> tuple[int, dict[str, Any]]:
    status = client.finish(60)
    assert client.report is not None, client.stderr
    return status, client.report


def holder(light: LightLab) -> dict[str, Any] | None:
    _, report = opsctl(light, "lock", "show")
    found: dict[str, Any] | None = report["data"]["holder"]
    return found


def await_holder(light: LightLab) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = holder(light)
        if found is not None:
            return found
    raise AssertionError("nobody took the lock")


def test_a_lock_is_held_while_a_command_runs(light: LightLab, tmp_path: Path) -> None:
    over = tmp_path / "over"
    script = f"echo begun; until test -e {over}; do sleep 0.1; done; exit 7"
    argv = ("lock", "take", "light", "--why", "a backup", "--", "sh", "-c", script)
    taking = light.start(*argv)
    try:
        assert await_holder(light)["why"] == "a backup"
        before = light.look()
        for words in (
            ("deploy", "--yes", "--patches", str(light.sets / "1")),
            ("restart", "--yes"),
            ("lock", "take", "light", "--", "true"),
        ):
            status, report = opsctl(light, *words)
            assert (status, report["reasons"][0]["code"]) == (4, "lock_held"), words
            assert "a backup" in report["summary"]
        assert light.look()["unit"] == before["unit"], "nothing was changed"
    finally:
        over.touch()
    status, report = ended(taking)
    assert (status, report["verdict"], report["data"]["status"]) == (7, "fail", 7)
    assert "begun" in taking.stderr, "stdout is the report's"
    assert holder(light) is None
    assert opsctl(light, "lock", "take", "light", "--", "true")[0] == 0


def test_a_lock_that_was_released_is_free_and_its_holder_says_so(light: LightLab) -> None:
    taking = light.start("lock", "take", "light", "--why", "forgotten")
    assert await_holder(light)["why"] == "forgotten"
    status, _ = opsctl(light, "lock", "release")
    assert status == 2, "it asks, and nobody is there"
    status, report = opsctl(light, "lock", "release", "--yes")
    assert (status, report["data"]["released"]["why"]) == (0, "forgotten")
    assert holder(light) is None
    status, report = ended(taking)
    assert (status, report["reasons"][0]["code"]) == (5, "lock_lost")
    status, report = opsctl(light, "lock", "release", "--yes")
    assert (status, report["data"]["released"]) == (0, None)


@pytest.mark.parametrize("step", ["start", "wait"])
def test_a_rollout_whose_client_was_killed_is_confirmed(light: LightLab, step: str) -> None:
    """In mid-load, and after it: what the guard would undo when its budget is over stays."""
    old = light.await_serving(30)
    new = 1 + old % 5
    light.set_load(2.0 if step == "start" else LOAD)
    deploying = light.deploy(new, halt=step)
    assert deploying.halted.wait(60)
    assert not deploying.ended.is_set(), deploying.stderr
    deploying.process.kill()
    deploying.finish(10)
    status, report = opsctl(light, "lock", "show")
    assert report["data"]["guard"]["terms"]["to"] is not None, "armed"
    status, report = opsctl(light, "confirm")
    assert (status, report["verdict"]) == (0, "pass"), report
    number = report["generation"]
    _, shown = opsctl(light, "history")
    row = shown["data"]["generations"][-1]
    assert (row["number"], row["status"], row["in_place"]) == (number, "confirmed", True)
    assert row["verdict"]["why"] == "opsctl confirm"
    _, shown = opsctl(light, "lock", "show")
    assert shown["data"] == {"holder": None, "guard": {"terms": None, "report": None}}
    deadline = time.monotonic() + 15
    guard = "systemctl is-active opsctl-guard-light.service"
    while light.inside(guard, check=False).strip() != "inactive":
        assert time.monotonic() < deadline, "the guard ends when there is nothing to guard"
        time.sleep(0.2)
    assert light.await_serving(5) == new
    status, report = opsctl(light, "confirm")
    assert (status, report["reasons"][0]["code"]) == (3, "nothing_to_confirm")
