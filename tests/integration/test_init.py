"""opsctl init against a real host: light services as units of several forms."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from light_lab import PORT, PYTHON, LightLab, running

from opsctl import inventory, lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

SECRET = "sk-not-for-anybodys-eyes"

_FILES = {
    # Through a script and an environment file, never started.
    "/opt/light/run.sh": (
        "#!/bin/bash\nset -eu\n. /opt/light/bin/activate\n# where it is now\n"
        "MODEL=/opt/models/target\nexec python3 -u -m sglang.launch_server "
        '--model-path "$MODEL" --served-model-name tiny2 \\\n'
        '  --host 127.0.0.1 --port "$SERVE_PORT" --api-key "$SERVE_KEY" "$@"\n'
    ),
    "/etc/wrapped.env": f"SERVE_PORT=30002\nSERVE_KEY='{SECRET}'\n",
    "/etc/systemd/system/wrapped.service": (
        "[Service]\nUser=nobody\nEnvironmentFile=/etc/wrapped.env\nEnvironment=HF_TOKEN="
        f"{SECRET} HF_HUB_OFFLINE=1\nTimeoutStopSec=2min\n"
        "ExecStart=/opt/light/run.sh --speculative-algorithm EAGLE --cuda-graph-bs 1 2\n"
    ),
    "/etc/systemd/system/boxed.service": (
        "[Service]\nExecStart=/usr/bin/docker run --rm lmsysorg/sglang sglang serve --port 1\n"
    ),
    "/etc/systemd/system/hub.service": (
        f"[Service]\nExecStart={PYTHON} -m sglang.launch_server --model-path org/name\n"
    ),
    "/root/.config/systemd/user/mine.service": (
        f"[Service]\nExecStart={PYTHON} -m sglang.launch_server --model-path /m\n"
    ),
}


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LightLab]:
    with running(LightLab, "init", tmp_path_factory) as found:
        yield found


@pytest.fixture(scope="module")
def ssh_config(light: LightLab) -> Path:
    """The lab as a host of somebody's SSH configuration."""
    found = lab.connection(light.name)
    path = light.folder / "ssh_config"
    path.write_text(
        f"Host ct300\n  HostName {found.address}\n  Port {found.port}\n  User root\n"
        f"  IdentityFile {found.identity_file}\n  UserKnownHostsFile {found.known_hosts}\n"
    )
    return path


def put(light: LightLab, path: str, text: str) -> None:
    argv = lab.ssh_argv(light.name, f"mkdir -p {Path(path).parent} && cat > {path}")
    subprocess.run(argv, input=text.encode(), check=True, capture_output=True, timeout=60)


def opsctl(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "opsctl.cli", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={k: v for k, v in os.environ.items() if not k.startswith("OPSCTL_")}
        | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )


