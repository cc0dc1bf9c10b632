"""Orphans on a host with real systemd: another unit's, a login's, and what a kill missed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from light_lab import PORT, PYTHON, SERVICE, LightLab, running
from light_package import UNIT

from opsctl import lab as labs
from opsctl.transport.connect import SshRemote, connect

pytestmark = [pytest.mark.timeout(300), pytest.mark.lab]

SITE = {
    "service": SERVICE,
    "unit": UNIT,
    "python": PYTHON,
    "distribution": "lightserve",
    "package": "sglang",
    "port": PORT,
    "state_dir": "/var/lib/opsctl",
}
SERVE = f"{PYTHON} -m sglang.launch_server --served-model-name other"


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LightLab]:
    with running(LightLab, "triage-orphans", tmp_path_factory) as found:
        yield found


@pytest.fixture
def remote(light: LightLab) -> Iterator[SshRemote]:
    with connect(labs.connection(light.name), "python3") as found:
        yield found


@pytest.fixture
def site(light: LightLab) -> dict[str, Any]:
    return {**SITE, "listen": light.address}


def orphans(remote: SshRemote, site: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = remote.call("find_orphans", site=site)["orphans"]
    return found


def test_a_service_that_runs_has_none(
    light: LightLab, remote: SshRemote, site: dict[str, Any]
) -> None:
    light.await_serving(20)
    assert orphans(remote, site) == []


def test_a_server_that_holds_the_port_is_ended_and_another_unit_is_left(
    light: LightLab, remote: SshRemote, site: dict[str, Any]
) -> None:
    serve = f"{SERVE} --host {light.address} --port"
    light.inside(f"systemctl stop {UNIT}")
    light.inside(f"nohup {serve} {PORT} >/dev/null 2>&1 & sleep 2")
    light.inside(f"systemd-run --quiet --unit=beside {serve} {PORT + 1}; sleep 2")
    found = {each["port"]: each for each in orphans(remote, site)}
    assert set(found) == {PORT, None}
    stray, beside = found[PORT], found[None]
    assert stray["left"] == ""
    assert stray["user"] == "root"
    assert beside["left"] == "it belongs to beside.service, which runs"
    remote.call("lock", site=site, who="ann@laptop", why="orphans")
    done = remote.call("end_orphans", site=site, orphans=[stray, beside])
    assert [each["pid"] for each in done["ended"]] == [stray["pid"]]
    assert [each["pid"] for each in done["left"]] == [beside["pid"]]
    assert light.inside("systemctl is-active beside").strip() == "active"
    assert [each["pid"] for each in orphans(remote, site)] == [beside["pid"]]
    light.inside(f"systemctl stop beside; systemctl start {UNIT}")
    light.await_serving(20)
    remote.call("unlock")


def test_a_process_that_outlived_the_unit_is_named_with_its_remedy(
    light: LightLab, remote: SshRemote, site: dict[str, Any]
) -> None:
    """KillMode=process leaves the children in the unit's own cgroup."""
    folder = f"/run/systemd/system/{UNIT}.d"
    light.inside(
        f"mkdir -p {folder} && printf '[Service]\\nKillMode=process\\nExecStartPost="
        f'/bin/sh -c "{SERVE} --host {light.address} --port {PORT + 2} &"\\n\' '
        f"> {folder}/30-leaves.conf && systemctl daemon-reload && systemctl restart {UNIT}"
    )
    light.await_serving(20)
    time.sleep(1)
    assert orphans(remote, site) == [], "while the unit runs it is its own"
    light.inside(f"systemctl stop {UNIT}")
    (found,) = orphans(remote, site)
    assert found["why"] == ["it outlived the unit"]
    assert "systemctl kill" in found["left"]
    light.inside(found["left"].partition(": ")[2])
    time.sleep(1)
    assert orphans(remote, site) == []
    light.inside(f"rm {folder}/30-leaves.conf; systemctl daemon-reload; systemctl start {UNIT}")
    light.await_serving(20)


def test_the_machine_of_a_host(light: LightLab, remote: SshRemote, site: dict[str, Any]) -> None:
    found = remote.call("machine", site=site, weights={"target": "/opt/models/none"})
    assert found["filesystems"]["target"]["exists"] is False
    assert found["filesystems"]["package"]["exists"] is True
    assert found["boot"]["uptime_s"] < 600, "the container's own"
    assert set(found["missing"]) <= {"gpus", "gpu_processes", "kernel"}
    assert "nvidia-smi" in found["missing"]["gpus"]
    boot = light.inside("cat /proc/sys/kernel/random/boot_id").strip()
    assert found["boot"]["id"] == boot
