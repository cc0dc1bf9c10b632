"""The unit's own files as part of a generation: shown, installed, and rolled back with the code."""

from __future__ import annotations

import pytest
from traffic import TOLERANCE, answers, check_metrics
from workbench import UNIT, Bench

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

FRAGMENT = f"/etc/systemd/system/{UNIT}"
DROP_IN = f"{FRAGMENT}.d/20-limits.conf"


def test_code_and_unit_go_and_return_together(bench: Bench) -> None:
    before, unit = bench.files(), bench.inside(f"cat {FRAGMENT}")
    args = bench.service["launch"]["args"]
    args[args.index("--speculative-algorithm=DFLASH")] = "--speculative-algorithm=DDTREE"
    args.append("--speculative-ddtree-budget=16")
    bench.service["launch"]["drop_ins"] = {"20-limits.conf": "[Service]\nLimitCORE=0\n"}

    plan = bench.opsctl("plan")
    assert plan.exit_code == 0, plan.said
    assert plan.report["data"]["plan"]["unit"]["applies"] is False
    plan = bench.opsctl("plan", "--with-unit")
    shown = plan.report["data"]["plan"]["unit"]
    assert shown["applies"] is True
    assert [file["path"] for file in shown["files"]] == [FRAGMENT, DROP_IN]
    assert "+    --speculative-ddtree-budget=16" in shown["files"][0]["diff"]
    assert bench.inside(f"cat {FRAGMENT}") == unit

    deploy = bench.deploy("--with-unit", "--why", "DDTREE, code and unit at once")
    assert deploy.exit_code == 0, deploy.said
    served = bench.opsctl("logs", "--grep", "Initialized DDTREE")
    assert "verify_width=17" in str(served.report["data"])
    assert bench.inside(f"systemctl show {UNIT} -p LimitCORE --value").strip() == "0"
    assert bench.inside(f"systemctl show {UNIT} -p NeedDaemonReload --value").strip() == "no"
    assert bench.deploy("--with-unit").report["data"]["noop"] is True

    metrics = check_metrics(bench)
    counted, sampled = (answers(metrics)[source] for source in ("DDTREE lines", "decode lines"))
    assert counted == pytest.approx(sampled, rel=TOLERANCE)

    back = bench.opsctl("rollback", "--yes")
    assert back.exit_code == 0, back.said
    assert back.report["generation"] == metrics["previous"]["generation"]
    assert bench.inside(f"cat {FRAGMENT}") == unit
    found = bench.inside(f"ls {FRAGMENT}.d").split()
    assert found == ["10-lab-cpu.conf", "opsctl-prestart.py"]
    assert bench.files()["files"] == before["files"]
