"""opsctl unit, and the check before a start, on a real systemd with the light service."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from light_lab import LightLab, running
from light_package import UNIT

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

FOLDER = f"/etc/systemd/system/{UNIT}.d"
SECRET = "s3cr\"et$value`of 'mine'"
MODEL = "/opt/models/target/model.safetensors"

HAND_WRITTEN = """\
[Unit]
Description=somebody's

[Service]
StartLimitIntervalSec=600
Type=notify
Environment=HF_TOKEN=hf_abcdef MAX_TOKENS=4096
ExecStart=/bin/sh -c "python -m sglang.launch_server --port 30002 --api-key sk-123"
Restart=on-failure
SuccessExitStatus=SIGKILL
KillMode=process
TimeoutStopSec=5
PrivateDevices=yes
ExecStopPost=/usr/bin/pkill -9 python
"""


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LightLab]:
    with running(LightLab, "unit-commands", tmp_path_factory) as found:
        yield found


def opsctl(light: LightLab, *words: str) -> tuple[int, dict[str, Any], str]:
    """Exit status, report, and all that was said."""
    client = light.start(*words)
    status = client.finish(120)
    assert client.report is not None, client.stderr
    return status, client.report, client.stdout + "\n".join(client.stderr)


def shown(light: LightLab, name: str, unit: str = UNIT) -> str:
    return light.inside(f"systemctl show {unit} -p {name} --value").strip()


def await_state(light: LightLab, state: str, seconds: float) -> float:
    """How long that took."""
    began = time.monotonic()
    while shown(light, "ActiveState") != state:
        assert time.monotonic() - began < seconds, shown(light, "ActiveState")
        time.sleep(0.2)
    return time.monotonic() - began


def said(light: LightLab) -> str:
    """The check's own last lines; of the start before, where systemd has begun another."""
    return light.inside(f"journalctl -q -o cat -u {UNIT} | grep opsctl-prestart | tail -n 4")


# -- the check before a start ------------------------------------------------------------------


def test_a_refusal_ends_as_failed_and_is_named(light: LightLab) -> None:
    assert "nothing in the way" in said(light)
    assert "no nvidia-smi: GPU memory was not looked at" in said(light)
    text = "version https://git-lfs.github.com/spec/v1"
    light.inside(f"mv {MODEL} {MODEL}.away && echo {text} > {MODEL}")
    try:
        light.inside(
            f"systemctl stop {UNIT}; systemctl reset-failed {UNIT}; systemctl start {UNIT}",
            check=False,
        )
        assert await_state(light, "failed", 30) < 30
        assert f"/opt/models/target: not a safetensors file: {Path(MODEL).name}" in said(light)
        starts = light.inside(f"journalctl -q -o cat -u {UNIT} -b | grep -c 'not started'")
        assert int(starts) == 3, "the start limit ends it"
        status, report, _ = opsctl(light, "diagnose", "light")
        assert (status, report["kind"], report["phase"]) == (11, "weights_corrupt", "preflight")
    finally:
        light.inside(f"mv {MODEL}.away {MODEL}")
    light.reset()


def test_another_listener_is_named(light: LightLab) -> None:
    light.inside(f"systemctl stop {UNIT}")
    code = f"import socket; s=socket.create_server((\\'{light.address}\\', 30001)); s.accept()"
    light.inside(f"systemd-run -q --unit=squatter python3 -c $'{code}'")
    try:
        light.inside(f"systemctl start {UNIT}", check=False)
        assert "port 30001 is already in use" in said(light)
        assert "(python3)" in said(light)
    finally:
        light.inside("systemctl stop squatter")
    light.reset()


def test_memory_of_an_earlier_start_is_waited_for(light: LightLab) -> None:
    """By a stand-in for nvidia-smi that lists a real process, left in the unit's own cgroup."""
    orphan = "[Service]\\nKillMode=process\\nExecStartPost=/bin/sh -c 'sleep 777 \\&'\\n"
    smi = '#!/bin/sh\\nfor p in $(pgrep -f "^sleep 777"); do echo "$p, GPU-0, 131072"; done\\n'
    light.inside(
        f"mkdir -p /run/systemd/system/{UNIT}.d; "
        f"printf \"{orphan}\" | sed 's/\\\\&/\\&/' > /run/systemd/system/{UNIT}.d/90-orphan.conf; "
        f"printf '{smi}' > /usr/local/bin/nvidia-smi; chmod +x /usr/local/bin/nvidia-smi; "
        f"systemctl daemon-reload; systemctl restart {UNIT}"
    )
    try:
        pid = light.inside("pgrep -f '^sleep 777'").strip()
        light.inside(
            f"systemctl stop {UNIT}; rm /run/systemd/system/{UNIT}.d/90-orphan.conf; "
            f"systemctl daemon-reload; systemctl --no-block start {UNIT}; sleep 2"
        )
        assert f"pid {pid} (sleep, of this unit's earlier start) holds 131072 MiB" in said(light)
        assert shown(light, "SubState") == "start-pre"
        light.inside(f"kill -9 {pid}")
        await_state(light, "active", 10)
        assert "no GPU memory held by an earlier start" in said(light)
    finally:
        light.inside("rm -f /usr/local/bin/nvidia-smi; pkill -f '^sleep 777'", check=False)
    light.reset()


