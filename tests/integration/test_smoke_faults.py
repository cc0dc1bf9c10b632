"""Two of `smoke_faults` in the lab's real SGLang: smoke catches and names each, and passes the
set itself. All of them: `python tests/integration/smoke_faults.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from smoke_faults import faulty, named
from smoke_trials import ddtree, lenient
from workbench import LAB, Bench

from opsctl.baseline.prompts import bundled

pytestmark = [
    pytest.mark.lab,
    pytest.mark.timeout(400),
    pytest.mark.usefixtures("_referenced"),
]


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quick ones and one with a right answer: a third of the time of all."""
    chosen = [each for each in bundled() if each.quick or each.id == "short-opposite"]
    content = [each.model_dump(exclude_defaults=True) for each in chosen]
    path = tmp_path_factory.mktemp("prompts") / "prompts.yaml"
    path.write_text(yaml.safe_dump({"version": 1, "prompts": content}), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def _referenced(
    _lab_running: None, tmp_path_factory: pytest.TempPathFactory, prompts: Path
) -> Iterator[None]:
    """A plain baseline in the lab, whose next start is DDTREE; the lab as new at the end."""
    bench = Bench(tmp_path_factory.mktemp("reference"))
    for words in (
        ("wait",),
        ("restart", "--plain", "--yes"),
        ("baseline", "capture", "--prompts", str(prompts)),
    ):
        outcome = bench.opsctl(*words)
        assert outcome.exit_code == 0, outcome.said
    bench.add_arguments(*ddtree(32))  # which the wheel as released does not know
    yield
    assert bench.opsctl("lab", "reset", LAB).exit_code == 0


@pytest.mark.parametrize("name", ["kv-of-rejected", "crash-at-second-request"])
def test_a_fault_is_caught_and_named(tmp_path: Path, prompts: Path, name: str) -> None:
    bench, fault = Bench(tmp_path), named(name)
    with lenient(bench):
        deployed = bench.deploy("--patches", str(faulty(fault, tmp_path)))
    assert deployed.exit_code == 0, deployed.said
    bench.service["smoke"]["min_accept_len"] = None
    outcome = bench.opsctl("smoke", "--standard", "--prompts", str(prompts))
    smoke = outcome.report["data"]["smoke"]
    assert outcome.exit_code == 11, outcome.said
    assert smoke["kind"] in fault.kinds, outcome.said


def test_the_set_itself_passes(tmp_path: Path, prompts: Path) -> None:
    bench = Bench(tmp_path)
    deployed = bench.deploy()
    assert deployed.exit_code == 0, deployed.said
    outcome = bench.opsctl("smoke", "--standard", "--prompts", str(prompts))
    assert outcome.exit_code == 0, outcome.said
    checks = {check["name"]: check for check in outcome.report["data"]["smoke"]["checks"]}
    assert checks["lossless"]["verdict"] == "pass"