def report(folder: Path, *words: str) -> dict[str, Any]:
    done = opsctl(folder, *words, "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["exit_code"] == done.returncode, done.stderr
    return found


def test_an_inventory_that_the_other_commands_take(
    light: LightLab, ssh_config: Path, tmp_path: Path
) -> None:
    words = ("init", "ct300", "--ssh-config", str(ssh_config))
    made = report(tmp_path, *words)
    assert made["exit_code"] == 0, made
    path = tmp_path / "inventory.yaml"
    text = path.read_text(encoding="utf-8")
    assert made["data"]["text"] == text
    service = inventory.load(path).hosts["ct300"].services["light"]
    wanted = light.service | {"listen": light.address}
    own = service.model_dump(mode="json", include=set(wanted))
    for key in ("unit", "python", "distribution", "port", "model", "listen"):
        assert own[key] == wanted[key]
    assert not service.smoke.speculative
    assert service.load.budget == 120, "twice the load, and two minutes at least"
    assert re.search(r"budget: 2m # a start took \d+ s\n", text)
    assert service.launch == inventory.Launch(), "nothing but what the template says anyway"
    sets = str(light.sets / "1")
    assert report(tmp_path, "status")["exit_code"] == 0
    assert report(tmp_path, "doctor", "--patches", sets)["exit_code"] == 0
    planned = report(tmp_path, "plan", "--patches", sets, "--patch-set", "light")
    assert (planned["exit_code"], planned["data"]["plan"]["restart_needed"]) == (0, True)
    again = report(tmp_path, *words)
    assert (again["exit_code"], again["reasons"][0]["code"]) == (3, "inventory_exists")
    assert path.read_text(encoding="utf-8") == text


def test_units_of_all_forms_and_no_secret(
    light: LightLab, ssh_config: Path, tmp_path: Path
) -> None:
    for name, content in _FILES.items():
        put(light, name, content)
    light.inside("chmod +x /opt/light/run.sh; touch /opt/light/bin/activate")
    light.inside("systemctl daemon-reload")
    book = tmp_path / "inventory.yaml"
    before = "version: 1 # ours\nhosts:\n    old: {lab: old, services: {a: &a\n"
    before += f"        {{unit: a.service, python: {PYTHON}, port: {PORT},\n"
    before += "         model: {path: /m, served_name: m}}}}\n\n# The end.\n"
    book.write_text(before, encoding="utf-8")
    made = report(tmp_path, "init", "ct300", "--ssh-config", str(ssh_config), "--add")
    assert made["exit_code"] == 0, made
    text = book.read_text(encoding="utf-8")
    assert SECRET not in json.dumps(made) + text
    head, _, tail = before.partition("\n# The end.")
    assert text.startswith(head)
    assert text.endswith(f"\n# The end.{tail}")
    services = inventory.load(book).hosts["ct300"].services
    assert set(services) == {"light", "wrapped"}
    wrapped = services["wrapped"]
    # As the script names it, in the environment that it activates.
    assert (wrapped.python, wrapped.port) == (f"{Path(PYTHON).parent}/python3", 30002)
    assert (wrapped.model.path, wrapped.model.served_name) == ("/opt/models/target", "tiny2")
    assert (wrapped.listen, wrapped.distribution) == ("127.0.0.1", "lightserve")
    assert wrapped.api_key == inventory.SecretRef(env="SERVE_KEY")
    assert wrapped.smoke.speculative
    launch = wrapped.launch
    assert (launch.user, launch.stop_timeout) == ("nobody", 120.0)
    assert launch.args == ("--speculative-algorithm=EAGLE", "--cuda-graph-bs", "1", "2")
    assert launch.environment == {"HF_HUB_OFFLINE": "1"}
    assert launch.drop_ins == {"10-kept.conf": "[Service]\nEnvironmentFile=/etc/wrapped.env\n"}
    left_out = {each["what"]: each["why"] for each in made["data"]["left_out"]}
    assert "container" in left_out["boxed.service"]
    assert "org/name" in left_out["hub.service"]
    assert "user's unit" in left_out["/root/.config/systemd/user/mine.service"]
    again = report(tmp_path, "init", "ct300", "--ssh-config", str(ssh_config), "--add")
    assert (again["exit_code"], again["reasons"][0]["code"]) == (2, "host_exists")
    assert book.read_text(encoding="utf-8") == text


def test_a_host_without_such_a_unit_is_told_what_came_near(
    light: LightLab, ssh_config: Path, tmp_path: Path
) -> None:
    light.inside(
        "systemctl stop light.service; mkdir -p /root/aside; cd /etc/systemd/system; "
        "mv light.service light.service.d /root/aside; rm -f wrapped.service boxed.service "
        "hub.service /root/.config/systemd/user/mine.service; systemctl daemon-reload"
    )
    argv = lab.ssh_argv(
        light.name,
        f"exec {PYTHON} -m sglang.launch_server --served-model-name x --host {light.address} "
        f"--port {PORT} --api-key {SECRET}",
    )
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as by_hand:
        try:
            light.await_serving(30)
            done = report(tmp_path, "init", "ct300", "--ssh-config", str(ssh_config))
        finally:
            by_hand.kill()
    assert (done["exit_code"], done["reasons"][0]["code"]) == (3, "no_service_found")
    assert "services were looked at" in done["summary"]
    assert "outside any unit" in done["summary"]
    assert "--api-key [redacted]" in done["summary"]
    assert SECRET not in json.dumps(done)
    assert not (tmp_path / "inventory.yaml").exists()


def test_an_unknown_host_key_is_not_accepted(light: LightLab, tmp_path: Path) -> None:
    empty = tmp_path / "known_hosts"
    empty.touch()
    config = tmp_path / "ssh_config"
    found = lab.connection(light.name)
    config.write_text(
        f"Host *\n  IdentityFile {found.identity_file}\n  UserKnownHostsFile {empty}\n"
    )
    where = f"root@{found.address}:{found.port}"
    done = report(tmp_path, "init", where, "--ssh-config", str(config))
    assert (done["exit_code"], done["reasons"][0]["code"]) == (5, "host_key_unknown")
    assert "ssh-keyscan" in done["reasons"][0]["remedy"]
