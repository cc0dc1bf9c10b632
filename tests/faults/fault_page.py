"""docs/reliability.md, out of the records of the runs."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from fault_cases import FAULTS, STEPS

Cases = Iterable[dict[str, Any]]

_HEAD = """\
# Reliability

Made by `python tests/faults/fault_matrix.py --table docs/reliability.md`; edit that, not this.

## What is promised

A fault at any moment of a deploy ends, without a person, with the old or the new version whole on
disk and serving, and the tool says which. What that takes:

| what was lost | who ends it | when |
|---|---|---|
| the client, its connection or its host program, with the service stopped or half swapped | \
the guard on the host | at once, and then one load of the old version |
| the same, with the new version loading or serving unconfirmed | the guard | when the load's \
budget and 30 s of grace are over, and then one load; the new version may serve meanwhile |
| the connection, half open: nothing says that it is dead | either side | after 60 s of silence, \
then as above |
| the connection, the client alive | the client, which connects anew for up to two minutes, or \
the guard, whichever is first | at once |
| the host, rebooted | the guard, before the service starts | at its boot |
| the service, while it loads or proves itself | the client, by the way back | at once |

A rollback that is lost goes on to its target, if that generation ever served, since what it leaves
is what somebody wanted to be rid of. It falls back to the generation that it left otherwise: where
the target never served or does not come up, and where the rollback had failed and was being undone.

A service that was down before stays so after a deploy that was lost. One that crashed at each
start, and that systemd went on starting, is started again; so is one whose rollback goes on.

The same was asked of every runbook, its client killed after each of its steps:
[runbook-killed.md](runbook-killed.md).

What needs a person: a disk that stays read-only in the middle of a swap, or stays too full to hold
the old files. The guard tries again every ten seconds, so that freeing it is all there is to do.

The guard is a unit of the host: where systemd is gone, so is the guard.
"""

_LEGEND = """\

The light service stands in for SGLang (24 modules, a load of half a second, 2.5 s where the fault
strikes in mid-load; load budget 8 s), so the times are the tool's own. A step names what had just
been done; *swapping* is the middle of it, *start* the middle of the load, *conclude* the moment
between the record and the guard's end. Each case is judged by the hash of every file, by the state
folder (which must agree, hold every content it names and nothing else), by the unit, by what the
server says it has imported, and by the exit status, which must not contradict any of it.
"""


def page(record: dict[str, Any], **others: Any) -> str:
    cases = record["cases"]
    failed = [case for case in cases if case["wrong"]]
    text = _HEAD + "\n## Every fault at every step\n" + _LEGEND
    text += f"\n{len(cases)} cases were run, {len(failed)} went wrong"
    missing = record.get("missing") or []
    text += f"; {len(missing)} were not run.\n" if missing else ".\n"
    text += f"\n{record['note']}\n" if record.get("note") else ""
    text += "\nTime to healthy: from the fault until it served for good, median and longest.\n\n"
    text += _by_fault(cases) + "\n### Case by case\n\n" + _LEGEND_CELLS + _grid(cases)
    text += _failures(failed)
    if missing:
        text += f"\nNot run for want of time: {', '.join(sorted(missing))}.\n"
    if others.get("real"):
        text += _real(others["real"])
    if others.get("random"):
        text += _random(others["random"])
    return text + _NOT_COVERED


_LEGEND_CELLS = """\
Where it ended, the exit status, and the seconds to healthy; \u2717 went wrong, \u00b7 not run or \
no such case.

"""

_NOT_COVERED = """
## Not covered

- A power cut that loses what was written and not yet synced: the lab's disk is memory, whose reboot
  keeps everything. `write_atomically` syncs file and folder; nothing here proves it.
- The kernel's clock stepped: in a container that would be this machine's own. In the cases above
  the host's Pythons, opsctl's programs among them, see the step, and journald's stamps do not.
- The exchange of the whole folder meets the faults only in the cases on a disk of its own: the
  lab's overlay file system refuses it.
