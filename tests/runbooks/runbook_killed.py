"""Each runbook on the light lab, its client killed after each of its steps that may change
something: the host is left settled, and the runbook run again leads out of the fault.

    python tests/runbooks/runbook_killed.py [--only RUNBOOK ...] [--at STEP ...] [--lab NAME]

Writes docs/runbook-killed.{json,md}; what the JSON has of other cases is kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[2]
sys.path[:0] = [str(_ROOT / "tests" / "faults")]

from runbook_faults import FAULTS, Fault, follow, show  # noqa: E402
from runbook_rigs import LightRig  # noqa: E402

from opsctl.playbook import Shelf  # noqa: E402

DATA: Final = _ROOT / "docs" / "runbook-killed.json"
PAGE: Final = _ROOT / "docs" / "runbook-killed.md"
# Seconds past the load's budget that the guard gives a lost client: 30 where nobody shortens it.
_GRACE: Final = 4.0
_SETTLED: Final = 90.0  # seconds: a budget of 8, the grace, and one load, with room
_REFUSED: Final = frozenset({2, 3})


def steps_to_kill_at(runbook: str) -> list[str]:
    """From the lock on: before it nothing is changed, and nothing is anybody's to undo."""
    found = Shelf.beside(None).load(runbook, runbook=True)
    names = [step.name for step in found.steps]
    return names[names.index("lock") :]


def killed(light: LightRig, fault: Fault, step: str, *, resume: bool) -> dict[str, Any]:
    """What came of one case; `wrong` lists what should not be. `resume` has the second run go on
    where the first ended, if it may."""
    light.reset()
    undo = fault.put(light)
    found: dict[str, Any] = {"reached": False, "wrong": []}
    try:
        _strike(light, fault.runbook, step, found)
        if found["reached"]:
            _run_again(light, fault, found, resume=resume)
    finally:
        undo()
    return found


def _strike(light: LightRig, runbook: str, step: str, found: dict[str, Any]) -> None:
    """Kill its client after `step`, and look once the host has settled."""
    ran = show(light, "ActiveState")["ActiveState"] == "active" and light.served() is not None
    client = light.start("runbook", "run", runbook, "--yes", halt=step, grace=_GRACE)
    found["reached"] = client.halted.wait(180) and not client.ended.is_set()
    if not found["reached"]:
        found["exit"] = client.finish(60)
        return
    struck, began = time.time(), time.monotonic()
    client.process.kill()
    client.finish(10)
    if not _settled(light):
        found["wrong"].append(f"not settled after {_SETTLED:.0f} s")
    found["settled_s"] = round(time.monotonic() - began, 1)
    report = light.look()["report"] or {}
    found["guard"] = "seconds" in report and report["at"] > struck
    found["serves"] = light.served() is not None
    if ran and not found["serves"]:
        found["wrong"].append("it served before, and does not now")


def _run_again(light: LightRig, fault: Fault, found: dict[str, Any], *, resume: bool) -> None:
    wrong = found["wrong"]
    if resume:
        found["resumed"], told, said = follow(light, fault.runbook, "--resume")
        if found["resumed"] in _REFUSED and not told["reasons"][0]["remedy"]:
            wrong.append(f"refused without a remedy: {said}")
        elif found["resumed"] not in {0, *_REFUSED}:
            wrong.append(f"--resume ended with {found['resumed']}: {said}")
    if found.get("resumed") != 0:
        found["again"], _, said = follow(light, fault.runbook)
        if found["again"] != 0:
            wrong.append(f"run again it ended with {found['again']}: {said}")
    if light.served() is None:
        wrong.append("it does not serve")
    left = fault.gone(light)
    if left:
        wrong.append(left)


def _settled(light: LightRig) -> bool:
    """Once nothing of the lost run is under way any more."""
    deadline = time.monotonic() + _SETTLED
    while time.monotonic() < deadline:
        look = light.look()
        if not look["locked"] and look["guard"] is None:
            return True
        time.sleep(0.5)
    return False


PAGE_TEXT: Final = """\
# Runbooks whose client is killed

Made by `python tests/runbooks/runbook_killed.py`, which writes `docs/runbook-killed.json`, too; do
not edit this page. On the light lab (real sshd, systemd and journal, a small server instead of
SGLang) the fault is put in, the runbook is run, and its client is killed with SIGKILL right after a
step. Then the host must settle: no lock, no guard, and what served before serves again. Then the
runbook is run once more, every other time with `--resume` first, and must lead out of the fault.

{cases} cases, {wrong} went wrong. In a cell: whether the guard acted, and whether the service
served once settled; then the exit status of `--resume` (r) and of the run after it. A dash: a step
that this fault does not come to. The guard's grace was cut from 30 s to 4.

| runbook | fault | {steps} |
|---|---|{rule}|
{rows}
{faults}"""


def page(data: dict[str, Any]) -> str:
    runs = {key: found for key, found in data.items() if found["reached"]}
    steps = list(dict.fromkeys(key.rpartition(" @ ")[2] for key in data))
    rows = []
    for name in dict.fromkeys(key.rpartition(" @ ")[0] for key in data):
        runbook, _, what = name.partition(": ")
        cells = (_cell(runs.get(f"{name} @ {step}")) for step in steps)
        rows.append(f"| {runbook} | {what} | {' | '.join(cells)} |")
    wrong = [f"- {key}: {each}" for key, found in runs.items() for each in found["wrong"]]
    return PAGE_TEXT.format(
        cases=len(runs),
        wrong=sum(bool(found["wrong"]) for found in runs.values()),
        steps=" | ".join(steps),
        rule="---|" * (len(steps) - 1) + "---",
        rows="\n".join(rows),
        faults="\nWhat went wrong:\n\n" + "\n".join(wrong) + "\n" if wrong else "",
    )


def _cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    ends = [f"r{found['resumed']}"] if "resumed" in found else []
    ends += [str(found["again"])] if "again" in found else []
    state = f"{'guard, ' * found['guard']}{'serves' if found['serves'] else 'down'}"
    return f"{'✗ ' if found['wrong'] else ''}{state}: {' '.join(ends)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", help="a runbook, by its name")
    parser.add_argument("--at", action="append", help="a step, by its name")
    parser.add_argument("--lab", default="runbook-killed")
    options = parser.parse_args()
    data = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        light = LightRig(options.lab, Path(folder))
        light.up()
        try:
            for fault in FAULTS:
                if options.only and fault.runbook not in options.only:
                    continue
                for number, step in enumerate(steps_to_kill_at(fault.runbook)):
                    if options.at and step not in options.at:
                        continue
                    key = f"{fault.runbook}: {fault.what} @ {step}"
                    data[key] = found = killed(light, fault, step, resume=bool(number % 2))
                    DATA.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
                    PAGE.write_text(page(data), encoding="utf-8")
                    sys.stdout.write(f"{key}: {found}\n")
                    sys.stdout.flush()
        finally:
            light.down()


if __name__ == "__main__":
    main()
