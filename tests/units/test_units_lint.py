"""Each known pitfall is found, and nothing is found in the unit that opsctl renders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from opsctl import resources
from opsctl.inventory.models import Service
from opsctl.units.lint import lint
from opsctl.units.subject import Finding, Subject
from opsctl.units.template import render_files
from opsctl.units.unitfile import UnitText

TEMPLATES = resources.bundled("unit-templates")
UNIT = "/etc/systemd/system/serve.service"
DROP_IN = f"{UNIT}.d/50-hand.conf"


def service(**launch: Any) -> Service:
    fields = {
        "unit": "serve.service",
        "python": "/root/venv/bin/python",
        "port": 30001,
        "model": {"path": "/root/models/K2", "served_name": "k2"},
        "load": {"budget": "15m"},
        "launch": {"environment": {"HF_HUB_OFFLINE": "1"}, **launch},
    }
    return Service.model_validate(fields)


def found(
    extra: str = "",
    *,
    load: float = 660.0,
    launch: Mapping[str, Any] | None = None,
    base: str | None = None,
    **facts: Any,
) -> dict[str, Finding]:
    """Name -> finding, of our own unit with a drop-in `extra`, or of `base` alone."""
    chosen = service(**(launch or {}))
    files = [
        (path, text)
        for path, text in render_files(chosen, TEMPLATES).items()
        if path.endswith((".service", ".conf"))
    ]
    if base is not None:
        files = [(UNIT, base)]
    owned = frozenset(path for path, _ in files)
    if extra:
        files.append((DROP_IN, extra))
    subject = Subject(UnitText.of(files), chosen, load, owned, **facts)
    return {finding.name: finding for finding in lint(subject)}


def test_nothing_in_our_own() -> None:
    assert found() == {}
    assert found(launch={"memory_max": "2T"}, model_bytes=600 << 30, memory_bytes=3 << 40) == {}


@pytest.mark.parametrize(
    ("extra", "name", "status"),
    [
        ("Restart=on-failure", "restart_hidden", "fail"),
        ("Restart=on-abnormal", "restart_hidden", "fail"),
        ("Restart=no", "restart", "fail"),
        ("Restart=", "restart", "fail"),
        ("SuccessExitStatus=", "success_exit_status", "warn"),
        ("SuccessExitStatus=\nRestart=on-abort", "restart", "fail"),
        ("RestartPreventExitStatus=SIGKILL", "restart_prevented", "fail"),
        ("TimeoutStopSec=infinity", "stop_timeout", "fail"),
        ("TimeoutStopSec=5", "stop_timeout_short", "warn"),
        ("TimeoutSec=5", "stop_timeout_short", "warn"),
        ("KillMode=process", "kill_mode", "fail"),
        ("KillMode=none", "kill_mode", "fail"),
        ("KillMode=control-group", "kill_mode_group", "warn"),
        ("KillMode=", "kill_mode_group", "warn"),
        ("SendSIGKILL=no", "send_sigkill", "fail"),
        ("KillSignal=SIGINT", "kill_signal", "warn"),
        ("Type=notify", "type", "fail"),
        ("Type=forking", "type", "fail"),
        ("Type=oneshot", "type", "fail"),
        ("Type=", "type_simple", "warn"),
        ("ExecStartPost=/bin/wait-for-it", "start_post", "warn"),
        ("ExecStartPre=", "no_check", "warn"),
        ("WatchdogSec=30", "watchdog", "fail"),
        ("RuntimeMaxSec=1d", "runtime_max", "warn"),
        ("LogRateLimitIntervalSec=", "log_rate_limit", "warn"),
        ("LogRateLimitIntervalSec=30s", "log_rate_limit", "warn"),
        ("StandardOutput=append:/var/log/x", "output", "fail"),
        ("StandardError=null", "output", "fail"),
        ("Environment=", "unbuffered", "warn"),
        ("Environment=HF_TOKEN=hf_x", "secret", "fail"),
        ('Environment="A=b c" "AWS_SECRET_ACCESS_KEY=x"', "secret", "fail"),
        ("ExecStart=\nExecStart=/p -m sglang.launch_server --api-key=x", "secret_argument", "fail"),
        ("LimitNOFILE=1024:524288", "limit_nofile", "warn"),
        ("LimitMEMLOCK=64M", "limit_memlock", "warn"),
        ("LimitAS=100G", "limit_as", "fail"),
        ("OOMPolicy=continue", "oom_policy", "warn"),
        ("PrivateDevices=yes", "hardening", "fail"),
        ("MemoryDenyWriteExecute=true", "hardening", "fail"),
        ("DevicePolicy=closed", "hardening", "fail"),
        ("DeviceAllow=/dev/null rw", "hardening", "fail"),
        ("ProtectHome=yes", "hardening", "fail"),
        ("ProtectSystem=strict", "hardening", "warn"),
        ("DynamicUser=yes", "hardening", "warn"),
        ("ExecStart=\nExecStart=/bin/sh -c 'python -m sglang.launch_server'", "shell", "warn"),
        ("ExecStart=\nExecStart=/usr/bin/docker run sglang", "wrapper", "warn"),
        ("ExecStart=\nExecStart=-/p -m sglang.launch_server", "exec_failure", "warn"),
        ("ExecStart=", "exec_start", "fail"),
        ("ExecStartPre=/usr/bin/pkill -9 -f sglang", "sweeping_kill", "warn"),
        ("ExecStart=\nExecStart=/p --port 30002", "inventory", "warn"),
        ("Restart=on-failure", "drop_in", "warn"),
        ("StartLimitIntervalSec=600", "start_limit_ignored", "fail"),
    ],
)
def test_a_pitfall(extra: str, name: str, status: str) -> None:
    finding = found(f"[Service]\n{extra}\n")[name]
    assert finding.status == status
    assert finding.message
    assert finding.remedy
    if finding.where:
        assert finding.where.startswith(DROP_IN)


@pytest.mark.parametrize(
    "extra",
    [
        "Environment=MAX_TOKENS=4096 TOKENIZERS_PARALLELISM=false",
        "Environment=GOOGLE_APPLICATION_CREDENTIALS=/etc/key.json",
        "Environment=OPSCTL_EXTRA_ARGS=--max-total-tokens=4096",
        "DevicePolicy=closed\nDeviceAllow=char-nvidia* rw\nDeviceAllow=char-nvidia-uvm rw",
        "ReadWritePaths=/var/cache/x",
        "EnvironmentFile=-/etc/x",
    ],
)
def test_what_is_none(extra: str) -> None:
    assert found(f"[Service]\n{extra}\n").keys() <= {"drop_in"}


def test_a_start_limit_that_the_load_hides() -> None:
    """systemd's own default, 5 starts in 10 s, against loads of eleven minutes."""
    base = "[Service]\nExecStart=/p -m sglang.launch_server\nRestart=always\n"
    finding = found(base=base)["start_limit_hidden"]
    assert "5 starts in 10 s" in finding.message
    assert "StartLimitIntervalSec=4401 in [Unit]" in finding.remedy
    assert "start_limit_hidden" not in found(base=base, load=1.0)
    manager = {"DefaultStartLimitIntervalUSec": "2h", "DefaultStartLimitBurst": "5"}
    assert "start_limit_hidden" not in found(base=base, manager=manager)
    assert "start_limit" in found("[Unit]\nStartLimitIntervalSec=0\n")
    assert "start_limit" in found("[Unit]\nStartLimitBurst=0\n")


