"""The table of log lines against lines of every version, and against a real server's log."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from opsctl.journal import clean
from opsctl.sglang import grammar, parse, parse_all
from opsctl.sglang.releases import RELEASES

DATA = Path(__file__).parent / "data"
CASES = [
    json.loads(line) for line in (DATA / "lines.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize("case", CASES, ids=[case["line"][:60] for case in CASES])
def test_line(case: dict[str, Any]) -> None:
    parsed = parse(clean(case["line"]))
    assert (type(parsed).__name__ if parsed else None) == case["kind"]
    for name, expected in case["fields"].items():
        assert getattr(parsed, name) == expected, name


def test_every_rule_has_a_line() -> None:
    seen = {case["kind"] for case in CASES} | {"DistributedBegin", "DistributedEnd"}
    assert len(seen - {None}) == len(grammar.RULES) - 1  # begin and end are one kind
    of_sglang = {kind for release in RELEASES for kind in release.lines}
    assert {rule.kind for rule in grammar.RULES} == of_sglang | {"uvicorn", "ddtree"}


def test_two_statements_in_one_message_both_count() -> None:
    message = clean(
        "\rMulti-thread loading shards: 100% Completed | 4/4 [00:02<00:00,  1.70it/s]"
        "[2026-11-29 14:27:28 TP1] Load weight begin. avail mem=21.91 GB"
    )
    assert [type(line).__name__ for line in parse_all(message)] == [
        "WeightShards",
        "LoadWeightBegin",
    ]


def test_a_real_start() -> None:
    text = (DATA / "healthy-0.5.12.post1-dflash-cpu.log").read_bytes().decode()
    kinds = Counter(
        type(found).__name__ for line in text.split("\n") for found in parse_all(clean(line))
    )
    assert kinds["ServerArgs"] == kinds["UvicornRunning"] == kinds["ServerReady"] == 1
    assert kinds["LoadWeightBegin"] == kinds["LoadWeightEnd"] == 2  # target and drafter
    assert kinds["KvCacheAllocated"] == kinds["MemoryPoolEnd"] == 2
    assert kinds["DraftRunnerReady"] == kinds["VerifyCompleted"] == 1
    assert kinds["DecodeBatch"] > 50
