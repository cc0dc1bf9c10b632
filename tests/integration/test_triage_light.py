"""triage against a host with real sshd, systemd and journal, and faults that are real there."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest
from fault_rigs import mount_name, own_disk
from light_lab import PORT, PYTHON, SERVICE, STATE, LightLab, running
from light_package import SITE, UNIT

from opsctl import lab as labs
from opsctl.inventory import Host
from opsctl.rollout import triaging
from opsctl.rollout.session import Connect, Session
from opsctl.transport import connect

pytestmark = [pytest.mark.timeout(300), pytest.mark.lab]


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LightLab]:
    with running(LightLab, "triage", tmp_path_factory) as found:
        yield found


@pytest.fixture(autouse=True)
def served(light: LightLab) -> None:
    light.await_serving(30)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine what does not hang may take its time."""
    monkeypatch.setattr(triaging, "_LEAST_CONNECT", 20.0)
    monkeypatch.setattr(triaging, "_LEAST_ANSWERS", 8.0)


def triage(light: LightLab) -> tuple[int, dict[str, Any]]:
    host = Host.model_validate({"lab": light.name, "services": {SERVICE: light.service}})
    host._name = light.name
    running = labs.status(light.name)
    assert running is not None
    service = labs.adapt(host.services[SERVICE], running)
    reach = functools.partial(connect, labs.connection(light.name), "python3")
    session = Session(host=host, service=service, connect=cast(Connect, reach))
    try:
        report = triaging.triage(session)
    finally:
        session.close()
    return report.exit_code, report.dump()


def cause_of(light: LightLab) -> tuple[int, str, str | None]:
    code, report = triage(light)
    cause = report["data"]["cause"]
    assert cause is not None, report["summary"]
    return code, cause["name"], cause["runbook"]


def test_nothing_is_wrong(light: LightLab) -> None:
    code, report = triage(light)
    assert (code, report["verdict"]) == (0, "pass"), report["summary"]
    data = report["data"]
    assert data["unit"]["state"] == "active (running)"
    assert data["starts"][0]["ready_at"]
    assert set(data["missing"]) <= {"gpus", "gpu_processes", "kernel"}


def test_stopped_by_hand(light: LightLab) -> None:
    light.inside(f"systemctl stop {UNIT}")
    try:
        assert cause_of(light) == (11, "stopped", "service-down")
    finally:
        light.inside(f"systemctl reset-failed {UNIT}; systemctl start {UNIT}")


def test_a_server_that_accepts_and_never_answers(light: LightLab) -> None:
    light.inside(f"systemctl kill -s STOP {UNIT}")
    try:
        assert cause_of(light) == (11, "hung", "hung")
    finally:
        light.inside(f"systemctl kill -s CONT {UNIT}")


def test_a_load_that_is_under_way(light: LightLab) -> None:
    light.set_load(7)
    light.inside(f"systemctl reset-failed {UNIT}; systemctl restart {UNIT}; sleep 1")
    try:
        assert cause_of(light) == (12, "loading", None)
    finally:
        light.set_load(0.5)


def test_a_crash_loop_and_the_file_that_a_hand_changed(light: LightLab) -> None:
    assert light.deploy(1).finish(60) == 0
    path = f"{SITE}/sglang/parts/p03.py"
    light.inside(f"cp {path} /root/kept; echo 'raise RuntimeError(\"boom\")' >> {path}")
    light.inside(f"systemctl reset-failed {UNIT}; systemctl restart {UNIT} || true")
    deadline = time.monotonic() + 40
    try:
        while int(light.inside(f"systemctl show -P NRestarts {UNIT}")) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.5)
        code, report = triage(light)
        data = report["data"]
        assert (code, data["cause"]["name"], data["cause"]["runbook"]) == (11, "drift", None)
        assert data["cause"]["command"] == f"opsctl rollback {light.name} {report['generation']}"
        assert "parts/p03.py was changed by hand" in data["cause"]["text"]
        assert "boom" in " ".join(data["cause"]["evidence"])
        assert data["drift"] == ["parts/p03.py"]
        differs = {each["what"]: each["text"] for each in data["differences"]}
        assert "p03.py" in differs["package files"]
        _, _, *words = data["cause"]["command"].replace(light.name, "light").split()
        assert light.start("rollback", *words, "--yes").finish(60) == 0, "what it proposes does it"
        light.inside(f"cmp {path} /root/kept")
        assert triage(light)[1]["data"]["drift"] == []
    finally:
        light.inside(f"cp /root/kept {path}; systemctl reset-failed {UNIT}")
        light.inside(f"systemctl reset-failed {UNIT}; systemctl restart {UNIT}")


def test_a_full_disk(light: LightLab) -> None:
    with own_disk(light, STATE):
        light.inside(f"head -c 100M /dev/zero > {mount_name(STATE)}/fill || true")
        code, report = triage(light)
    assert (code, report["data"]["cause"]["runbook"]) == (11, "disk-full")
    assert "state" in report["data"]["cause"]["evidence"][0]


def test_somebody_elses_server_holds_the_port(light: LightLab) -> None:
    light.inside(f"systemctl stop {UNIT}")
    serve = f"{PYTHON} -m sglang.launch_server --host {light.address} --port {PORT}"
    pid = light.inside(f"nohup {serve} --served-model-name x >/dev/null 2>&1 & echo $!; sleep 3")
    try:
        assert cause_of(light) == (11, "orphan_processes", "gpu-orphans")
    finally:
        light.inside(
            f"kill {pid.strip()}; sleep 1; systemctl reset-failed {UNIT}; systemctl start {UNIT}"
        )


def test_a_lock_that_somebody_holds_while_it_is_down(light: LightLab) -> None:
    site = {"service": "light", "state_dir": "/var/lib/opsctl"}
    light.inside(f"systemctl stop {UNIT}")
    try:
        with connect(labs.connection(light.name), "python3") as remote:
            remote.call("lock", site=site, who="ann@laptop", why="repairs")
            code, report = triage(light)
        assert (code, report["data"]["cause"]["name"]) == (12, "change_under_way")
        assert "ann@laptop" in report["data"]["cause"]["text"]
    finally:
        light.inside(f"systemctl reset-failed {UNIT}; systemctl start {UNIT}")


def test_a_host_that_rebooted_and_did_not_start_it(light: LightLab) -> None:
    light.inside(f"systemctl -q disable {UNIT}")
    light.inside_soon("systemctl reboot")
    time.sleep(3)
    deadline = time.monotonic() + 60
    while True:
        try:
            light.inside("systemctl is-system-running --wait || true", timeout=20)
            break
        except Exception:
            assert time.monotonic() < deadline
            time.sleep(1)
    try:
        assert cause_of(light) == (11, "host_rebooted", "host-rebooted")
    finally:
        light.inside(f"systemctl -q enable --now {UNIT}")
