"""DDTREE on one GPU, from the incident to the comparison; writes one JSON and its page.

    python validation/run.py --target FOLDER --draft FOLDER --whole SITE --without-graph SITE \\
        --into RESULT.json [--stages incident kernels text …]

SITE is a folder that holds the `sglang` package with the set applied, whole or without the
CUDA-graph patch. A machine is lent for minutes, so stages can be run in several calls: each goes
into RESULT.json as it becomes known, and replaces only itself there. A stage that failed says so
in its place and does not stop the next. See validation/README.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import basics
import large
import page
import record
import sampling
import speed
import text
from lab import Found, Lab
from servers import COMMON, stop_all

STAGES: dict[str, Callable[[Lab, Found], None] | None] = {
    "incident": basics.incident,
    "kernels": basics.kernels,
    "text": text.text,
    "sampling": sampling.sampling,
    "speed": None,  # these two take turns on the same servers
    "batch": None,
    "large": large.large,
    "mla": text.mla,
}


class TimeUp(Exception):
    """The time that this call may take is over."""


def _time_up(number: int, _frame: Any) -> None:
    """Servers have sessions of their own and would outlive this process, on the card."""
    stop_all()
    raise TimeUp(signal.Signals(number).name)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )

    def option(name: str, default: Any, words: str, *, many: bool = False) -> None:
        kind = type(default[0] if many else default)
        made.add_argument(name, default=default, type=kind, nargs="+" if many else None, help=words)

    for name in ("target", "draft", "whole", "into"):
        made.add_argument(f"--{name}", type=Path, required=True)
    made.add_argument("--without-graph", type=Path, help="for the stage incident")
    made.add_argument("--stages", nargs="+", default=list(STAGES), choices=list(STAGES))
    made.add_argument("--commit", default="", help="what of this repository runs")
    option("--work", Path("validation-work"), "folder for logs and made models")
    option(
        "--limit", 0, "seconds until the stage that runs is stopped, and no more begun; 0: never"
    )
    option("--port", 31000, "servers take every seventh port from here")
    option("--start-timeout", 240.0, "seconds until a server counts as failed")
    made.add_argument("--flag", action="append", default=[], help="one more for every server")
    option("--kernel-cases", 2000, "random cases of the stage kernels")
    option("--kernel-timeout", 300.0, "seconds")
    option("--budgets", [4, 8, 16, 32, 64], "of the stage text", many=True)
    option("--eager", 32, "a budget to run without graphs too; 0 for none")
    option("--prompts", 64, "of the stage text")
    option("--tokens", 128, "of the stage text")
    option("--groups", ["plain,dflash,16,32", "dflash,4,8,64"], "servers at once", many=True)
    option("--speed-prompts", 8, "of the stage speed")
    option("--speed-tokens", 64, "of the stage speed")
    option("--repeats", 10, "of the stage speed")
    option("--sizes", [2, 3, 4, 8], "of the stage batch", many=True)
    option("--batch-repeats", 5, "of the stage batch")
    option("--batch-tokens", 128, "of the stage batch")
    option("--sampling-budget", 16, "DDTREE's, in the stage sampling")
    option("--sampling-dtypes", ["bfloat16", "float32"], "of the stage sampling", many=True)
    option("--samples", 2000, "of each set and prompt")
    option("--sampling-tokens", 4, "of each sample; the tests take the first three")
    option("--power-temperature", 1.25, "of the plain set that must be rejected")
    option("--large-hidden", 4096, "hidden size of the stage large")
    option("--large-layers", 32, "layers of its target, 8 or more")
    option("--large-specs", "plain,dflash,16,32", "servers of the stage large")
    option("--large-sizes", [1, 2, 4, 8], "batches of the stage large", many=True)
    option("--large-repeats", 5, "of the stage large")
    option("--large-tokens", 96, "of the stage large")
    made.add_argument("--profile", type=Path, help="folder for torch traces, stage large")
    made.add_argument("--mla", type=Path, help="what mla.py made; without it, it is run")
    option("--mla-specs", ["8", "32", "32-eager"], "DDTREE servers of the stage mla", many=True)
    option("--mla-prompts", 24, "of the stage mla")
    option("--mla-tokens", 64, "of the stage mla")
    return made


def main() -> int:
    arguments = parser().parse_args()
    for name in ("target", "draft", "whole", "without_graph", "work", "into", "mla", "profile"):
        path = getattr(arguments, name)
        setattr(arguments, name, path and path.resolve())
    arguments.work.mkdir(parents=True, exist_ok=True)
    result = record.load(arguments.into)
    result["machine"] = _machine()
    result["pair"] = {
        name: json.loads((getattr(arguments, name) / "config.json").read_text(encoding="utf-8"))
        for name in ("target", "draft")
    }
    result["flags"] = [*COMMON, *arguments.flag]
    lab = Lab(arguments, keep=lambda: record.save(arguments.into, result))
    failed = False
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, _time_up)
    signal.alarm(arguments.limit)
    for names in _turns(arguments.stages):
        entries = {name: _entry(arguments, name) for name in names}
        result["stages"] |= entries
        error = _run(lab, entries)
        lab.keep()
        failed |= error is not None
        if isinstance(error, TimeUp):
            break
    signal.alarm(0)
    target = arguments.into.with_suffix(".md")
    target.write_text(page.render(result, arguments.into.name), encoding="utf-8")
    return int(failed)


def _turns(stages: list[str]) -> list[list[str]]:
    """Stages that run one after the other; `speed` and `batch` share their servers."""
    shared = [name for name in stages if STAGES[name] is None]
    turns = [[name] for name in stages if name not in shared[1:]]
    return [shared if turn[0] in shared else turn for turn in turns]


def _run(lab: Lab, entries: dict[str, Found]) -> Exception | None:
    """What stopped it, or None; what was found before a failure stays."""
    title = " and ".join(entries)
    lab.say(f"== {title}")
    began, stopped = time.monotonic(), None
    found = {name: entry["result"] for name, entry in entries.items()}
    try:
        for name, into in found.items():
            stage = STAGES[name]
            if stage is not None:
                stage(lab, into)
        if any(STAGES[name] is None for name in found):
            speed.groups(lab, found)
    except Exception as error:
        stopped = error
        lab.say(f"{title} FAILED: {error!r}")
    for entry in entries.values():
        entry["seconds"] = round(time.monotonic() - began, 1)
        entry.pop("running")
        if stopped:
            entry["error"] = "".join(traceback.format_exception(stopped)).strip()
    lab.say(f"== {title}: {time.monotonic() - began:.0f} s")
    return stopped


def _entry(arguments: argparse.Namespace, stage: str) -> Found:
    """Its options: those that all stages share and those that its name or table names."""
    ours = {
        "incident": ["flag"],
        "kernels": ["kernel_cases"],
        "text": ["budgets", "eager", "prompts", "tokens", "flag"],
        "speed": ["groups", "speed_prompts", "speed_tokens", "repeats", "flag"],
        "batch": ["groups", "sizes", "batch_repeats", "batch_tokens", "flag"],
    }
    names = ours.get(stage) or [n for n in vars(arguments) if n.startswith(stage)] + ["flag"]
    if stage == "sampling":
        names += ["samples", "power_temperature"]
    values = {n: getattr(arguments, n) for n in names if n != "mla"}
    entry: Found = {"options": values, "commit": arguments.commit, "running": True}
    return entry | {"result": {}}


def _machine() -> dict[str, Any]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        gpu = ""
    return {"gpu": gpu or "none", "python": platform.python_version()}


if __name__ == "__main__":
    sys.exit(main())
