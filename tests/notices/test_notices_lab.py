"""Rollouts of the light service with receivers on the loopback that this machine and the lab
share."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from light_lab import LOAD, STATE, Client, LightLab, running
from notice_receiver import SECRET, Answer, Receiver, receiver

from opsctl.hostside import notice

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LightLab]:
    with running(LightLab, "notices-light", tmp_path_factory) as found:
        yield found


@pytest.fixture
def light(machine: LightLab) -> Iterator[LightLab]:
    machine.reset()
    yield machine
    machine.set_load(LOAD)
    machine.service.pop("notices", None)


@pytest.fixture
def hook(light: LightLab) -> Iterator[Receiver]:
    with receiver() as found:
        light.service["notices"] = [{"url": found.url}]
        yield found


def ended(client: Client, status: int) -> dict[str, Any]:
    """The report of one that ended so; the URL is nowhere in what it said."""
    assert client.finish(90) == status, client.stderr
    assert client.report is not None
    said = client.stdout + "\n".join(client.stderr)
    assert SECRET not in said
    return client.report


def warned(report: dict[str, Any]) -> list[str]:
    return [
        e["message"] for e in report["events"] if (e["step"], e["state"]) == ("notices", "warn")
    ]


def test_a_deploy_and_its_way_back(light: LightLab, hook: Receiver) -> None:
    report = ended(light.deploy(1), 0)
    start, success = (each.body for each in hook.received)
    assert (start["event"], success["event"]) == ("start", "success")
    assert (start["host"], start["service"], start["command"]) == ("light", "light", "deploy")
    assert start["to"] == success["to"] == {"generation": 1, "set": "light 1.0.0"}
    assert success["from"] == {"generation": 0, "set": None}
    assert success["summary"] == report["summary"]
    assert success["duration_s"] == report["duration_s"]
    assert not warned(report)

    ended(light.deploy(2), 0)
    ended(light.start("rollback", "--yes", "--why", "it is worse"), 0)
    start, success = (each.body for each in hook.received[-2:])
    assert success["command"] == "rollback"
    assert start["from"] == {"generation": 2, "set": "light 2.0.0"}
    assert start["to"] == {"generation": 1, "set": "light 1.0.0"}
    assert success["why"] == "it is worse"

    hook.received.clear()
    ended(light.deploy(1), 0)  # which is there already
    assert hook.received == [], "nothing was to be changed"


def test_a_deploy_that_fails_and_is_rolled_back(light: LightLab, hook: Receiver) -> None:
    ended(light.deploy(1), 0)
    light.set_load(4.0)
    report = ended(
        light.start("deploy", "--yes", "--budget", "2s", "--patches", str(light.sets / "2")), 10
    )
    start, rollback = (each.body for each in hook.received[-2:])
    assert (start["event"], rollback["event"]) == ("start", "rollback")
    assert (rollback["exit_code"], rollback["verdict"], rollback["generation"]) == (10, "fail", 1)
    assert rollback["code"] == report["reasons"][0]["code"]
    assert rollback["cause"] == report["summary"]
    assert rollback["next"] == "opsctl diagnose light"


def test_a_killed_client_s_guard_tells(light: LightLab, hook: Receiver) -> None:
    """The one notice that only the host itself can send."""
    ended(light.deploy(1), 0)
    client = light.deploy(2, halt="swap", grace=1)
    assert client.halted.wait(60)
    kept = f"{STATE}/{notice.FILE}"
    assert light.inside(f"stat -c '%a %U' {kept}") == "600 root\n"
    client.process.kill()
    client.finish(10)
    told = hook.await_event("guard", 60)
    assert told["cause"].startswith("its client was lost")
    assert (told["from"], told["to"], told["generation"]) == (
        {"generation": 2, "set": "light 2.0.0"},
        {"generation": 2, "set": "light 2.0.0"},
        1,
    )
    assert (told["host"], told["command"], told["next"]) == (
        "light",
        "deploy",
        "opsctl status light",
    )
    assert told["remedy"] == "the host needs nothing"
    assert light.await_serving(20) == 1

    for _ in range(100):  # it notes what came of it, and then lets go of the lock
        report = json.loads(light.inside(f"cat {STATE}/guard-report.json"))
        if "notices" in report:
            break
        time.sleep(0.1)
    assert report["notices"] == [{"label": "webhook 1 (json)", "error": ""}]
    assert light.inside(f"ls {kept} 2>&1", check=False).endswith("No such file or directory\n")

    # Who finds the report later tells the terminal, and nobody else.
    found = ended(light.start("status"), 0)
    assert any(event["step"] == "guard" for event in found["events"])
    assert hook.events.count("guard") == 1
    for place in (f"grep -rlF {SECRET} {STATE}", f"journalctl -o cat | grep -cF {SECRET}"):
        assert light.inside(place, check=False).strip() in ("", "0")


def test_while_it_is_armed_nobody_is_shown_the_url(light: LightLab, hook: Receiver) -> None:
    ended(light.deploy(1), 0)
    client = light.deploy(2, halt="guard")
    assert client.halted.wait(60)
    try:
        assert SECRET in light.inside(f"cat {STATE}/{notice.FILE}")
        shown = light.start("status")
        shown.finish(60)
        assert shown.report is not None
        assert shown.report["data"]["guard"]["terms"]["to"] == 1
        assert SECRET not in shown.stdout + "\n".join(shown.stderr)
        commands = light.inside("cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' '\\n'")
        assert "opsctl" in commands
        assert SECRET not in commands
        terms = light.inside(f"cat {STATE}/guard.json")
        assert '"to": 1' in terms
        assert SECRET not in terms
    finally:
        client.go_on()
    ended(client, 0)
    assert "No such file" in light.inside(f"ls {STATE}/{notice.FILE} 2>&1", check=False)


@pytest.mark.parametrize("answers", [[Answer(404)] * 9, [Answer(hang=60)] * 9])
def test_a_webhook_that_fails_fails_no_deploy(light: LightLab, answers: list[Answer]) -> None:
    with receiver(*answers) as found:
        light.service["notices"] = [{"url": found.url}]
        (text,) = warned(ended(light.deploy(1), 0))
    assert text.startswith("webhook 1 (json): not told of start")
    assert light.await_serving(5) == 1


def test_a_test_of_the_webhooks(light: LightLab, hook: Receiver) -> None:
    light.service["notices"] = [
        {"url": hook.url},
        {"url": hook.url, "form": "slack", "on": ["failure"]},
    ]
    report = ended(light.start("notices", "test", "--from-host"), 0)
    assert [(row["webhook"], row["from"]) for row in report["data"]["notices"]] == [
        ("webhook 1 (json)", "here"),
        ("webhook 2 (slack)", "here"),
        ("webhook 1 (json)", "the host"),
    ]
    assert len(hook.received) == 3
    with receiver(Answer(404)) as gone:
        light.service["notices"] = [{"url": gone.url}]
        report = ended(light.start("notices", "test"), 3)
    assert report["reasons"][0]["message"] == "webhook 1 (json), from here: HTTP 404"
