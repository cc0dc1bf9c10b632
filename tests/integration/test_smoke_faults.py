"""Two of `smoke_faults` in the lab's real SGLang: smoke passes the set itself, catches and names
each, and a runbook leads out of it. All of them: `python tests/integration/smoke_faults.py`."""

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
    chosen = [each for each in bundled().prompts if each.quick or each.id == "short-opposite"]
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


def test_the_set_itself_passes(tmp_path: Path, prompts: Path) -> None:
    bench = Bench(tmp_path)
    deployed = bench.deploy()
    assert deployed.exit_code == 0, deployed.said
    outcome = bench.opsctl("smoke", "--standard", "--prompts", str(prompts))
    assert outcome.exit_code == 0, outcome.said
    checks = {check["name"]: check for check in outcome.report["data"]["smoke"]["checks"]}
    assert checks["lossless"]["verdict"] == "pass"


@pytest.mark.parametrize(
    ("name", "runbook"),
    [
        ("kv-of-rejected", "garbage-output"),
        ("drafter-never-matches", "acceptance-collapsed"),
    ],
)
def test_a_fault_is_caught_and_named_and_its_runbook_leads_out(
    tmp_path: Path, prompts: Path, name: str, runbook: str
) -> None:
    """From a generation that is wrong to the one before it, by the runbook alone."""
    bench, fault = Bench(tmp_path), named(name)
    before = bench.opsctl("status").report["generation"]
    with lenient(bench):
        deployed = bench.deploy("--patches", str(faulty(fault, tmp_path)))
    assert deployed.exit_code == 0, deployed.said
    outcome = bench.opsctl("smoke", "--standard", "--prompts", str(prompts))
    smoke = outcome.report["data"]["smoke"]
    assert outcome.exit_code == 11, outcome.said
    assert smoke["kind"] in fault.kinds, outcome.said
    followed = bench.opsctl("runbook", "run", runbook, "--yes", "--prompts", str(prompts))
    assert followed.exit_code == 0, followed.stderr
    assert followed.report["generation"] == before
    told = {step["name"]: step["outcome"] for step in followed.report["data"]["steps"]}
    assert told["examine"] == told["swap"] == told["smoke"] == "done"
