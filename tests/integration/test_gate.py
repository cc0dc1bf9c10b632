"""Baseline, levels and gate on a real server: from its first restart to a version let in or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from workbench import LAB, Bench

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

# The machine is shared and slow: what is compared here is what does not depend on that.
RULES: list[dict[str, object]] = [
    {"metric": "soak.error_rate", "fail": "> 0"},
    {"metric": "soak.wrong", "fail": "> 0", "missing": "fail"},
    {"metric": "soak.accept_len_ratio", "fail": "< 1.1", "missing": "fail"},
]


def policy(folder: Path, rules: list[dict[str, object]], level: str = "standard") -> str:
    path = folder / "policy.yaml"
    content = {
        "version": 1,
        "name": "lab",
        "level": level,
        "baseline": "required",
        "soak": {"seconds": 6, "at_once": 3},
        "rules": rules,
        "on_inconclusive": "restore",
    }
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return str(path)


@pytest.fixture
def own_state(bench: Bench) -> Iterator[Bench]:
    """The lab as after its boot again at the end: this leaves a baseline and a generation."""
    yield bench
    assert bench.opsctl("lab", "reset", LAB).exit_code == 0


def test_a_gate_returns_what_does_not_hold_and_keeps_what_does(
    own_state: Bench, tmp_path: Path
) -> None:
    bench = own_state
    refused = bench.opsctl("gate", "--policy", policy(tmp_path, RULES), "--yes")
    assert (refused.exit_code, refused.code) == (3, "no_baseline"), refused.said
    speculates = bench.opsctl("baseline", "capture")
    assert (speculates.exit_code, speculates.code) == (3, "speculative"), speculates.said

    floor = bench.service["smoke"].pop("min_accept_len")  # pristine, it drafts in vain
    captured = bench.opsctl("baseline", "capture", "--restart", "--yes")
    assert captured.exit_code == 0, captured.said
    assert "started as before" in captured.said
    bench.service["smoke"]["min_accept_len"] = floor
    row = captured.report["data"]
    assert (row["reference"], row["precision"], row["algorithm"]) == ("plain", "float32", None)

    before = bench.files()["files"]
    strict: list[dict[str, object]] = [{"metric": "load.seconds", "fail": "> 0.1"}]
    returned = bench.opsctl("gate", "--policy", policy(tmp_path, strict, "quick"), "--yes")
    assert (returned.exit_code, returned.code) == (10, "gate_failed"), returned.said
    assert "load.seconds" in returned.said
    assert returned.report["data"]["gate"]["ending"] == "rolled back"
    assert bench.files()["files"] == before
    assert "without speculation" not in bench.opsctl("status").said

    kept = bench.opsctl("gate", "--policy", policy(tmp_path, RULES), "--yes")
    assert kept.exit_code == 0, kept.said
    found = kept.report["data"]["gate"]
    assert (found["ending"], found["outcome"]) == ("kept", "pass")
    outcomes = {check["name"]: check["outcome"] for check in found["checks"]}
    assert outcomes["lossless"] == outcomes["soak.wrong"] == outcomes["kv_pool"] == "pass"
    assert outcomes["soak.accept_len_ratio"] == "pass", "against the pristine drafter"
    assert [span["name"] for span in found["load"]][:2] == ["starting", "loading weights"]
    assert found["soak"]["requests"] >= 3
    names = {each["name"] for each in found["series"]}
    assert names == {"accept length", "throughput", "running requests"}
    lossless = next(check for check in found["checks"] if check["name"] == "lossless")
    assert set(lossless["evidence"]["counts"]) == {"equal"}, "float32: nothing but equal"
    assert set(bench.opsctl("baseline", "list").report["data"]["baselines"][0]) >= {"id", "model"}
