"""The rule base: every sign has a line that shows it, and no line of a sign lacks a needle."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsctl.journal import Diagnoser, diagnose, entry_from_text
from opsctl.journal.page import ACTIONS, page
from opsctl.journal.rules import STEADY_NEEDLES, Sign, needles, rule_base
from opsctl.journal.windows import WINDOW

DATA = Path(__file__).parent / "data"
BASE = rule_base()
# "Kinds to tell apart": those that a server's journal can hold.
KINDS = [
    "gpu_lost", "gpu_ecc", "gpu_hang", "driver_mismatch", "host_oom_killed", "shm_exhausted",
    "weights_corrupt", "model_path_missing", "bad_cli_args", "port_in_use",
    "kernel_undefined_symbol", "missing_shared_library", "flashinfer_version_mismatch",
    "no_kernel_image", "jit_compile_failure", "kv_pool_leak", "kv_pool_exhausted",
    "nan_logits", "tensor_size_mismatch", "cuda_oom", "graph_capture_failure",
    "illegal_memory_access", "device_side_assert", "spec_config_error", "tokenizer_error",
    "import_error", "python_error_after_patch", "detokenizer_crash", "nccl_timeout",
    "nccl_error", "nccl_hang", "segfault", "python_error", "watchdog_timeout", "health_hang",
    "warmup_failure", "child_died", "journal_gap", "stop_hang", "startup_timeout",
    "restart_loop", "exit_code_lies", "orphan_processes", "degenerate_output",
    "zero_acceptance", "implausible_acceptance", "acceptance_decay", "acceptance_collapse",
    "graph_divergence", "ready", "decode_stats", "load_progress", "benign_warning",
    "client_error", "request_payload", "retract_warning", "false_healthy", "false_unhealthy",
    "patch_not_active",
]  # fmt: skip


def test_every_kind_is_there_and_says_what_it_means() -> None:
    assert set(KINDS) <= BASE.kinds.keys()
    for kind in BASE.kinds.values():
        assert kind.cause.endswith("."), kind.name
        assert kind.remedy.endswith("."), kind.name
        assert kind.source, kind.name
        assert kind.incident == (kind.severity in {"fatal", "hardware", "error", "degraded"}) or (
            kind.severity == "warn"
        ), kind.name


def signs() -> list[object]:
    return [pytest.param(sign, id=f"{sign.kind}-{sign.patterns[0][:24]}") for sign in BASE.signs]


@pytest.mark.parametrize("sign", signs())
def test_a_sign_finds_its_examples(sign: Sign) -> None:
    assert sign.examples
    assert not sign.pattern.search("")
    for example in sign.examples:
        assert any(sign.found_in(part, part.lower()) for part in parts(example))
        found = diagnose([entry_from_text(example)])
        if sign.tier == "notice":
            # A death notice alone is no cause, only the last resort.
            assert found.kind != sign.kind or found.confidence == "low"
        else:
            assert (found.kind, found.incident) == (sign.kind, BASE.kinds[sign.kind].incident)


def parts(line: str) -> list[str]:
    """The line, and the line without what stands before a record's own words."""
    return [line, line.partition("] ")[2] or line, re.sub(r"^\S+ +", "", line)]


@pytest.mark.parametrize("sign", signs())
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_a_pattern_matches_has_a_needle(sign: Sign, data: st.DataObject) -> None:
    pattern = data.draw(st.sampled_from(sign.patterns))
    ascii_only = st.characters(codec="ascii", exclude_categories=["Cc"])
    text = data.draw(st.from_regex(re.compile(pattern), alphabet=ascii_only))
    assert any(needle in text.lower() for needle in sign.needles), text


def test_needles_are_plain_and_lower_case() -> None:
    assert all(needle and needle == needle.lower() for needle in needles())
    assert set(STEADY_NEEDLES) <= set(needles())


def decisive_lines() -> list[str]:
    cases = [
        json.loads(line)
        for name in ("public-reports.jsonl", "unlike.jsonl")
        for line in (DATA / name).read_text(encoding="utf-8").splitlines()
    ]
    return [
        case["lines"][at]
        for case in cases
        for at in diagnose(entry_from_text(line) for line in case["lines"]).decisive
    ]


def test_no_line_that_decides_lacks_a_needle() -> None:
    """Of a traceback's frames a reader passes all on; an exception has a needle of its own."""
    texts = needles()
    for line in decisive_lines():
        assert any(needle in line.lower() for needle in texts), line


NOISE = [f"[2026-01-01 00:00:00] nothing of note, {number}" for number in range(WINDOW + 1)]


def cases() -> list[object]:
    return [
        pytest.param(case, id=case["id"])
        for name in ("public-reports.jsonl", "unlike.jsonl", "own.jsonl")
        for case in map(json.loads, (DATA / name).read_text(encoding="utf-8").splitlines())
    ]


@pytest.mark.parametrize("case", cases())
def test_lines_without_a_needle_need_not_be_fed(case: dict[str, Any]) -> None:
    """Noise before, and a reader that passes on what has a needle and the window after it."""
    texts, window = needles(), 0
    whole, some = Diagnoser(), Diagnoser()
    for number, line in enumerate([*NOISE, *case["lines"], *NOISE]):
        whole.feed(number, entry_from_text(line))
        found = {text for text in texts if text in line.lower()}
        window = WINDOW if found - set(STEADY_NEEDLES) else max(window - 1, 0)
        if found or window:
            some.feed(number, entry_from_text(line))
    assert some.result() == whole.result()


STEADY = [
    "[2026-09-20 10:00:01 DP0 TP0 EP0] Decode batch [10401], #running-req: 2, #full token: 8123, "
    "full token usage: 0.02, mamba num: 4, accept len: 3.42, accept rate: 0.81, "
    "cuda graph: True, gen throughput (token/s): 212.02, #queue-req: 0",
    "[2026-04-05 20:02:51] Prefill batch, #new-seq: 1, #new-token: 158, #cached-token: 0, "
    "token usage: 0.08, #running-req: 31, #queue-req: 0, cuda graph: True, "
    "input throughput (token/s): 559.53",
    '[2026-04-05 20:02:51] INFO:     127.0.0.1:40052 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    '[2026-04-05 20:02:51] INFO:     10.0.0.7:40052 - "GET /health HTTP/1.1" 200 OK',
    '[2026-04-05 20:02:51] INFO:     10.0.0.7:40052 - "GET /metrics HTTP/1.1" 200 OK',
]


@pytest.mark.parametrize("line", STEADY)
def test_lines_of_every_second_have_no_needle_but_their_own(line: str) -> None:
    hit = {needle for needle in needles() if needle in line.lower()}
    assert hit <= set(STEADY_NEEDLES)


def test_the_page_is_made_from_the_rules() -> None:
    committed = Path(__file__).resolve().parents[2] / "docs" / "diagnosis.md"
    remake = "python -m opsctl.journal.page > docs/diagnosis.md"
    assert committed.read_text(encoding="utf-8") == page(), f"run: {remake}"


def test_every_action_is_explained() -> None:
    used = {kind.action for kind in BASE.kinds.values()}
    used |= {sign.action for sign in BASE.signs if sign.action}
    assert used == set(ACTIONS)
