"""A sample of the faults, on the light service; `fault_matrix.py` runs them all."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from fault_cases import BY_NAME, Case, Fault, connection_reset, run_case
from fault_random import QUICK, run_one
from light_lab import LightLab, Mixture, running, whole
from light_package import contents, part

pytestmark = [pytest.mark.timeout(300)]
lab = pytest.mark.lab


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LightLab]:
    with running(LightLab, "fault-sample", tmp_path_factory) as found:
        yield found


@lab
@pytest.mark.parametrize(
    ("fault", "step", "ends", "guard"),
    [
        ("client killed", "swapping", "old", True),
        ("client killed", "start", "old", True),
        ("host rebooted at once", "swapping", "old", True),
        ("half open both ways", "smoke", None, None),
    ],
)
def test_ends_whole(
    light: LightLab, fault: str, step: str, ends: str | None, guard: bool | None
) -> None:
    version = light.await_serving(60)
    result = run_case(light, BY_NAME[fault], step, new=1 + version % 5, **QUICK)
    assert result.wrong == []
    assert ends in (None, result.end)
    assert guard in (None, result.guard_acted)


def _reset_and_wait(case: Case) -> None:
    """So that the guard acts before the client, which is halted still, comes back."""
    connection_reset(case)
    time.sleep(6)


@lab
@pytest.mark.parametrize("step", ["stop", "swap"])
def test_a_rollback_that_the_guard_ends_says_where(light: LightLab, step: str) -> None:
    fault = Fault("connection reset, a slow client", _reset_and_wait)
    assert [light.deploy(version).finish(60) for version in (1, 2)] == [0, 0]
    result = run_case(light, fault, step, new=1, command="rollback", **QUICK)
    assert result.wrong == []
    assert (result.end, result.exit) == ("new", 0)


@lab
def test_a_short_random_run(light: LightLab) -> None:
    for number in (3, 5):
        record = run_one(light, seed=1, number=number)
        assert record["wrong"] == [], record


def test_a_mixture_is_seen() -> None:
    """What all of this rests on."""
    served = {p[6:-3]: 2 for p in contents(2) if p.startswith("parts/p")}
    assert whole(served) == 2
    with pytest.raises(Mixture):
        whole(served | {"p07": 3})
    with pytest.raises(Mixture, match="extra"):
        whole(served | {"extra": 2})
    assert len(part(7, 2)) == len(part(7, 3)), "a stale bytecode has to pass for the new one"
