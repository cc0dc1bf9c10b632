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
and of tensor parallelism are not among these. `--deep` was not run.
"""


def page(results: Mapping[str, Any]) -> str:
    """The page; `results` has "faults" by name and "correct" by server."""
    times = max(map(len, results.get("correct", {}).values()), default=0)
    lines = [_HEAD.format(times=times), "## Faults\n", *_faults(results.get("faults", {}))]
    lines += ["\n## Correct servers\n", *_correct(results.get("correct", {}))]
    missing = [each.name for each in FAULTS if each.name not in results.get("faults", {})]
    missing += [each for each in CORRECT if not results.get("correct", {}).get(each)]
    lines += ["\n## Not run\n", _UNPROVED.strip()]
    if missing:
        lines.append(f"\nNot run so far: {', '.join(missing)}.")
    return "\n".join(lines) + "\n"


def _faults(results: Mapping[str, Any]) -> Iterator[str]:
    caught = [fault for fault in FAULTS if fault.name in results and outcome(fault, results)[0]]
    run = [fault for fault in FAULTS if fault.name in results]
    yield f"{len(caught)} of {len(run)} caught and named as expected.\n"
    yield "| fault | injected in | quick | standard | kind | as expected | seconds (standard) |"
    yield "|---|---|---|---|---|---|---|"
    for fault in run:
        found = results[fault.name]
        good, kind, seconds = outcome(fault, results)
        cells = [
            f"**{fault.name}**: {fault.what}",
            f"`{fault.where}`",
            *(_level(found.get(level)) for level in LEVELS),
            f"`{kind}`" if kind else "-",
            "yes" if good else f"**no**, expected `{fault.kinds[0]}`",
            "-" if seconds is None else f"{seconds:.0f}",
        ]
        yield f"| {' | '.join(cells)} |"
    yield "\nWhat was said of each:\n"
    for fault in run:
        yield f"- {fault.name}: {_said(results[fault.name])}{_again(fault, results[fault.name])}"


def outcome(fault: Fault, results: Mapping[str, Any]) -> tuple[bool, str, float | None]:
    """Whether the standard level caught it under an expected name, which, in how many seconds."""
    standard = results[fault.name].get("standard")
    if standard is None:
        return False, "", None
    return _caught(fault, standard), standard["kind"] or "", standard["seconds"]


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
    failed = _failed(found["standard"])
    named = [c["reason"] for c in failed.values() if c["kind"] == found["standard"]["kind"]]
    return str((named or [c["reason"] for c in failed.values()] or ["nothing failed"])[0])


def _correct(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    yield "`opsctl smoke --standard` on servers that are right, without a floor of acceptance. The"
    yield "plain one is the wheel as released, by its unit, with `smoke.speculative: false`.\n"
    yield "| server | passes | accept length | seconds, min / median / max | what else |"
    yield "|---|---|---|---|---|"
    for server in CORRECT:
        trials = results.get(server) or []
        if not trials:
            continue
        took = [trial["seconds"] for trial in trials]
        passed = sum(trial["verdict"] == "pass" for trial in trials)
        lengths = [t["accept_len"] for t in trials if t["accept_len"] is not None]
        others = {f"{t['verdict']} ({_level(t)})" for t in trials if t["verdict"] != "pass"}
        cells = [
            server,
            f"{passed} of {len(trials)}",
            f"{min(lengths):.2f} to {max(lengths):.2f}" if lengths else "-",
            f"{min(took):.0f} / {median(took):.0f} / {max(took):.0f}",
            "; ".join(sorted(others)),
        ]
        yield f"| {' | '.join(cells)} |"
