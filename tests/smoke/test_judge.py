"""Each case is a sound server but for what it names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsctl.inventory.models import Smoke
from opsctl.journal import Acceptance, Diagnosis
from opsctl.repetition import tail_loop
from opsctl.sglang import ChatAnswer, DecodeBatch, GenerateAnswer, ServerError, SpecCounters
from opsctl.smoke import Probes, SmokeResult, UnitFacts, judge

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "judged.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]
UNIT = {"active_state": "active", "sub_state": "running", "invocation_id": "a", "n_restarts": 0}
SOUND_META = {
    "completion_tokens": 128,
    "spec_verify_ct": 31,
    "spec_accept_length": 128 / 31,
    "spec_num_correct_drafts": 97,
    "spec_num_proposed_drafts": 217,
}
TEXT = "def quicksort(items):\n    # the pivot splits the rest in two\n    return items"


def failed(error: list[Any]) -> ServerError:
    return ServerError("POST /x: it broke", cause=error[0], status=error[1])


def chat_of(given: dict[str, Any]) -> ChatAnswer | ServerError:
    if "error" in given:
        return failed(given["error"])
    sound: dict[str, Any] = {
        "text": TEXT,
        "finish_reason": "length",
        "completion_tokens": 128,
        "prompt_tokens": 12,
        "latency_s": 1.0,
    }
    return ChatAnswer(**(sound | given))


def generate_of(given: dict[str, Any]) -> GenerateAnswer | ServerError:
    if "error" in given:
        return failed(given["error"])
    ids = list(range(1000, 1128))
    if "loop" in given:  # period, and how many tokens come before it
        period, before = given["loop"]
        ids[before:] = [place % period for place in range(128 - before)]
    return GenerateAnswer(
        text=given.get("text", TEXT),
        finish_reason=given.get("finish_reason", "length"),
        completion_tokens=given.get("completion_tokens", 128),
        prompt_tokens=12,
        latency_s=1.0,
        meta=SpecCounters.from_meta_info(given.get("meta", SOUND_META)),
        output_ids=tuple(ids),
    )


def unit_of(case: dict[str, Any], which: str) -> UnitFacts | None:
    given = case.get(which, {})
    return None if given is None else UnitFacts(**(UNIT | given))


def judged(case: dict[str, Any]) -> SmokeResult:
    settings = Smoke(**({"min_accept_len": 2.0} | case.get("settings", {})))
    probes = Probes(
        chat=chat_of(case.get("chat", {})),
        generate=generate_of(case.get("generate", {})),
        prompt=settings.prompt,
        max_tokens=settings.max_tokens,
        algorithm=case.get("algorithm", "DFLASH"),
        draft_tokens=8,
    )
    given = case.get("diagnosis", {"incident": False})
    return judge(
        probes,
        settings,
        unit_before=unit_of(case, "before"),
        unit_after=unit_of(case, "after"),
        diagnosis=None if given is None else Diagnosis(**given),
        acceptance=Acceptance.from_lines([DecodeBatch(running=1, accept_len=4.0)]),
        strict_acceptance=case.get("strict", True),
    )


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_verdict(case: dict[str, Any]) -> None:
    result = judged(case)
    verdicts = {check.name: check.verdict for check in result.checks}
    assert result.verdict == case["expect"], result.reasons
    bad = {name: verdict for name, verdict in verdicts.items() if verdict != "pass"}
    expected = case.get("checks", {})
    assert bad == {name: v for name, v in expected.items() if v != "pass"}
    assert not set(case.get("absent", [])) & set(verdicts)
    assert len(result.notes) == case.get("notes", 0)
    assert bool(result.reasons) == (result.verdict != "pass")
    shown = json.loads(json.dumps(result.to_json()))
    assert shown["verdict"] == result.verdict
    assert len(verdicts) == len(result.checks)  # names are unique


def test_failures_are_told_first() -> None:
    result = judged({"diagnosis": None, "after": {"active_state": "failed"}})
    assert result.verdict == "fail"
    assert result.reasons[0].startswith("unit_active: ")
    assert result.reasons[1].startswith("journal: ")


def test_no_check_is_no_pass() -> None:
    probes = Probes(failed(["failed", None]), failed(["failed", None]), "x", 16)
    assert SmokeResult(checks=(), probes=probes).verdict == "inconclusive"


@pytest.mark.parametrize(
    ("items", "period", "covered"),
    [
        ("", None, 0),
        ("abcdefgh", None, 0),
        ("abab", None, 0),
        ("xyzababab", 2, 6),
        ("aaa", 1, 3),
        ("abcabcabca", 3, 10),
    ],
)
def test_tail_loop(items: str, period: int | None, covered: int) -> None:
    loop = tail_loop(items)
    assert (loop.period if loop else None) == period
    assert (loop.covered if loop else 0) == covered
