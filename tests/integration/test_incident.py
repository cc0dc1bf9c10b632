"""The incident itself, by SGLang's own CudaGraphRunner on the lab's stand-in, and its cure."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from workbench import INCIDENT, LAB, Bench

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
GRAPH_PATCH = "0008"


@pytest.fixture
def own_state(bench: Bench) -> Iterator[Bench]:
    """The lab as after its boot again at the end: this changes its unit."""
    yield bench
    assert bench.opsctl("lab", "reset", LAB).exit_code == 0


def test_the_incident_and_its_cure(own_state: Bench) -> None:
    bench = own_state
    incomplete = bench.set_without(GRAPH_PATCH)
    # On a DFLASH unit it is harmless, so nothing stands in the way of what happened.
    deployed = bench.deploy("--patches", str(incomplete))
    assert deployed.exit_code == 0, deployed.said
    bench.add_arguments("--speculative-algorithm=DDTREE", "--speculative-ddtree-budget=32")
    broken = bench.opsctl("restart", "--yes")
    assert broken.exit_code == 11, broken.said
    assert broken.code == "tensor_size_mismatch"
    assert INCIDENT in broken.said

    diagnosed = bench.opsctl("diagnose")
    assert diagnosed.exit_code == 11, diagnosed.said
    assert (diagnosed.code, diagnosed.report["phase"]) == ("tensor_size_mismatch", "warmup")
    assert any(INCIDENT in line for line in diagnosed.report["lines"])
    assert "width" in diagnosed.report["remedy"]
    assert "cuda_graph_runner.py" in diagnosed.report["last_traceback"]

    cure = bench.deploy()
    assert cure.exit_code == 0, cure.said
    assert cure.report["data"]["accept_len"] > 3.0
    assert cure.report["data"]["smoke"]["acceptance"]["cuda_graph_share"] == 1.0
    served = bench.opsctl("logs", "--grep", "Initialized DDTREE")
    assert "verify_width=33" in str(served.report["data"])

    before = bench.files()
    again = bench.deploy("--patches", str(incomplete))
    assert again.exit_code == 10, again.said
    assert INCIDENT in again.said
    assert bench.files()["files"] == before["files"]
    smoke = bench.opsctl("smoke")
    assert smoke.exit_code == 0, smoke.said
