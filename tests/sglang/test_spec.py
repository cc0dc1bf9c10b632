from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsctl.sglang import SpecCounters

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "meta-info.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("case", CASES, ids=[str(case["version"]) for case in CASES])
def test_counters(case: dict[str, Any]) -> None:
    counters = SpecCounters.from_meta_info(case["meta"], case["version"])
    for name, expected in case["expect"].items():
        value = getattr(counters, name)
        assert (list(value) if isinstance(value, tuple) else value) == expected, name
    json.dumps(counters.to_json())
