"""What a rare line costs to find in a host's journal, by the ways that journalctl has.

    python bench/journal_grep.py [--size 200] [--repeats 5] [--seed 1]

Makes a journal file of `--size` MB of JSON (`bench/journal_sample.py`) with
systemd-journal-remote, and runs in turns, matched to one invocation as opsctl does:

- grep: `journalctl --grep`, the pattern matched in journalctl;
- cat: `journalctl --output=cat | grep`;
- json: `journalctl --output=json | grep`, which is all fields over a pipe;
- first: `journalctl --grep` of a line near the beginning, stopped at the first match, as
  `opsctl.hostside.journal.first` does;
- last: the same line by `--grep --lines=1 --reverse`, which searches from the end.

Prints as one JSON object entries per second and MB per second of the journal file, and what
the process itself took (user and system time).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import journal_sample

_REMOTE = ("/lib/systemd/systemd-journal-remote", "/usr/lib/systemd/systemd-journal-remote")
_RARE = "hit an exception"
_EARLY = "Init torch distributed ends"
# Line by line, and stopped at the first of them.
_FIRST = (
    'first() { exec 3< <(exec stdbuf -oL "$@"); read -r line <&3; echo "$line"; kill $!; }; first'
)
_SCOPE = "_SYSTEMD_INVOCATION_ID=0f1e2d3c4b5a69788796a5b4c3d2e1f0"


def _journal(folder: Path, size: int, seed: int) -> tuple[Path, int]:
    """A journal file and its number of entries."""
    text, exported, made = folder / "json", folder / "export", folder / "bench.journal"
    with text.open("wb") as file:
        count = journal_sample.write(file, size, seed)
    with text.open("rb") as file, exported.open("wb") as out:
        for line in file:
            for name, value in json.loads(line).items():
                data = value.encode()
                if b"\n" in data:
                    length = len(data).to_bytes(8, "little")
                    out.write(name.encode() + b"\n" + length + data + b"\n")
                elif name != "__CURSOR":
                    out.write(name.encode() + b"=" + data + b"\n")
            out.write(b"\n")
    remote = next((path for path in _REMOTE if Path(path).exists()), None)
    if remote is None:
        raise SystemExit("systemd-journal-remote is not installed")
    subprocess.run([remote, f"--output={made}", exported], check=True, capture_output=True)
    return made, count


def _timed(command: str) -> tuple[float, float]:
    """Seconds by the wall clock, and of work."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if not done.stdout.strip():
        raise SystemExit(f"nothing found: {command}: {done.stderr}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=200, help="of the journal as JSON, in MB")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, entries = _journal(Path(folder), arguments.size * 1_000_000, arguments.seed)
        size = path.stat().st_size / 1e6
        ask = f"journalctl --file={path} --quiet --no-pager {_SCOPE}"
        commands = {
            "grep": f"{ask} --output=json --grep='{_RARE}'",
            "cat": f"{ask} --output=cat | grep '{_RARE}'",
            "json": f"{ask} --output=json | grep '{_RARE}'",
            "first": f"{_FIRST} {ask} --output=json --grep='{_EARLY}'",
            "last": f"{ask} --output=json --grep='{_EARLY}' --lines=1 --reverse",
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(arguments.repeats):
            for name, command in commands.items():
                times[name].append(_timed(command))
    report: dict[str, object] = {"entries": entries, "file_mb": size, "load": os.getloadavg()[0]}
    for name, pairs in times.items():
        walls, works = [wall for wall, _ in pairs], [work for _, work in pairs]
        report[name] = {
            "wall_s": {
                "median": round(statistics.median(walls), 3),
                "min": round(min(walls), 3),
                "max": round(max(walls), 3),
            },
            "work_s": round(statistics.median(works), 3),
            "entries_per_s": round(entries / statistics.median(walls)),
            "file_mb_per_s": round(size / statistics.median(walls)),
        }
    sys.stdout.write(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