# -- the commands ------------------------------------------------------------------------------


def test_install_without_and_with_a_restart_and_back(
    light: LightLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = light.inside(f"cat /etc/systemd/system/{UNIT}")
    assert opsctl(light, "unit", "diff")[0] == 0
    launch: dict[str, Any] = {"drop_ins": {"30-core.conf": "[Service]\nLimitCORE=0\n"}}
    light.service["launch"] = launch
    status, report, _ = opsctl(light, "unit", "diff")
    assert (status, [r["code"] for r in report["reasons"]]) == (3, ["unit_differs"])
    assert "+LimitCORE=0" in report["data"]["files"][0]["diff"]

    running = shown(light, "InvocationID")
    status, report, _ = opsctl(light, "unit", "install", "--yes")
    assert status == 0, report
    assert report["data"]["restarted"] is False
    assert "it takes effect at the next start" in report["summary"]
    assert shown(light, "InvocationID") == running, "it serves on"
    assert (shown(light, "LimitCORE"), shown(light, "NeedDaemonReload")) == ("0", "no")
    assert opsctl(light, "unit", "install", "--yes")[1]["data"]["noop"] is True

    monkeypatch.setenv("SECRET_OF_THE_TEST", SECRET)
    launch["secrets"] = {"HF_TOKEN": {"env": "SECRET_OF_THE_TEST"}}
    outputs = [opsctl(light, "unit", "diff")[2], opsctl(light, "unit", "render")[2]]
    status, report, output = opsctl(light, "unit", "install", "--restart", "--yes")
    outputs.append(output)
    assert status == 0, report
    assert report["data"]["restarted"] is True
    assert shown(light, "InvocationID") != running
    found = light.inside(
        f"tr '\\0' '\\n' < /proc/{shown(light, 'MainPID')}/environ | grep ^HF_TOKEN"
    )
    assert found.strip() == f"HF_TOKEN={SECRET}"
    assert light.inside(f"stat -c '%a %u' {FOLDER}/opsctl-secrets.env").strip() == "600 0"
    assert "s3cr" not in light.inside(f"cat {light.state}/generations/*.json {light.state}/*.jsonl")
    assert light.inside(f"find {light.state} -perm /077").strip() == ""
    status, report, output = opsctl(light, "unit", "lint")
    assert status == 0, report
    outputs.append(output)
    status, report, output = opsctl(light, "verify")
    assert status == 0, report
    assert not [text for text in [*outputs, output] if "s3cr" in text]

    light.inside(f"sed -i s/^HF_TOKEN=.*/HF_TOKEN=other/ {FOLDER}/opsctl-secrets.env")
    assert "unit_file" in {r["code"] for r in opsctl(light, "verify")[1]["reasons"]}
    assert opsctl(light, "unit", "diff")[0] == 3
    number = str(opsctl(light, "status")[1]["generation"])
    status, report, _ = opsctl(light, "rollback", "light", number, "--yes")
    assert status == 0, report
    assert opsctl(light, "verify")[0] == 0, "as its remedy says"

    status, report, _ = opsctl(light, "rollback", "light", "0", "--yes")
    assert status == 0, report
    assert light.inside(f"cat /etc/systemd/system/{UNIT}") == unit
    files = set(light.inside(f"ls {FOLDER}").split())
    assert not files & {"30-core.conf", "opsctl-secrets.env"}
    light.service.pop("launch")


def test_a_unit_that_does_not_come_up_is_undone(light: LightLab) -> None:
    before = light.inside(f"ls {FOLDER}")
    light.service["launch"] = {"drop_ins": {"30-no.conf": "[Service]\nExecStartPre=/bin/false\n"}}
    status, report, _ = opsctl(light, "unit", "install", "--restart", "--yes")
    light.service.pop("launch")
    assert (status, report["command"]) == (10, "unit install"), report
    assert light.inside(f"ls {FOLDER}") == before
    assert light.await_serving(20) == 0


def test_a_hand_written_unit_is_looked_over(light: LightLab) -> None:
    path = "/etc/systemd/system/hand.service"
    light.inside(f"cat > {path} <<'END'\n{HAND_WRITTEN}END\nsystemctl daemon-reload")
    try:
        light.service["unit"] = "hand.service"
        status, report, output = opsctl(light, "unit", "lint")
    finally:
        light.service["unit"] = UNIT
        light.inside(f"rm {path}; systemctl daemon-reload")
    assert status == 3
    findings = report["data"]["findings"]
    of_host = {f["name"]: f for f in findings if f["of"] in {"host", "both"}}
    assert {name for name, f in of_host.items() if f["status"] == "fail"} >= {
        *("type", "restart_hidden", "kill_mode", "start_limit_ignored"),
        *("secret", "secret_argument", "hardening"),
    }
    assert {name for name, f in of_host.items() if f["status"] == "warn"} >= {
        *("shell", "stop_timeout_short", "log_rate_limit", "sweeping_kill", "not_enabled"),
        *("unbuffered", "no_check", "inventory", "limit_memlock", "verify"),
    }
    assert of_host["secret"]["where"] == f"{path}:7"
    assert not [text for text in ("hf_abcdef", "sk-123") if text in json.dumps(report) + output]
    assert not [f for f in findings if f["of"] == "inventory" and f["status"] == "fail"]
