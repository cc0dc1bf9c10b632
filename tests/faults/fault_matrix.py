"""Every fault at every step of a deploy, and random ones: how reliable it is, as a page.

    python tests/faults/fault_matrix.py --table docs/reliability.md --json docs/reliability.json
    python tests/faults/fault_matrix.py --random 200 --seed 1 --json docs/reliability-random.json

Needs what a lab needs (docs/lab.md). The cases go to several labs at once, `--labs`; what a run
that ended early has not done is said in its record. `--again FILE` carries on from a record,
`--only TEXT` takes the cases whose `fault@step` has it.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fault_cases import BY_NAME, FAULTS, Result, pick_new, run_case
from fault_page import page
from fault_random import run_random
from light_lab import LightLab
from real_lab import RealLab

Job = Callable[[LightLab], dict[str, Any]]

# On SGLang itself: every boundary once, and what differs there, as how it stops and loads.
REAL = (
    *(("client killed", step) for step in ("lock", "stage", "guard", "stop", "swapping")),
    *(("client killed", step) for step in ("swap", "start", "wait", "smoke", "conclude")),
    *(("host rebooted at once", step) for step in ("stop", "swapping", "start", "wait")),
    ("half open, host hears nothing", "stop"),
    ("connection reset", "wait"),
    ("service killed", "wait"),
    ("service killed", "smoke"),
)


def say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


def on_labs(
    jobs: list[Job],
    labs: int,
    deadline: float,
    keep: Callable[[Any], None],
    kind: type[LightLab] = LightLab,
) -> None:
    """Do the jobs, each on whichever lab is free; a lab in which one went wrong is made anew."""
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    lock = threading.Lock()

    def work(number: int) -> None:
        with tempfile.TemporaryDirectory(prefix="opsctl-faults-") as folder:
            light = kind(f"fault-{os.getpid() % 10000}-{number}", Path(folder))
            try:
                light.up()
                while time.monotonic() < deadline:
                    try:
                        job = waiting.get_nowait()
                    except queue.Empty:
                        return
                    record = job(light)
                    with lock:
                        keep(record)
                    if record["wrong"]:
                        light.down()
                        light.up()
            finally:
                light.down()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(labs)]
    for thread in threads:
        thread.start()
        time.sleep(3)
    for thread in threads:
        thread.join()


def case_job(fault: str, step: str, seed: int) -> Job:
    def job(light: LightLab) -> dict[str, Any]:
        result = Result(fault, step)
        try:
            if isinstance(light, RealLab):
                light.make_old()
                new = 1
            else:
                new = pick_new(light, random.Random(seed))
            result = run_case(light, BY_NAME[fault], step, new)
        except Exception as error:
            result.wrong.append(f"the case itself failed: {error!r}: {traceback.format_exc()}")
        return result.to_json()

    return job


def matrix(options: argparse.Namespace) -> dict[str, Any]:
    done: list[dict[str, Any]] = []
    said: dict[str, Any] = {}
    if options.again and Path(options.again).exists():
        before = json.loads(Path(options.again).read_text(encoding="utf-8"))
        done = before["cases"]
        said = {"note": before["note"]} if before.get("note") else {}
    had = {(case["fault"], case["step"]) for case in done}
    wanted = [(fault.name, step) for fault in FAULTS for step in fault.steps]
    random.Random(options.seed).shuffle(wanted)  # a run that ends early is a sample of them all
    wanted = list(REAL) if options.real else wanted
    wanted = [w for w in wanted if options.only in f"{w[0]}@{w[1]}"]
    left = [w for w in wanted if options.runs > 1 or w not in had] * options.runs
    jobs = [case_job(fault, step, options.seed + i) for i, (fault, step) in enumerate(left)]
    say(f"{len(jobs)} cases")

    def keep(record: dict[str, Any]) -> None:
        done.append(record)
        wrong = f" WRONG {record['wrong']}" if record["wrong"] else ""
        say(
            f"{record['fault']} @ {record['step']}: {record['end']}, exit {record['exit']}, "
            f"healthy {record['healthy_s']} s, settled {record['settled_s']} s{wrong}"
        )
        if options.json:
            _write(options.json, {"cases": done, **said})

    deadline = time.monotonic() + options.minutes * 60
    on_labs(jobs, options.labs, deadline, keep, RealLab if options.real else LightLab)
    did = {(case["fault"], case["step"]) for case in done}
    missing = [f"{fault}@{step}" for fault, step in wanted if (fault, step) not in did]
    return {"cases": done, "missing": missing, **said}


def _write(path: str, content: Any) -> None:
    Path(path).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="Faults at every step of a deploy, in labs.")
    parser.add_argument("--table", help="write the page here")
    parser.add_argument("--json", help="write the record here")
    parser.add_argument("--again", help="carry on from this record")
    parser.add_argument("--only", default="", help="only cases whose fault@step has this text")
    parser.add_argument("--runs", type=int, default=1, help="of each case")
    parser.add_argument("--random", type=int, default=0, help="so many random runs instead")
    parser.add_argument("--numbers", help="replay these random runs of the seed: 7,60")
    parser.add_argument("--real", action="store_true", help="those of SGLang itself")
    parser.add_argument("--random-record", help="a record of random runs, for the page")
    parser.add_argument("--real-record", help="a record of cases on SGLang, for the page")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--labs", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=600, help="begin no case after these")
    options = parser.parse_args()
    if options.random or options.numbers:
        numbers = list(range(options.random))
        if options.numbers:
            numbers = [int(number) for number in options.numbers.split(",")]
        record = run_random(numbers, options.seed, options.labs, options.minutes, on_labs)
        failed = record["failures"]
    else:
        record = matrix(options)
        failed = [case for case in record["cases"] if case["wrong"]]
        if options.table:
            others = {
                name: json.loads(Path(path).read_text(encoding="utf-8")) if path else None
                for name, path in (("random", options.random_record), ("real", options.real_record))
            }
            Path(options.table).write_text(page(record, **others), encoding="utf-8")
    if options.json:
        _write(options.json, record)
    say(f"{len(failed)} went wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
