"""The rule base against public reports (their url is `source`) and cases of our own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsctl.journal import Entry, clean, diagnose, entry_from_text
from opsctl.journal.rules import rule_base

DATA = Path(__file__).parent / "data"
LOGS = Path(__file__).parent.parent / "sglang" / "data"


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


# Kinds that need numbers over time, probes or silence to tell: not in the rules yet.
NOT_YET = {
    "acceptance_collapse",
    "acceptance_decay",
    "degenerate_output",
    "graph_divergence",
    "implausible_acceptance",
    "nccl_hang",
}
NOT_SGLANG = {"corruption-013"}  # another server's wording of accept length 1.00


def reports() -> list[Any]:
    return [
        pytest.param(
            case,
            id=case["id"],
            marks=[pytest.mark.xfail(reason="not in the rules yet", strict=True)]
            if case["kind"] in NOT_YET or case["id"] in NOT_SGLANG
            else [],
        )
        for case in rows("public-reports.jsonl")
    ]


@pytest.mark.parametrize("case", reports())
def test_public_report(case: dict[str, Any]) -> None:
    found = diagnose([entry_from_text(line) for line in case["lines"]])
    assert (found.incident, found.kind) == (case["incident"], case["kind"])


@pytest.mark.parametrize("case", rows("real-failures.jsonl"), ids=lambda case: case["id"])
def test_real_failure(case: dict[str, Any]) -> None:
    found = diagnose([Entry(realtime=0.0, message=clean(line)) for line in case["lines"]])
    assert (found.incident, found.kind) == (True, case["kind"])


@pytest.mark.parametrize("case", rows("own.jsonl"), ids=lambda case: case["id"])
def test_own(case: dict[str, Any]) -> None:
    found = diagnose([entry_from_text(line) for line in case["lines"]])
    assert (found.incident, found.kind) == (case["incident"], case["kind"])
    assert list(found.decisive) == case.get("decisive", list(found.decisive))
    assert list(found.also) == case.get("also", list(found.also))
    assert case.get("phase", "") in found.phase
    assert case.get("remedy", "") in found.remedy
    assert case.get("traceback", "") in found.last_traceback
    assert len(found.lines) == len(found.decisive)
    assert bool(found.remedy) == found.incident
    json.dumps(found.to_json())


def entries(name: str) -> list[Entry]:
    lines = (LOGS / name).read_bytes().decode().split("\n")
    return [Entry(realtime=float(at), message=clean(line)) for at, line in enumerate(lines)]


def test_a_real_healthy_start() -> None:
    found = diagnose(entries("healthy-0.5.12.post1-dflash-cpu.log"))
    assert not found.incident
    assert found.also == ("client_error",)


def test_a_real_crash_in_the_verify_forward() -> None:
    found = diagnose(entries("verify-crash-0.5.12.post1-dflash-cpu.log"))
    assert (found.kind, found.phase, found.also) == (
        "tensor_size_mismatch",
        "serve",
        ("child_died",),
    )
    assert "must match the size of tensor b (33)" in found.lines[0]
    assert found.last_traceback.count("\n") > 50
    assert found.last_traceback.splitlines()[-1].endswith("non-singleton dimension 0")
    assert "width" in found.remedy


def test_the_journal_need_not_begin_at_the_start() -> None:
    crash = entries("verify-crash-0.5.12.post1-dflash-cpu.log")
    at = next(i for i, entry in enumerate(crash) if "hit an exception" in entry.message)
    assert diagnose(crash[at:]).kind == "tensor_size_mismatch"
    assert diagnose(crash[at + 9 :]).kind == "tensor_size_mismatch"
    assert not diagnose(crash[:at]).incident


def test_rules_are_complete() -> None:
    base = rule_base()
    for rule in base.rules:
        assert rule.remedy.endswith((".", ")")), rule.kind
        assert not rule.pattern.search(""), rule.kind
    assert not base.ignore.search("")
    # a notice alone never gives its kind, so every incident kind needs another tier or is unknown
    assert {rule.kind for rule in base.rules if rule.tier == "notice"} >= {"child_died"}
