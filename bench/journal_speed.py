"""How fast a journal is read and diagnosed, beside the naive way, and in how much memory.

    python bench/journal_speed.py [--size 200] [--fields all] [--repeats 5] [--ways chosen]

Writes a journal of `--size` MB (`bench/journal_sample.py`: the same bytes for the same seed), and
runs in turns, each in a process of its own so that its memory is its own:

- naive: json.loads of each line, an Entry of each, the list diagnosed;
- all: `Reader` without a selection, every line an Entry, nothing kept;
- chosen: `Reader` with a selection, what it passes on diagnosed, accept lengths averaged.

Prints medians, ranges and ratios to the naive way as one JSON object. The naive way's result
and ours must agree, or nothing is printed. Times are of the process's own work (user and system
time) beside the wall clock's, as other work on the machine is none of the reader's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import journal_sample
import yaml

from opsctl.journal import DecodeRun, Entry, Reader, diagnose
from opsctl.journal.routine import selection
from opsctl.sglang import DecodeBatch, parse


def needles() -> Iterator[str]:
    """The longest plain words of each pattern of the rules, and what tracebacks have."""
    text = resources.files("opsctl.journal").joinpath("rules.yaml").read_text("utf-8")
    for rule in yaml.safe_load(text)["rules"]:
        for pattern in rule["patterns"]:
            words = re.findall(r"(?<!\\)[A-Za-z][A-Za-z ]{3,}", pattern)
            yield from (max(words, key=len).lower(),) if words else ()
    yield from ("error", "exception", "server_args=", "fired up", "load weight", "stopping ")


def naive(path: Path) -> dict[str, Any]:
    """What a script would do."""
    with path.open(encoding="utf-8") as file:
        entries = [Entry.from_json(json.loads(line)) for line in file]
    lengths = [
        line.accept_len
        for entry in entries
        if isinstance(line := parse(entry.message), DecodeBatch) and line.accept_len is not None
    ]
    return {"lines": len(entries), **_result(entries, statistics.fmean(lengths))}


def every_line(path: Path) -> dict[str, Any]:
    """Each line parsed, nothing judged."""
    with path.open("rb") as file:
        reader = Reader(file)
        for _ in reader:
            pass
    return {"lines": reader.lines}


def chosen(path: Path) -> dict[str, Any]:
    """Only what can matter is parsed."""
    entries: list[Entry] = []
    total = count = 0.0
    with path.open("rb") as file:
        reader = Reader(file, selection(needles()))
        for _, item in reader:
            if isinstance(item, DecodeRun):
                lengths = item.accept_lens
                total, count = total + sum(lengths), count + len(lengths)
            else:
                entries.append(item)
                if isinstance(batch := parse(item.message), DecodeBatch) and batch.accept_len:
                    total, count = total + batch.accept_len, count + 1
    return {"lines": reader.lines, **_result(entries, total / count)}


def _result(entries: list[Entry], accept_len: float) -> dict[str, Any]:
    found = diagnose(entries)
    return {"kind": found.kind, "decisive": found.lines, "accept_len": round(accept_len, 6)}


WAYS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "naive": naive,
    "all": every_line,
    "chosen": chosen,
}


def _measured(way: str, path: Path) -> dict[str, Any]:
    """Run in a process of its own; times in seconds, memory in bytes."""
    argv = [sys.executable, __file__, "--way", way, "--path", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout))


def _one(way: str, path: Path) -> dict[str, Any]:
    wall, work = time.perf_counter(), time.process_time()
    result = WAYS[way](path)
    return {
        "result": result,
        "wall_s": time.perf_counter() - wall,
        "work_s": time.process_time() - work,
        "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _spread(values: list[float], digits: int = 0) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), digits),
        "min": round(min(values), digits),
        "max": round(max(values), digits),
    }


def _summary(runs: list[dict[str, Any]], size: int, base: list[dict[str, Any]]) -> dict[str, Any]:
    lines = runs[0]["result"]["lines"]
    ratios = [one["work_s"] / run["work_s"] for one, run in zip(base, runs, strict=False)]
    return {
        "lines_per_s": _spread([lines / run["wall_s"] for run in runs]),
        "lines_per_s_of_work": _spread([lines / run["work_s"] for run in runs]),
        "mb_per_s": _spread([size / 1e6 / run["wall_s"] for run in runs]),
        "peak_rss_mb": _spread([run["peak_rss"] / 1e6 for run in runs]),
        "times_naive": _spread(ratios, 1) if ratios else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=200, help="of the journal, in MB")
    parser.add_argument("--fields", choices=("all", "shipped"), default="all")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ways", default=",".join(WAYS), help="naive keeps every line in memory")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        sys.stdout.write(json.dumps(_one(arguments.way, arguments.path)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.json"
        with path.open("wb") as file:
            lines = journal_sample.write(
                file, arguments.size * 1_000_000, arguments.seed, arguments.fields
            )
        ways = arguments.ways.split(",")
        runs: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
        for _ in range(arguments.repeats):
            for way in ways:
                runs[way].append(_measured(way, path))
        size = path.stat().st_size
    results = [run["result"] for way in ways if way != "all" for run in runs[way]]
    if any(result != results[0] for result in results):
        raise SystemExit(f"the ways disagree: {results}")
    base = runs.get("naive", [])
    report = {
        "size_mb": size / 1e6,
        "lines": lines,
        "fields": arguments.fields,
        "repeats": arguments.repeats,
        "load": os.getloadavg()[0],
        "result": results[0] if results else None,
        **{way: _summary(runs[way], size, base) for way in ways},
    }
    sys.stdout.write(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
