"""Diagnoses as `opsctl diagnose -` makes them: through its reader, of whole reports.

`blind.jsonl` was written from what public reports of these kinds look like. Round 1, before the
rules were looked at: of 141 at the first try 117 kinds, 134 verdicts (incident or not), 123
severities, 115 phases, 108 actions and the decisive lines of 109 were right. Round 2, after these
were mended, of the kinds that had failed: 42, 46, 44, 41, 43 and 45 of 49. `corrected` marks the
five whose expected kind was changed afterwards, for the rules' reading was the better one; that
kinds without an incident have no decisive lines was corrected throughout.

Round 3, 70 cases of kind and verdict alone by somebody who had not seen the rules: 62 kinds and 66
verdicts at the first try. `corrected` there are b3-40 (lines lost to rate limiting are no incident,
as in all other cases) and b3-58 (a load that goes on after downloads were retried, which was to be
`benign_warning`); both count as wrong above.
"""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from opsctl.report import DiagnosisReport
from opsctl.rollout.diagnosing import of_stream

DATA = Path(__file__).parent / "data"
FILES = ("blind.jsonl", "public-reports.jsonl", "unlike.jsonl")


@cache
def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def diagnosed(case: dict[str, Any]) -> DiagnosisReport:
    text = "\n".join(case["lines"]) + "\n"
    return of_stream(io.BytesIO(text.encode()), "-")


def cases() -> list[object]:
    return [pytest.param(case, id=case["id"]) for name in FILES for case in rows(name)]


@pytest.mark.parametrize("case", cases())
def test_kind_and_verdict(case: dict[str, Any]) -> None:
    found = diagnosed(case)
    assert (found.incident, found.kind) == (case["incident"], case["kind"])


# What is reached, of the 190 of rounds 1 and 2; see the module's docstring for the first tries.
@pytest.mark.parametrize(
    ("what", "floor"), [("severity", 186), ("phase", 174), ("action", 170), ("decisive", 183)]
)
def test_blind_cases_as_a_whole(what: str, floor: int) -> None:
    right = 0
    for case in (case for case in rows("blind.jsonl") if case["round"] < 3):
        found, expected = getattr(diagnosed(case), what), case[what]
        if what == "decisive":
            right += not expected or bool(set(found) & set(expected))
        else:
            right += found == expected
    assert right >= floor


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "request.received", "obj": {"text": "the output is garbage"}}',
        '{"choices":[{"message":{"content":"My model outputs gibberish, why?"}}]}',
        '{"choices":[{"message":{"content":"","tool_calls":[{"id":"1"}]}}],'
        '"usage":{"completion_tokens":20}}',
        '{"choices":[{"message":{"content":"| a | b |\\n|---|---|\\n|---------------|"}}]}',
        "[2026-01-01 00:00:00] garbage collection of generated outputs frozen",
        "Output: Paris is the capital of France, of course.",
    ],
)
def test_sound_answers_and_words_in_them_are_no_incident(line: str) -> None:
    assert not diagnosed({"lines": [line]}).incident


def test_the_rest_of_an_excerpt_is_what_counts() -> None:
    """That its start is missing is among the report's gaps, and never the kind."""
    line = "[2026-01-31 10:20:30 TP0] Decode batch, #running-req: 1, #token: 9, token usage: 0.00"
    found = diagnosed({"lines": [line]})
    assert (found.kind, found.also) == ("decode_stats", ())
    assert [gap["kind"] for gap in found.data["gaps"]] == ["midway"]
