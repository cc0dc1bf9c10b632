"""What `opsctl diagnose` says of a report does not depend on the form that it comes in."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from journal_forms import FORMS, Form, plain

from opsctl.rollout.diagnosing import of_stream

REPORTS = Path(__file__).parent / "data" / "public-reports.jsonl"
CASES: list[dict[str, Any]] = [
    json.loads(row) for row in REPORTS.read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_public_report(case: dict[str, Any], form: Form) -> None:
    found = of_stream(io.BytesIO(form(case["lines"])), "report")
    assert (found.incident, found.kind) == (case["incident"], case["kind"])
    assert found.severity == case["severity"]
    assert not case["decisive"] or set(found.decisive) & set(case["decisive"])


def test_an_excerpt_is_told_of_and_judged_as_any_other() -> None:
    case = next(case for case in CASES if case["id"] == "steady-003")
    found = of_stream(io.BytesIO(plain(case["lines"])), "report")
    assert (found.kind, found.also) == ("decode_stats", ())
    (gap,) = found.data["gaps"]
    assert (gap["kind"], gap["line"]) == ("midway", 0)


def test_lost_lines_are_said_beside_what_is_there() -> None:
    case = next(case for case in CASES if case["id"] == "steady-003")
    lines = [*case["lines"], "-- Suppressed 4 messages from sglang.service"]
    found = of_stream(io.BytesIO(plain(lines)), "report")
    assert (found.incident, found.kind) == (False, "journal_gap")
    assert [gap["kind"] for gap in found.data["gaps"]] == ["midway", "suppressed"]
    assert found.data["gaps"][1]["count"] == 4
