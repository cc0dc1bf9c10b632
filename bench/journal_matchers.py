"""Libraries that find many literals in bytes, side by side on one journal.

    pip install ahocorasick-rs google-re2
    python bench/journal_matchers.py [--size 64] [--repeats 5] [--seed 1]

Each is given the same needles and the same blocks of 4 MiB, in turns; those that are not installed
are left out. Case matters to all of them, as ahocorasick-rs knows no other way. Prints MB per
second of work (user and system time: median, least and most), and seconds to compile.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import journal_sample

from opsctl.journal.rules import needles
from opsctl.journal.source import BLOCK

Search = Callable[[bytes], int]


def _hyperscan(module: Any, wanted: list[bytes]) -> Search:
    database = module.Database()
    database.compile(
        expressions=wanted, ids=[0] * len(wanted), elements=len(wanted), flags=0, literal=True
    )

    def search(block: bytes) -> int:
        found: list[int] = []
        database.scan(block, match_event_handler=lambda *hit: found.append(hit[2]))
        return len(found)

    return search


def _ahocorasick_rs(module: Any, wanted: list[bytes]) -> Search:
    machine = module.BytesAhoCorasick(wanted, implementation=module.Implementation.DFA)
    return lambda block: len(machine.find_matches_as_indexes(block))


def _re2(module: Any, wanted: list[bytes]) -> Search:
    options = module.Options()
    options.encoding, options.max_mem = module.Options.Encoding.LATIN1, 64 << 20
    pattern = module.compile(b"|".join(re.escape(text) for text in wanted), options)
    return lambda block: sum(1 for _ in pattern.finditer(block))


def _re(module: Any, wanted: list[bytes]) -> Search:
    pattern = module.compile(b"|".join(re.escape(text) for text in wanted))
    return lambda block: sum(1 for _ in pattern.finditer(block))


LIBRARIES: dict[str, Callable[[Any, list[bytes]], Search]] = {
    "hyperscan": _hyperscan,
    "ahocorasick_rs": _ahocorasick_rs,
    "re2": _re2,
    "re": _re,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=64, help="of the journal, in MB")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    buffer = io.BytesIO()
    journal_sample.write(buffer, arguments.size * 1_000_000, arguments.seed)
    data = buffer.getvalue()
    blocks = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]
    wanted = sorted({text.encode() for text in needles()})
    report: dict[str, Any] = {"needles": len(wanted), "load": os.getloadavg()[0]}
    searches: dict[str, Search] = {}
    for name, compiled in LIBRARIES.items():
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        began = time.process_time()
        searches[name] = compiled(module, wanted)
        report[name] = {"compile_s": round(time.process_time() - began, 3)}
    rates: dict[str, list[float]] = {name: [] for name in searches}
    for _ in range(arguments.repeats):
        for name, search in searches.items():
            some = blocks[:2] if name == "re" else blocks  # by far the slowest
            began = time.process_time()
            report[name]["matches"] = sum(map(search, some))
            rates[name].append(sum(map(len, some)) / 1e6 / (time.process_time() - began))
    for name, values in rates.items():
        report[name]["mb_per_s"] = {
            "median": round(statistics.median(values)),
            "min": round(min(values)),
            "max": round(max(values)),
        }
    sys.stdout.write(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
