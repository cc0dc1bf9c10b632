"""Each runbook against its fault in the lab's real SGLang; writes docs/runbook-trials.{json,md}.

    python tests/runbooks/runbook_trials.py [--only RUNBOOK ...] [--lab NAME]

What docs/runbook-trials.json has of other runbooks is kept. acceptance-collapsed and garbage-output
need injected faults of speculative decoding: tests/integration/test_smoke_faults.py.
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
from runbook_rigs import RealRig  # noqa: E402

DATA: Final = _ROOT / "docs" / "runbook-trials.json"
PAGE: Final = _ROOT / "docs" / "runbook-trials.md"


def trial(rig: RealRig, fault: Fault) -> dict[str, Any]:
    """What came of one."""
    before = show(rig, "InvocationID")["InvocationID"]
    undo = fault.put(rig)
    state = show(rig, "ActiveState", "SubState", "Result", "NRestarts")
    answered = rig.chats() if rig.served() else False
    try:
        began = time.monotonic()
        status, report, said = follow(rig, fault.runbook)
        seconds = time.monotonic() - began
        serves = rig.chats()
        wrong = fault.gone(rig)
        again = show(rig, "InvocationID")["InvocationID"] != before
    finally:
        undo()
    return {
        "before": state,
        "answered_before": answered,
        "exit": status,
        "seconds": round(seconds, 1),
        "steps": [
            {key: told[key] for key in ("name", "outcome")}
            for told in report.get("data", {}).get("steps", [])
        ],
        "serves_after": serves,
        "started_anew": again,
        "left": wrong,
        "said": said.splitlines()[-30:],
    }


PAGE_TEXT = """\
# Runbooks, each against its fault in the lab's real SGLang

Made by `python tests/runbooks/runbook_trials.py`, which writes `docs/runbook-trials.json`, too; do
not edit this page. The fault is put into a new lab (SGLang 0.5.12.post1 on a CPU, real systemd,
sshd and journal), then the runbook is followed alone with `--yes`. Seconds are of the runbook, load
of some 20 s included, on two cores that had other work: no benchmark. The same faults run in CI on
the light lab (`tests/runbooks/test_runbooks_lab.py`), which has those that SGLang's cannot, too;
`acceptance-collapsed` and `garbage-output` in SGLang's (`tests/integration/test_smoke_faults.py`).

| runbook | fault | unit before | answered | exit | serves after | what was done | seconds |
|---|---|---|---|---|---|---|---|
{rows}
"""


def page(data: dict[str, Any]) -> str:
    rows = []
    for key, found in sorted(data.items()):
        runbook, _, what = key.partition(": ")
        unit = found["before"]
        done = [each["name"] for each in found["steps"] if each["outcome"] == "done"]
        cells = (
            runbook,
            what,
            f"{unit['ActiveState']} ({unit['SubState']}), {unit['NRestarts']} restarts",
            "yes" if found["answered_before"] else "no",
            str(found["exit"]),
            "yes" if found["serves_after"] and not found["left"] else f"**no** {found['left']}",
            " ".join(done),
            f"{found['seconds']:.0f}",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return PAGE_TEXT.format(rows="\n".join(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", help="a runbook, by its name")
    parser.add_argument("--lab", default="runbook-trials")
    options = parser.parse_args()
    data = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        rig = RealRig(options.lab, Path(folder), budget=240.0)
        try:
            for fault in FAULTS:
                if fault.light_only or (options.only and fault.runbook not in options.only):
                    continue
                rig.reset()
                found = trial(rig, fault)
                data[f"{fault.runbook}: {fault.what}"] = found
                DATA.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", "utf-8")
                PAGE.write_text(page(data), encoding="utf-8")
                sys.stdout.write(f"{fault.runbook}: exit {found['exit']}, {found['seconds']} s\n")
                sys.stdout.flush()
        finally:
            rig.down()


if __name__ == "__main__":
    main()
