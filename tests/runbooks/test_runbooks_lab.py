"""Each runbook in the light lab, with its fault really present: from there to a service that
serves, by following it alone. In SGLang's own lab: `python tests/runbooks/runbook_trials.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from light_lab import running
from runbook_faults import FAULTS, Fault, follow, show
from runbook_killed import killed
from runbook_rigs import LightRig

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LightRig]:
    with running(LightRig, "runbooks", tmp_path_factory) as found:
        yield found


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f.runbook}: {f.what}")
def test_from_the_fault_to_a_service_that_serves(light: LightRig, fault: Fault) -> None:
    light.reset()
    before = show(light, "InvocationID")["InvocationID"]
    undo = fault.put(light)
    try:
        status, report, said = follow(light, fault.runbook)
        assert status == 0, said
        assert report["verdict"] == "pass"
        assert light.await_serving(10) is not None
        assert fault.gone(light) == "", said
        assert show(light, "InvocationID")["InvocationID"] != before
    finally:
        undo()


@pytest.mark.parametrize(
    ("runbook", "step"), [("crash-loop", "swap"), ("planned-restart", "start")]
)
def test_a_killed_client_leaves_a_settled_host_and_the_way_open(
    light: LightRig, runbook: str, step: str
) -> None:
    """Two of the cases of docs/runbook-killed.md."""
    fault = next(each for each in FAULTS if each.runbook == runbook)
    found = killed(light, fault, step, resume=True)
    assert found["reached"]
    assert found["guard"], "the guard has put right what was lost on the way"
    assert found["wrong"] == []
