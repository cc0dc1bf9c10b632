"""docs/smoke-faults.md, made of what docs/smoke-faults.json holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from smoke_faults import FAULTS, Fault
from smoke_trials import CORRECT, LEVELS

_HEAD = """\
# Faults that smoke must catch

Made by `python tests/integration/smoke_faults.py --correct {times}`, which writes
`docs/smoke-faults.json`, too; do not edit this page. What the JSON has already is kept, so the
rows may come of several calls.

The checks were mended after some of these faults were missed or named wrongly at first, and two
thresholds were set by them. So this says what is caught now, not what a fault yet unknown would be.

Each fault is one edit of SGLang 0.5.12.post1 with the patch set ddtree on top of it, deployed to
the lab (DDTREE, budget 32, float32 on the CPU) by a lenient deploy, so that all levels see it.
The lab's inventory is as shipped: its floor of the accept length is 2.0. The baseline is of the
same lab without speculation. Seconds are of the whole command, on a machine of two cores that had
other work; they are no benchmark.
"""
_UNPROVED = """
The lab runs no GPU kernel: faults of Triton's own code, of real CUDA graphs, of bf16's rounding
and of tensor parallelism are not among these.
"""
_STANDARD = """\
`opsctl smoke --standard` on servers that are right, without a floor of acceptance. The
plain one is the wheel as released, by its unit, with `smoke.speculative: false`.
"""
_DEEP = """\
`opsctl smoke --deep` on some of them, against a baseline that was captured with `--deep`:
"""


def page(results: Mapping[str, Any]) -> str:
    """The page; `results` has "faults" by name and "correct" by server."""
    times = max(map(len, results.get("correct", {}).values()), default=0)
    lines = [_HEAD.format(times=times), "## Faults\n", *_faults(results.get("faults", {}))]
    lines += ["\n## Correct servers\n", _STANDARD, *_correct(results.get("correct", {}))]
    if results.get("deep"):
        lines += [f"\n{_DEEP}", *_correct(results["deep"])]
    missing = [each.name for each in FAULTS if each.name not in results.get("faults", {})]
    missing += [each for each in CORRECT if not results.get("correct", {}).get(each)]
    lines += ["\n## Not run\n", _UNPROVED.strip()]
    if missing:
        lines.append(f"\nNot run so far: {', '.join(missing)}.")
    return "\n".join(lines) + "\n"


def _faults(results: Mapping[str, Any]) -> Iterator[str]:
    run = [fault for fault in FAULTS if fault.name in results]
    levels = [outcome(fault, results)[0] for fault in run]
    deep = levels.count("deep")
    beside = f", {deep} more by the deep one" if deep else ""
    yield (
        f"Of {len(run)} the standard level caught {levels.count('standard')} and named them as "
        f"expected{beside}.\n"
    )
    yield "| fault | injected in | quick | standard | deep | kind | as expected | seconds* |"
    yield "|---|---|---|---|---|---|---|---|"
    for fault in run:
        found = results[fault.name]
        level, kind, seconds = outcome(fault, results)
        cells = [
            f"**{fault.name}**: {fault.what}",
            f"`{fault.where}`",
            *(_level(found.get(each)) for each in LEVELS[:2]),
            _level(found["deep"]) if "deep" in found else "-",
            f"`{kind}`" if kind else "-",
            "yes" if level else f"**no**, expected `{fault.kinds[0]}`",
            "-" if seconds is None else f"{seconds:.0f}",
        ]
        yield f"| {' | '.join(cells)} |"
    yield "\n*Of the level that caught it, or else of the last one that was asked: the deep one is"
    yield "where the standard one passes.\n\nWhat was said of each:\n"
    for fault in run:
        yield f"- {fault.name}: {_said(results[fault.name])}{_again(fault, results[fault.name])}"


def outcome(fault: Fault, results: Mapping[str, Any]) -> tuple[str, str, float | None]:
    """The level that caught it under an expected name, if any; the kind that it or the highest one
    that was asked gave, in how many seconds."""
    asked = [(each, results[fault.name].get(each)) for each in LEVELS[1:]]
    known = [(level, trial) for level, trial in asked if trial is not None]
    if not known:
        return "", "", None
    caught = next((each for each in known if _caught(fault, each[1])), None)
    level, trial = caught or known[-1]
    return level if caught else "", trial["kind"] or "", trial["seconds"]


def _caught(fault: Fault, trial: Mapping[str, Any]) -> bool:
    return trial["verdict"] == "fail" and trial["kind"] in fault.kinds


def _again(fault: Fault, found: Mapping[str, Any]) -> str:
    trials = found.get("again") or []
    caught = sum(_caught(fault, trial) for trial in trials)
    return f". Further starts: {caught} of {len(trials)} caught and named" if trials else ""


def _failed(trial: Mapping[str, Any]) -> dict[str, Any]:
    return {name: c for name, c in trial["checks"].items() if c["verdict"] == "fail"}


def _level(trial: Mapping[str, Any] | None) -> str:
    if trial is None:
        return "not reached"
    failed = ", ".join(f"`{name}`" for name in _failed(trial))
    return f"{trial['verdict']}: {failed}" if failed else str(trial["verdict"])


def _said(found: Mapping[str, Any]) -> str:
    if "deploy" in found:
        return f"its deploy was taken back: {found['deploy']['said']}".replace("\n", " ")
    trial = found.get("deep", found["standard"])
    failed = _failed(trial)
    named = [c["reason"] for c in failed.values() if c["kind"] == trial["kind"]]
    return str((named or [c["reason"] for c in failed.values()] or ["nothing failed"])[0])


def _correct(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    yield "| server | passes | accept length | seconds, min / median / max | what else |"
    yield "|---|---|---|---|---|"
    for server in CORRECT:
        trials = results.get(server) or []
        if not trials:
            continue
        took = [trial["seconds"] for trial in trials]
        passed = sum(trial["verdict"] == "pass" for trial in trials)
        lengths = [t["accept_len"] for t in trials if t["accept_len"] is not None]
        tokens = {f"{t['tokens_judged']:,}" for t in trials if t.get("tokens_judged") is not None}
        others = {f"{t['verdict']} ({_level(t)})" for t in trials if t["verdict"] != "pass"}
        cells = [
            server,
            f"{passed} of {len(trials)}",
            f"{min(lengths):.2f} to {max(lengths):.2f}" if lengths else "-",
            f"{min(took):.0f} / {median(took):.0f} / {max(took):.0f}",
            "; ".join([*sorted(others), *(f"{each} tokens judged" for each in sorted(tokens))]),
        ]
        yield f"| {' | '.join(cells)} |"
