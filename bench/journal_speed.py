"""How fast a journal is read and diagnosed, beside the naive way, and in how much memory.

    python bench/journal_speed.py [--size 100M] [--repeats 5] [--ways diagnose]

Writes a journal of `--size` bytes (`bench/journal_sample.py`: the same bytes for the same seed)
with all of journald's fields, and one with those that opsctl asks for, and runs in turns, each in
a process of its own so that its memory is its own:

- naive: json.loads of each line, an Entry of each, the list diagnosed (up to 200 MB: it keeps
  every line in memory);
- every line: `Reader` without a selection, an Entry of each, nothing kept or judged;
- diagnose: what `opsctl diagnose FILE` does.

Writes medians, ranges and ratios into docs/performance.md, in place of those of the same size.
The naive way's diagnosis and ours must agree, or nothing is written. Times are of the process's
own work (user and system time) beside the wall clock's, as other work on the machine is none of
the reader's. The rules are compiled within the time.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import journal_sample

from opsctl.journal import Entry, Reader, diagnose
from opsctl.rollout.diagnosing import of_stream

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
_UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}
_MOST_NAIVE = 200_000_000


def naive(path: Path) -> dict[str, Any]:
    """What a script would do."""
    with path.open(encoding="utf-8") as file:
        entries = [Entry.from_json(json.loads(line)) for line in file]
    found = diagnose(entries)
    return {"lines": len(entries), "kind": found.kind, "decisive": list(found.decisive)}


def every_line(path: Path) -> dict[str, Any]:
    """Each line parsed, nothing judged."""
    with path.open("rb") as file:
        reader = Reader(file)
        for _ in reader:
            pass
    return {"lines": reader.lines}


def ours(path: Path) -> dict[str, Any]:
    """What `opsctl diagnose` does."""
    with path.open("rb") as file:
        found = of_stream(file, path.name)
    lines = found.data["entries"]
    return {"lines": lines, "kind": found.kind, "decisive": list(found.decisive)}


WAYS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "naive": naive,
    "every line": every_line,
    "diagnose": ours,
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


def _spread(values: list[float], digits: int = 0) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f}-{high:,.{digits}f})"


def _row(way: str, runs: list[dict[str, Any]], size: int, base: list[dict[str, Any]]) -> str:
    lines = runs[0]["result"]["lines"]
    ratios = [one["work_s"] / run["work_s"] for one, run in zip(base, runs, strict=False)]
    cells = (
        way,
        _spread([lines / run["wall_s"] for run in runs]),
        _spread([lines / run["work_s"] for run in runs]),
        _spread([size / 1e6 / run["work_s"] for run in runs]),
        f"{max(run['peak_rss'] for run in runs) / 1e6:.0f} MB",
        _spread(ratios, 1) if ratios else "-",
    )
    return f"| {' | '.join(cells)} |"


def _compared(path: Path, ways: list[str], repeats: int) -> list[str]:
    """The rows of the table.

    Raises:
        SystemExit: the ways disagree about the journal.
    """
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way in ways:
            runs[way].append(_measured(way, path))
    results = [run["result"] for way in ways if way != "every line" for run in runs[way]]
    if any(result != results[0] for result in results):
        raise SystemExit(f"the ways disagree: {results}")
    size = path.stat().st_size
    return [_row(way, runs[way], size, runs.get("naive", [])) for way in ways]


def _section(size: str, ways: list[str], repeats: int, seed: int) -> str:
    """What the page says of journals of this size."""
    command = f"python bench/journal_speed.py --size {size} --repeats {repeats}"
    parts = [f"    {command}"]
    for fields in get_args(journal_sample.Fields):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "journal.json"
            with path.open("wb") as file:
                count = journal_sample.write(file, _bytes(size), seed, fields)
            rows = _compared(path, ways, repeats)
        load = os.getloadavg()[0]
        told = "all fields" if fields == "all" else "the fields that opsctl asks a host for"
        parts.append(f"{count:,} lines, {size}, {told}; load {load:.1f}:")
        head = "| way | lines/s | lines/s of work | MB/s of work | peak | times naive (work) |"
        parts.append("\n".join([head, "|---|---|---|---|---|---|", *rows]))
    return "\n\n".join(parts)


def _bytes(size: str) -> int:
    return int(float(size[:-1]) * _UNITS[size[-1]])


def _write(size: str, section: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    begin, end = f"<!-- speed {size} -->\n", f"<!-- end of speed {size} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"{PAGE} has no place for {size}: {begin}")
    made = f"{begin}\n{section}\n\n{end}"
    PAGE.write_text(pattern.sub(lambda _: made, text), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="100M", help="of a journal, such as 100M or 1G")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ways", default="", help="comma-separated")
    parser.add_argument("--show", action="store_true", help="print, and leave the page alone")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        sys.stdout.write(json.dumps(_one(arguments.way, arguments.path)))
        return
    fits = _bytes(arguments.size) <= _MOST_NAIVE
    ways = arguments.ways.split(",") if arguments.ways else list(WAYS) if fits else ["diagnose"]
    section = _section(arguments.size, ways, arguments.repeats, arguments.seed)
    if not arguments.show:
        _write(arguments.size, section)
    sys.stdout.write(section + "\n")


if __name__ == "__main__":
    main()