"""


def _by_fault(cases: Cases) -> str:
    grouped: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for case in cases:
        grouped[case["fault"]].append(case)
    lines = ["| fault | cases | old | new | median s | longest s | exits |", "|---|" + "---:|" * 6]
    for fault in FAULTS:
        found = grouped.get(fault.name)
        if not found:
            continue
        times = [c["healthy_s"] for c in found if c["healthy_s"] is not None]
        median = f"{statistics.median(times):.1f}" if times else ""
        longest = f"{max(times):.1f}" if times else ""
        exits = ", ".join(_exit(code) for code in sorted({c["exit"] for c in found}))
        ends = [sum(c["end"] == end for c in found) for end in ("old", "new")]
        lines.append(
            f"| {fault.name} | {len(found)} | {ends[0]} | {ends[1]} | {median} | {longest} | "
            f"{exits} |"
        )
    return "\n".join(lines) + "\n"


def _exit(code: int) -> str:
    return "killed" if code == -9 else str(code)


def _grid(cases: Cases) -> str:
    cells: dict[tuple[str, str], str] = {}
    for case in cases:
        mark = "\u2717 " if case["wrong"] else ""
        time = "" if case["healthy_s"] is None else f" {case['healthy_s']:.0f}s"
        cells[case["fault"], case["step"]] = f"{mark}{case['end']} {_exit(case['exit'])}{time}"
    lines = ["| fault | " + " | ".join(STEPS) + " |", "|---|" + "---|" * len(STEPS)]
    for fault in FAULTS:
        row = [cells.get((fault.name, step), "\u00b7") for step in STEPS]
        lines.append(f"| {fault.name} | " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def _failures(failed: list[dict[str, Any]]) -> str:
    lines = [f"- {c['fault']} @ {c['step']}: {_short(c['wrong'])}" for c in failed]
    return "\nWhat went wrong:\n\n" + "\n".join(lines) + "\n" if lines else ""


def _short(wrong: list[str]) -> str:
    return " ".join("; ".join(wrong).split())[:300]


def _real(record: dict[str, Any]) -> str:
    text = "\n## On SGLang itself\n\nThe lab's SGLang, with a load budget of 90 s.\n\n"
    lines = [
        "| fault | step | end | exit | healthy after s | settled after s |",
        "|---|---|---|---|---:|---:|",
    ]
    for case in record["cases"]:
        mark = "\u2717 " if case["wrong"] else ""
        lines.append(
            f"| {case['fault']} | {case['step']} | {mark}{case['end']} | {_exit(case['exit'])} | "
            f"{case['healthy_s']} | {case['settled_s']} |"
        )
    missing = record.get("missing") or []
    late = f"\nNot run for want of time: {', '.join(missing)}.\n" if missing else ""
    failed = [case for case in record["cases"] if case["wrong"]]
    return text + "\n".join(lines) + "\n" + _failures(failed) + late


def _random(record: dict[str, Any]) -> str:
    commands = ", ".join(f"{n} {name}" for name, n in sorted(record["commands"].items()))
    text = (
        f"\n## At random\n\nSeed {record['seed']}: {record['done']} of {record['wanted']} runs "
        f"({commands}), each with a random version, fault, step and moment, one after the other on "
        f"the same hosts. {len(record['failures'])} went wrong. The guard's grace and the "
        "patience with silence were cut to seconds for it.\n\n"
    )
    text += f"{record['note']}\n\n" if record.get("note") else ""
    lines = ["| fault | runs | went wrong |", "|---|---:|---:|"]
    wrong: dict[str, int] = defaultdict(int)
    for run in record["failures"]:
        wrong[run["fault"]] += 1
    for name, n in sorted(record["faults"].items()):
        lines.append(f"| {name} | {n} | {wrong[name]} |")
    text += "\n".join(lines) + "\n"
    failures = [
        f"- #{r['number']} {r['step']}, {r['fault']}: {_short(r['wrong'])}"
        for r in record["failures"]
    ]
    return text + ("\nWhat went wrong:\n\n" + "\n".join(failures) + "\n" if failures else "")
