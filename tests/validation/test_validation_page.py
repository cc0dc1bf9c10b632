"""The validation's page, from a small result; its figures are checked by hand."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "validation"))
page = importlib.import_module("page")


def tally(equal: int, gaps: list[float], tokens: int, steps: int) -> dict[str, Any]:
    diverged = [{"prompt": i, "at": 3, "rank": 2, "gap": gap} for i, gap in enumerate(gaps)]
    kinds = {
        "code": {"tokens": tokens, "steps": steps},
        "chat": {"tokens": 2 * tokens, "steps": steps},
    }
    return {"equal": equal, "diverged": diverged, "kinds": kinds}


def server(*figures: Any) -> dict[str, Any]:
    return {
        "alone": tally(*figures),
        "four_at_once": tally(*figures),
        "cuda_graph": {"true": 7, "false": 1},
        "used_tokens": 0,
    }


def entry(result: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"options": {}, "commit": "abc", "seconds": 12.5, "result": result, **more}


TEXT = {
    "prompts": 8,
    "tokens": 16,
    "servers": {
        "plain": server(8, [], 100, 99),
        "dflash": server(6, [0.0, 0.125], 100, 50),
        "ddtree-8": server(7, [0.5], 100, 40),
    },
    "graphs_on_off": {
        "ddtree-8": {"equal": 6, "differ": [{"prompt": 1, "at": 2, "gap": 0.125},
                                             {"prompt": 2, "at": 9, "gap": None}]}
    },
}  # fmt: skip
SIZES = {
    "2": {
        "dflash": {"tokens_per_s": [100.0, 200.0], "ms_per_step": [10.0, 10.0]},
        "ddtree-8": {"tokens_per_s": [150.0, 240.0], "ms_per_step": [11.0, 12.0]},
    }
}
PASSED = {"chi2": 5.0, "freedom": 5, "p": 0.416, "outcomes": 9, "pooled": 0.01}
SAMPLING = {
    "count": 100,
    "few": 25,
    "tests": {"bfloat16": [{"1 to 3": {"again": PASSED, "greedy": {**PASSED, "p": 2e-9}}}]},
}
RESULT: dict[str, Any] = {
    "machine": {"gpu": "A card, 1.2"},
    "pair": {
        "target": {"architectures": ["A"], "num_hidden_layers": 30, "hidden_size": 576},
        "draft": {"num_hidden_layers": 2, "block_size": 8},
    },
    "stages": {
        "text": entry(TEXT),
        "sampling": entry(SAMPLING),
        "speed": entry(
            {
                "groups": [
                    {
                        "tokens_per_s": {"dflash": [10.0, 20.0], "ddtree-8": [15.0, 24.0]},
                        "accept_len": {"dflash": 2.0, "ddtree-8": 2.5},
                    }
                ]
            },
            options={"speed_prompts": 2, "speed_tokens": 16, "repeats": 2},
        ),
        "batch": entry(
            {"groups": [{"sizes": SIZES, "failed": {"plain": ["log"]}}]},
            options={"batch_tokens": 16, "batch_repeats": 2},
        ),
        "large": entry(
            {"hidden": 4096, "layers": 32, "sizes": SIZES},
            options={"large_tokens": 16, "large_repeats": 2},
        ),
        "incident": entry({}, error="Traceback\nValueError: no such file"),
    },
}


def test_divergences_are_counted_and_judged() -> None:
    shown = page.render(RESULT, "r.json")
    assert "| dflash | 6 of 8 | 2, gap up to 0.125, 0 over 0.25; rank up to 2 |" in shown
    assert "| ddtree-8 | 7 of 8 | 1, gap up to 0.500, 1 over 0.25; rank up to 2 |" in shown
    assert "| 7 of 8 | 0 |" in shown
    on_off = "ddtree-8: 6 of 8 texts equal; of the 2 others 1 part where the plain text"
    assert f"Graphs on and off, {on_off} still agrees, gap up to 0.125." in shown


def test_accept_lengths_are_tokens_over_steps() -> None:
    shown = page.render(RESULT, "r.json")
    assert "| all | 3.00 | 3.75 |" in shown
    assert "| over DFLASH | 1.00x | 1.25x |" in shown
    assert "| code | 2.00 | 2.50 |" in shown


def test_ratios_are_taken_within_a_repeat() -> None:
    shown = page.render(RESULT, "r.json")
    assert "| ddtree-8 | 20 (15 to 24) | 1.35x (1.20 to 1.50) | 2.50 |" in shown
    assert "| ddtree-8 | 195: 1.35x (1.20 to 1.50) |" in shown
    assert "| ddtree-8 | 11.50: 1.15x (1.10 to 1.20) |" in shown


def test_p_values_and_what_must_be_rejected() -> None:
    shown = page.render(RESULT, "r.json")
    assert "| bfloat16, prompt 1, tokens 1 to 3 | 0.416 (5) | 2e-09 (5) |" in shown


def test_kernel_times_at_the_least_and_the_greatest_batch() -> None:
    names = ("build", "mask", "walk", "together", "together_launched", "top_k", "top_k_torch")
    times = [
        {
            "budget": 8,
            "batch": size,
            "seq_len": 2048,
            **{n: {"median_us": size + 0.5} for n in names},
        }
        for size in (1, 2, 8)
    ]
    found = {"device": "cuda", "cases": 50, "failures": [], "times": times}
    shown = page.render({**RESULT, "stages": {"kernels": entry(found)}}, "r.json")
    assert "50 random cases on cuda: 0 differ" in shown
    assert "at batch 1 / 8 and 2048 tokens of context" in shown
    assert "| 8 |" + " 1.5 / 8.5 |" * 7 in shown


def test_what_did_not_run_is_named() -> None:
    shown = page.render(RESULT, "r.json")
    assert "**Not run**: Kernels, An MLA target." in shown
    assert "**Failed**: The incident: `ValueError: no such file`." in shown
    assert "**Did not come up** in Batches: plain." in shown


def test_a_stage_that_was_cut_off_shows_what_it_has() -> None:
    cut = entry({"hidden": 4096}, running=True, options={"large_tokens": 1})
    shown = page.render({**RESULT, "stages": {"large": cut}}, "r.json")
    assert "**Cut off**: A 7B-class target." in shown
    assert "Incomplete" in shown
