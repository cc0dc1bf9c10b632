"""A sample of the faults, on the light service; `fault_matrix.py` runs them all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fault_cases import BY_NAME, run_case
from light_lab import LightLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LightLab]:
    found = LightLab("fault-sample", tmp_path_factory.mktemp("light"))
    found.up()
    try:
        yield found
    finally:
        found.down()


def test_client_killed_between_stop_and_start(light: LightLab) -> None:
    """The guard finds the service stopped, and starts what was there."""
    result = run_case(light, BY_NAME["client killed"], "stop", new=1)
    assert result.wrong == []
    assert result.end == "old"
    assert result.guard_acted
    assert result.silent_s < 20
