"""Bad input and faults: one clear message, the right exit, and the host as it was."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from workbench import DFLASH, INCIDENT, LAB, PACKAGE, UNIT, Bench

from opsctl import lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(400)]

IMPORT_LOGGING = "import logging\n"


def test_patch_that_does_not_apply(bench: Bench) -> None:
    before = bench.fingerprint()
    root = bench.patch_set({DFLASH: (IMPORT_LOGGING, "import logging\nimport os\n")})
    patch = root / "sglang-0.5.12.post1" / "ddtree" / "0001-break.patch"
    patch.write_text(patch.read_text().replace(" import logging", " import loggings"))
    outcome = bench.deploy("--patches", str(root))
    assert outcome.exit_code == 3, outcome.said
    assert "0001-break.patch" in outcome.said
    assert DFLASH in outcome.said
    assert bench.fingerprint() == before


def test_patch_with_a_syntax_error(bench: Bench) -> None:
    before = bench.fingerprint()
    root = bench.patch_set({DFLASH: (IMPORT_LOGGING, "import logging\ndef broken(:\n")})
    outcome = bench.deploy("--patches", str(root))
    assert outcome.exit_code == 3, outcome.said
    assert DFLASH in outcome.said
    assert "syntax" in outcome.said.lower()
    assert bench.fingerprint() == before


def test_server_dies_while_loading(bench: Bench) -> None:
    before = bench.files()
    # Not at import: SGLang's registry swallows that, and calls the model unsupported.
    line = '        rope_theta = float(getattr(config, "rope_theta", 1000000))\n'
    died = '        raise RuntimeError("this build is broken")\n'
    root = bench.patch_set({DFLASH: (line, died)})
    outcome = bench.deploy("--patches", str(root))
    assert outcome.exit_code == 10, outcome.said
    assert "this build is broken" in outcome.said
    _old_version_serves(bench, before)


def test_dies_at_the_first_verify_as_in_the_incident(bench: Bench) -> None:
    """The shim raises the file's text inside the verify forward, where SGLang raised it."""
    before = bench.files()
    code = (
        "import logging\nimport os\nimport tempfile\n\n"
        "with tempfile.NamedTemporaryFile('w', delete=False) as fault_file:\n"
        f'    fault_file.write("{INCIDENT}")\n'
        'os.environ["CPU_ATTN_FAULT_FILE"] = fault_file.name\n'
    )
    root = bench.patch_set({DFLASH: (IMPORT_LOGGING, code)})
    outcome = bench.deploy("--patches", str(root))
    assert outcome.exit_code == 10, outcome.said
    assert outcome.code == "tensor_size_mismatch"
    assert INCIDENT in outcome.said
    assert "CUDA graph" in outcome.said
    _old_version_serves(bench, before)


def test_smoke_sees_a_server_die_at_its_request(bench: Bench) -> None:
    """Ready, and then the first verify after the warm-up kills it."""
    bench.inside(f"mkdir -p /run/opsctl-lab && echo '{INCIDENT}' > /run/opsctl-lab/fault")
    try:
        outcome = bench.opsctl("smoke")
    finally:
        bench.inside("rm -f /run/opsctl-lab/fault")
    assert outcome.exit_code == 11
    assert outcome.report["verdict"] == "fail"
    assert "tensor_size_mismatch" in outcome.said
    # systemd starts it again, without the fault; leave the counter as it was found.
    bench.inside(f"systemctl restart {UNIT}")


def test_load_longer_than_the_budget(bench: Bench) -> None:
    before = bench.files()
    outcome = bench.deploy("--budget", "3s")
    assert outcome.exit_code == 10, outcome.said
    assert outcome.code == "budget_exceeded"
    assert "3 s" in outcome.said
    _old_version_serves(bench, before)


def test_port_already_taken(bench: Bench) -> None:
    address = lab.connection(LAB).address
    bench.inside(f"systemctl stop {UNIT}")
    bench.inside(
        f"systemd-run --unit=squatter python3 -m http.server 30001 --bind {address} && sleep 1"
    )
    before = bench.fingerprint()
    try:
        outcome = bench.deploy()
        assert outcome.exit_code == 3, outcome.said
        assert "30001" in outcome.said
        assert "http.server" in outcome.said
        assert bench.fingerprint() == before
        doctor = bench.opsctl("doctor")
        assert doctor.exit_code == 3
        assert "30001" in doctor.said
    finally:
        bench.inside(f"systemctl stop squatter; systemctl start {UNIT}")


def test_wrong_sglang_version(bench: Bench) -> None:
    metadata = f"{PACKAGE}-0.5.12.post1.dist-info/METADATA"
    bench.inside(
        f"cp {metadata} /tmp/metadata && sed -i 's/^Version: .*/Version: 0.5.11/' {metadata}"
    )
    before = bench.fingerprint()
    try:
        outcome = bench.deploy()
        assert outcome.exit_code == 3, outcome.said
        assert "0.5.11" in outcome.said
        assert "0.5.12.post1" in outcome.said
        assert bench.fingerprint() == before
    finally:
        bench.inside(f"mv /tmp/metadata {metadata}")


