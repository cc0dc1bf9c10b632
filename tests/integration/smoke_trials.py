"""One server in the lab under `opsctl smoke`, faulty or correct, and what smoke said of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from workbench import LAB, UNIT, Bench


def ddtree(budget: int) -> tuple[str, ...]:
    return ("--speculative-algorithm=DDTREE", f"--speculative-ddtree-budget={budget}")


# The lab's unit speculates with DFLASH; a later argument wins.
CORRECT: Final[dict[str, tuple[str, ...]]] = {
    "plain": (),
    "DFLASH": (),
    **{f"DDTREE, budget {budget}": ddtree(budget) for budget in (1, 4, 8, 16, 32, 64)},
}


LEVELS: Final = ("quick", "standard", "deep")


def fresh(bench: Bench, *arguments: str) -> None:
    """A lab as new, whose next start has these arguments, too."""
    made = bench.opsctl("lab", "reset", LAB)
    assert made.exit_code == 0, made.said
    if arguments:
        bench.add_arguments(*arguments)


def capture(bench: Bench, path: Path) -> None:
    """A plain baseline of the lab's model for each level, of the wheel as released, into `path`."""
    fresh(bench)
    for words in (
        ("wait",),
        ("restart", "--plain", "--yes"),
        ("baseline", "capture", "--deep"),
        ("baseline", "export", "--output", str(path)),
    ):
        outcome = bench.opsctl(*words)
        assert outcome.exit_code == 0, outcome.said


@contextmanager
def lenient(bench: Bench) -> Iterator[None]:
    """A deploy or restart keeps what it puts in place whatever that accepts and however short
    its answers: the trials come after."""
    shipped = dict(bench.service["smoke"])
    bench.service["smoke"] |= {"max_tokens": 16, "min_accept_len": None, "speculative": False}
    try:
        yield
    finally:
        bench.service["smoke"] = shipped


def trial(bench: Bench, *words: str) -> dict[str, Any]:
    """One smoke test by its report: verdict, kind, failed checks, seconds, tokens judged."""
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
        "tokens_judged": next(
            (
                each["evidence"].get("tokens_judged")
                for each in smoke["checks"]
                if each["name"] == "lossless"
            ),
            None,
        ),
    }


def compared(bench: Bench, level: str, baseline: Path) -> dict[str, Any]:
    return trial(bench, f"--{level}", "--baseline", str(baseline))


def fault_trials(bench: Bench, patches: Path, baseline: Path, starts: int = 1) -> dict[str, Any]:
    """The set in a fresh lab under DDTREE: what each level says, the deep one where the standard
    one passes it; or, under "deploy", why even a lenient deploy took it back. Under "again", what
    the standard level says of its further starts, so that there are `starts` of them."""
    with lenient(bench):
        fresh(bench, *ddtree(32))
        deployed = bench.deploy("--patches", str(patches))
    if deployed.exit_code != 0:
        return {"deploy": {"exit_code": deployed.exit_code, "said": deployed.said}}
    found: dict[str, Any] = {"quick": trial(bench)}
    found["standard"] = compared(bench, "standard", baseline)
    if found["standard"]["verdict"] == "pass":
        found["deep"] = compared(bench, "deep", baseline)
    found["again"] = []
    while len(found["again"]) < starts - 1:
        with lenient(bench):
            restarted = bench.opsctl("restart", "--yes")
        assert restarted.exit_code == 0, restarted.said
        found["again"].append(compared(bench, "standard", baseline))
    bench.inside(f"systemctl kill --signal=KILL {UNIT} || true")  # it may not stop by itself
    return found


def start_correct(bench: Bench, server: str) -> None:
    """One of `CORRECT`: the repository's own set, started so. "plain" is the wheel as released,
    as a service of it would be: by its inventory, and so by its unit."""
    launch, plain = bench.service["launch"], server == "plain"
    bench.service["smoke"]["speculative"] = not plain
    if plain:
        speculating = dict(launch)
        launch["args"] = [each for each in launch["args"] if "--speculative-" not in each]
        fresh(bench)
        outcome = bench.opsctl("wait")
        launch |= speculating
    else:
        with lenient(bench):
            fresh(bench, *CORRECT[server])
            outcome = bench.deploy()
    assert outcome.exit_code == 0, outcome.said


def correct_trial(bench: Bench, level: str, baseline: Path) -> dict[str, Any]:
    """Without a floor, which no one value would fit."""
    bench.service["smoke"]["min_accept_len"] = None
    return compared(bench, level, baseline)
