"""What a deploy that has nothing to do costs, beside plain ssh to the same host.

    python bench/noop_deploy.py [--repeats 10] [--host ct200-lab]

Runs in turns, so that both meet the same load on this machine: `ssh … true` (one connection and
one process there), `opsctl deploy` with nothing to do, and the same under --help (the start of
the program alone). Prints medians, ratios to ssh, and the spread, as one JSON object. The host
must be a running lab that has its patch set already.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

from opsctl import lab


def _seconds(argv: list[str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(argv)}: {done.stdout}{done.stderr}")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--host", default="ct200-lab")
    arguments = parser.parse_args()
    opsctl = [sys.executable, "-m", "opsctl.cli"]
    commands = {
        "ssh": lab.ssh_argv(arguments.host, "true"),
        "noop_deploy": [*opsctl, "--quiet", "deploy", arguments.host, "--yes", "--json"],
        "help": [*opsctl, "deploy", "--help"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(arguments.repeats):
        for name, argv in commands.items():
            times[name].append(_seconds(argv))
    base = statistics.median(times["ssh"])
    result = {
        name: {
            "median_s": round(statistics.median(values), 3),
            "min_s": round(min(values), 3),
            "max_s": round(max(values), 3),
            "ratio_to_ssh": round(statistics.median(values) / base, 2),
        }
        for name, values in times.items()
    }
    sys.stdout.write(json.dumps({"repeats": arguments.repeats, **result}) + "\n")


if __name__ == "__main__":
    main()