def test_memory_below_the_model() -> None:
    facts: dict[str, Any] = {"model_bytes": 600 << 30, "memory_bytes": 1000 << 30}
    for value, there in (("100G", True), ("50%", True), ("900G", False), ("infinity", False)):
        assert ("memory_max" in found(f"[Service]\nMemoryMax={value}\n", **facts)) is there, value


def test_environment_files() -> None:
    def of(**file: Any) -> dict[str, Finding]:
        entry = {"path": "/etc/x", "optional": False, "mode": 0o600, "uid": 0, **file}
        return found(environment_files=[entry])

    assert of() == {}
    assert of(mode=None, optional=True) == {}
    assert of(mode=None)["environment_file"].status == "fail"
    assert "0644" in of(mode=0o644)["environment_file_open"].message
    assert "uid 1000" in of(uid=1000)["environment_file_open"].message


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({"NeedDaemonReload": "yes"}, "daemon_reload"),
        ({"UnitFileState": "disabled"}, "not_enabled"),
        ({"UnitFileState": "static"}, "not_enabled"),
        ({"UnitFileState": "enabled-runtime"}, "not_enabled"),
        ({"LoadState": "masked"}, "masked"),
    ],
)
def test_what_systemd_says(properties: dict[str, str], name: str) -> None:
    assert list(found(properties=properties)) == [name]
    assert found(properties={"UnitFileState": "enabled", "NeedDaemonReload": "no"}) == {}


def test_no_secret_is_repeated() -> None:
    extra = "[Service]\nEnvironment=HF_TOKEN=hf_x1\nExecStart=\nExecStart=/p --api-key sk-x2\n"
    text = str(found(extra))
    assert "hf_x1" not in text
    assert "sk-x2" not in text


def test_the_words_of_systemd() -> None:
    subject = Subject(UnitText.of(render_files(service(), TEMPLATES).items()), service(), 1.0)
    line = "serve.service: Command /root/venv/bin/python is not executable: No such file"
    found = [f for f in lint(subject, [line]) if f.name == "verify"]
    assert [(f.status, line in f.message) for f in found] == [("fail", True)]
