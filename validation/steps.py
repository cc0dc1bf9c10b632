"""The time of a verify step, DDTREE beside DFLASH, by batch size; and a profile of each.

    python steps.py --target FOLDER --draft FOLDER --site SITE --out FOLDER [--budget 32]

A step's time is wall time over the verify steps of a request, all requests of a batch running to
the same length. Traces are torch's, of ten steps, for chrome://tracing.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from run import GRAPHS, Runs, prompts
from servers import Server, ask, running

BATCHES = (1, 2, 4, 8)


def together(server: Server, size: int, tokens: int = 160) -> dict[str, float]:
    """One batch; milliseconds a verify step, and the accept length."""
    chosen = [prompt for _, prompt in prompts(16)][:size]

    def one(prompt: str) -> dict[str, Any]:
        options = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        answer = ask(server.port, "/generate", {"text": prompt, "sampling_params": options})
        meta: dict[str, Any] = answer["meta_info"]
        return meta

    with concurrent.futures.ThreadPoolExecutor(size) as pool:
        began = time.perf_counter()
        metas = list(pool.map(one, chosen))
        seconds = time.perf_counter() - began
    steps = max(meta["spec_verify_ct"] for meta in metas)
    made = sum(meta["completion_tokens"] for meta in metas)
    verified = sum(meta["spec_verify_ct"] for meta in metas)
    return {"ms_per_step": 1000 * seconds / steps, "accept_len": made / verified}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name in ("target", "draft", "site", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--budget", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    arguments.whole = arguments.without_graph = arguments.site
    arguments.work = arguments.out
    os.environ["SGLANG_TORCH_PROFILER_DIR"] = str(arguments.out)
    runs = Runs(arguments)
    servers = [runs.dflash(GRAPHS), runs.ddtree(arguments.budget, GRAPHS)]
    found: dict[str, Any] = {}
    with running(servers, timeout=200):
        for server in servers:
            for size in BATCHES:
                together(server, size)
        for size in BATCHES:
            for repeat in range(arguments.repeats):
                for server in servers if repeat % 2 == 0 else servers[::-1]:
                    row = found.setdefault(server.name, {}).setdefault(str(size), [])
                    row.append(together(server, size))
        for server in servers:
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                load = pool.submit(together, server, 4, 400)
                time.sleep(0.5)
                request = {"num_steps": 10, "activities": ["CPU", "GPU"]}
                try:
                    ask(server.port, "/start_profile", request, timeout=90)
                except Exception as error:
                    found[f"{server.name} profile"] = str(error)
                load.result()
            time.sleep(8)
    summary = {
        name: {
            size: round(statistics.median(r["ms_per_step"] for r in rows), 3)
            for size, rows in sizes.items()
        }
        for name, sizes in found.items()
        if isinstance(sizes, dict)
    }
    (arguments.out / "steps.json").write_text(json.dumps({"runs": found, "median": summary}))
    sys.stdout.write(json.dumps(summary) + "\n")


if __name__ == "__main__":
    main()
