"""The main job on a real host: real sshd, systemd, journal and SGLang."""

from __future__ import annotations

import signal

import pytest
from workbench import DFLASH, PACKAGE, STATE, Bench

pytestmark = [pytest.mark.lab, pytest.mark.timeout(400)]


def test_deploy_and_rollback(bench: Bench) -> None:
    before = bench.files()
    smoke = bench.opsctl("smoke")
    assert smoke.exit_code == 11
    assert smoke.report["data"]["accept_len"] < 1.5

    plan = bench.opsctl("plan")
    assert plan.exit_code == 0
    assert DFLASH in [f["path"] for f in plan.report["data"]["plan"]["files"]]
    assert bench.files() == before

    deploy = bench.deploy("--why", "the test of the main job")
    assert deploy.exit_code == 0, deploy.said
    data = deploy.report["data"]
    assert deploy.report["verdict"] == "pass"
    assert data["accept_len"] > 3.0
    assert data["verify_steps"] > 0
    assert data["lag_s"] <= 1.0
    assert "get_rope_config" in bench.inside(f"cat {PACKAGE}/{DFLASH}")
    assert bench.files()["modes"] == before["modes"]

    again = bench.deploy()
    assert again.exit_code == 0
    assert again.report["data"]["noop"] is True

    status = bench.opsctl("status")
    assert status.report["generation"] == deploy.report["generation"]
    assert status.report["data"]["set"]["name"] == "ddtree"

    metrics = bench.opsctl("metrics")
    assert metrics.report["data"]["acceptance"]["accept_len"]["mean"] > 2.0

    doctor = bench.opsctl("doctor")
    assert doctor.exit_code == 0, doctor.said

    back = bench.opsctl("rollback", "--yes")
    assert back.exit_code == 0, back.said
    assert back.report["generation"] == 0
    after = bench.files()
    assert (after["files"], after["modes"]) == (before["files"], before["modes"])


def test_restart(bench: Bench) -> None:
    invocation = bench.opsctl("status").report["data"]["unit"]["invocation"]
    bench.service["smoke"]["min_accept_len"] = None
    outcome = bench.opsctl("restart", "--yes")
    assert outcome.exit_code == 0, outcome.said
    assert outcome.report["data"]["invocation"] != invocation
    assert outcome.report["data"]["lag_s"] <= 1.0


def test_interrupt_in_the_middle_restores(bench: Bench) -> None:
    """A cancelled CI job: SIGTERM while the new version loads."""
    before = bench.files()
    process = bench.start("deploy", "--yes")
    bench.wait_for_swap()
    process.send_signal(signal.SIGTERM)
    outcome = bench.finish(process)
    assert outcome.exit_code == 130, outcome.said
    assert bench.files()["files"] == before["files"]
    assert bench.opsctl("status").report["data"]["http"] == "serving tiny"


def test_a_connection_lost_in_mid_load_is_made_again(bench: Bench) -> None:
    """The load goes on meanwhile, and so does the deploy: eleven minutes are not thrown away."""
    process = bench.start("deploy", "--yes")
    bench.wait_for_swap()
    # Our own session is among these, hence the detour through a transient unit.
    bench.inside(
        "systemd-run --on-active=1 --timer-property=AccuracySec=100ms pkill -f 'sshd: root@'"
    )
    outcome = bench.finish(process)
    assert outcome.exit_code == 0, outcome.said
    steps = [(event["step"], event["state"]) for event in outcome.report["events"]]
    assert ("reconnect", "ok") in steps
    assert "get_rope_config" in bench.inside(f"cat {PACKAGE}/{DFLASH}")
    assert bench.inside("ls /var/lib/opsctl/*/guard.json || true") == ""
    assert bench.opsctl("rollback", "--yes").exit_code == 0


def test_lock_is_held_by_one(bench: Bench) -> None:
    before = bench.fingerprint()
    holder = (
        f"import fcntl,json,time;f=open('{STATE}/lock','a+');fcntl.flock(f,2);f.truncate(0);"
        "f.write(json.dumps({'who':'alice@laptop','why':'a hotfix','since':time.time()}));"
        "f.flush();time.sleep(60)"
    )
    bench.inside(
        f'mkdir -p {STATE} && systemd-run --unit=lock-holder python3 -c "{holder}" && sleep 0.5'
    )
    try:
        outcome = bench.deploy()
        assert outcome.exit_code == 4, outcome.said
        assert "alice@laptop" in outcome.said
    finally:
        bench.inside("systemctl stop lock-holder")
    assert bench.fingerprint() == before
