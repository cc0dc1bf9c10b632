"""One server in the lab under `opsctl smoke`, faulty or correct, and what smoke said of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench import LAB, UNIT, Bench, Outcome

DDTREE = ("--speculative-algorithm=DDTREE", "--speculative-ddtree-budget=32")


def fresh(bench: Bench, *arguments: str) -> None:
    """A lab as new, whose next start has these arguments too."""
    made = bench.opsctl("lab", "reset", LAB)
    assert made.exit_code == 0, made.said
    if arguments:
        bench.add_arguments(*arguments)


def capture(bench: Bench, path: Path) -> None:
    """A plain baseline of the lab's model, of the wheel as released, into `path`."""
    fresh(bench)
    for words in (
        ("wait",),
        ("restart", "--plain", "--yes"),
        ("baseline", "capture"),
        ("baseline", "export", "--output", str(path)),
    ):
        outcome = bench.opsctl(*words)
        assert outcome.exit_code == 0, outcome.said


def put(bench: Bench, patches: Path) -> Outcome:
    """Deploy a set whatever it accepts and however short its answers: the exam comes after."""
    shipped = dict(bench.service["smoke"])
    bench.service["smoke"] |= {"max_tokens": 16, "min_accept_len": None, "speculative": False}
    try:
        return bench.deploy("--patches", str(patches))
    finally:
        bench.service["smoke"] = shipped


def trial(bench: Bench, *words: str) -> dict[str, Any]:
    """One smoke test by its report: verdict, kind, failed checks, seconds."""
    began = time.monotonic()
    outcome = bench.opsctl("smoke", *words)
    smoke = outcome.report["data"].get("smoke")
    found: dict[str, Any] = {
        "exit_code": outcome.exit_code,
        "seconds": round(time.monotonic() - began, 1),
    }
    if smoke is None:  # refused: there was no server to ask
        return found | {"verdict": "refused", "kind": None, "checks": {}, "said": outcome.said}
    return found | {
        "verdict": smoke["verdict"],
        "kind": smoke["kind"],
        "checks": {
            check["name"]: {key: check.get(key, "") for key in ("verdict", "kind", "reason")}
            for check in smoke["checks"]
            if check["verdict"] in {"fail", "inconclusive"}
        },
        "accept_len": (smoke["exam"] or {}).get("accept_len") or smoke["accept_len"],
    }


def fault_trials(
    bench: Bench, patches: Path, baseline: Path, arguments: Sequence[str] = DDTREE
) -> dict[str, Any]:
    """The set in a fresh lab: what its deploy said, then the quick and the standard level."""
    fresh(bench, *arguments)
    deployed = put(bench, patches)
    if deployed.exit_code != 0:
        return {"deploy": {"exit_code": deployed.exit_code, "said": deployed.said}}
    found = {
        "quick": trial(bench),
        "standard": trial(bench, "--standard", "--baseline", str(baseline)),
    }
    bench.inside(f"systemctl kill --signal=KILL {UNIT} || true")  # it may not stop by itself
    return found