def test_file_changed_by_hand(bench: Bench) -> None:
    path = f"{PACKAGE}/{DFLASH}"
    bench.inside(f"cp -p {path} /tmp/kept && echo 'print(\"debug: here\")' >> {path}")
    before = bench.fingerprint()
    try:
        outcome = bench.deploy()
        assert outcome.exit_code == 3, outcome.said
        assert outcome.code == "drift"
        assert '+print("debug: here")' in outcome.said
        assert bench.fingerprint() == before
        doctor = bench.opsctl("doctor")
        assert doctor.exit_code == 3
        assert DFLASH in doctor.said
    finally:
        bench.inside(f"mv /tmp/kept {path}")


def test_unknown_host_key_and_its_remedy(bench: Bench, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.touch()
    bench.by_ssh(known_hosts=str(known))
    outcome = bench.deploy()
    assert outcome.exit_code == 5, outcome.said
    assert outcome.code == "host_key_unknown"
    remedy = outcome.report["reasons"][0]["remedy"]
    command = remedy[remedy.index("ssh-keyscan") :]
    subprocess.run(command, shell=True, check=True, capture_output=True)
    assert bench.opsctl("status").exit_code == 0


def test_changed_host_key_and_its_remedy(bench: Bench, tmp_path: Path) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True
    )
    key = " ".join((tmp_path / "other.pub").read_text().split()[:2])
    known = tmp_path / "known_hosts"
    known.write_text(f"[{lab.connection(LAB).address}]:2222 {key}\n")
    bench.by_ssh(known_hosts=str(known))
    outcome = bench.deploy()
    assert outcome.exit_code == 5, outcome.said
    assert outcome.code == "host_key_changed"
    remedy = outcome.report["reasons"][0]["remedy"]
    command = remedy[remedy.index("ssh-keygen") :]
    subprocess.run(command, shell=True, check=True, capture_output=True)
    assert bench.opsctl("status").code == "host_key_unknown"


def test_wrong_key(bench: Bench, tmp_path: Path) -> None:
    key = tmp_path / "wrong"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    bench.by_ssh(identity_file=str(key))
    outcome = bench.deploy()
    assert outcome.exit_code == 5, outcome.said
    assert outcome.code == "auth_failed"
    assert str(key) in outcome.said


def test_host_that_is_down(bench: Bench) -> None:
    bench.by_ssh(address="127.77.250.1")
    outcome = bench.deploy()
    assert outcome.exit_code == 5, outcome.said
    assert outcome.code == "host_down"
    assert "127.77.250.1" in outcome.said
    doctor = bench.opsctl("doctor")
    assert doctor.exit_code == 5


def test_unit_that_does_not_exist(bench: Bench) -> None:
    before = bench.fingerprint()
    bench.service["unit"] = "sglang-k27.service"
    outcome = bench.deploy()
    assert outcome.exit_code == 3, outcome.said
    assert outcome.code == "preflight_unit"
    assert "sglang-k27.service" in outcome.said
    assert bench.fingerprint() == before


def test_malformed_inventory(bench: Bench) -> None:
    bench.service["port"] = 99999
    outcome = bench.deploy()
    assert outcome.exit_code == 2
    assert f"hosts.{LAB}.services.sglang-k26-ddtree.port" in outcome.said


def test_python_that_does_not_exist(bench: Bench) -> None:
    bench.service["python"] = "/opt/nowhere/bin/python"
    outcome = bench.deploy()
    assert outcome.exit_code == 3, outcome.said
    assert outcome.code == "python_missing"


def test_edited_unit_that_was_not_reloaded(bench: Bench) -> None:
    drop_in = f"/etc/systemd/system/{UNIT}.d/99-edited.conf"
    bench.inside(f"printf '[Service]\\nNice=1\\n' > {drop_in}")
    try:
        outcome = bench.deploy()
        assert outcome.exit_code == 3, outcome.said
        assert outcome.code == "preflight_daemon_reload"
    finally:
        bench.inside(f"rm {drop_in} && systemctl daemon-reload")


def test_sudo_user(bench: Bench) -> None:
    bench.by_ssh(user="ops")
    outcome = bench.opsctl("status")
    assert outcome.exit_code == 0, outcome.said
    assert outcome.report["data"]["http"] == "serving tiny"


def test_user_without_sudo(bench: Bench) -> None:
    bench.by_ssh(user="nosudo")
    outcome = bench.opsctl("status")
    assert outcome.exit_code == 5
    assert outcome.code == "sudo_password"


def test_ssh_configuration_is_honoured(bench: Bench, tmp_path: Path) -> None:
    """Include, Match, HostName, Port, User, IdentityFile and ProxyJump, as `ssh -G` has them."""
    found = lab.connection(LAB)
    (tmp_path / "more").write_text(
        f"Host target jump\n HostName {found.address}\n Port 2222\n User root\n"
        f" IdentityFile {found.identity_file}\n UserKnownHostsFile {found.known_hosts}\n"
        "Match originalhost target\n ProxyJump jump\n"
    )
    (tmp_path / "config").write_text(f"Include {tmp_path}/more\n")
    bench.by_ssh(
        address="target",
        config=str(tmp_path / "config"),
        user=None,
        port=None,
        identity_file=None,
        known_hosts=None,
    )
    outcome = bench.opsctl("status")
    assert outcome.exit_code == 0, outcome.said
    # The target sees the connection come from the jump, which is the same machine.
    assert "serving tiny" in outcome.report["summary"]


def _old_version_serves(bench: Bench, before: dict[str, str]) -> None:
    after = bench.files()
    assert after["files"] == before["files"]
    assert after["modes"] == before["modes"]
    status = bench.opsctl("status")
    assert status.report["data"]["http"] == "serving tiny"
    assert status.report["data"]["swap"] is None
