"""Batches of one length: tokens a second, milliseconds a step, and torch's traces."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compare import steps_of
from lab import Found, Lab
from servers import Server, fetch, generate


def together(server: Server, group: Sequence[str], tokens: int) -> dict[str, float]:
    """One batch, every request to the same length.

    A step is wall time, the prefill included, over the steps of the request that took most.
    """
    with ThreadPoolExecutor(len(group)) as pool:
        began = time.perf_counter()
        answers = list(pool.map(lambda p: generate(server, p, tokens, ignore_eos=True), group))
        seconds = time.perf_counter() - began
    steps = [steps_of(answer) for answer in answers]
    made = sum(answer["meta_info"]["completion_tokens"] for answer in answers)
    return {
        "tokens_per_s": round(made / seconds, 1),
        "ms_per_step": round(1000 * seconds / max(steps), 3),
        "accept_len": round(made / sum(steps), 3),
    }


def batches(
    lab: Lab,
    servers: Sequence[Server],
    found: Found,
    *,
    sizes: Sequence[int],
    repeats: int,
    tokens: int,
    texts: Sequence[str],
) -> None:
    """found[size][server][measure] is a list, one figure a repeat; a new order each repeat."""
    for server in servers:  # kernels are compiled for new shapes at their first use
        for size in sizes:
            together(server, texts[:size], tokens)
    lab.say("batches: warm")
    order, shuffle = list(servers), random.Random(0)  # noqa: S311 - an order, always the same
    for repeat in range(repeats):
        for size in sizes:
            group = [texts[(repeat * 3 + i) % len(texts)] for i in range(size)]
            shuffle.shuffle(order)
            rows = found.setdefault(str(size), {server.name: {} for server in servers})
            for server in order:
                row = rows[server.name]
                for measure, value in together(server, group, tokens).items():
                    row.setdefault(measure, []).append(value)
        lab.say(f"batches: repeat {repeat + 1} of {repeats}")
        lab.keep()


def profile(lab: Lab, server: Server, folder: Path, texts: Sequence[str], steps: int = 10) -> str:
    """A torch trace of `steps` steps at batch 4, for chrome://tracing; says what failed."""
    target = folder / server.name
    target.mkdir(parents=True, exist_ok=True)
    request = {
        "num_steps": steps, "activities": ["CPU", "GPU"], "output_dir": str(target.resolve()),
    }  # fmt: skip
    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(together, server, texts[:4], 400)
        time.sleep(0.5)
        try:
            answer = fetch(server.port, "/start_profile", request, timeout=60)
        except OSError as error:
            answer = str(error)
        load.result()
    deadline = time.monotonic() + 15  # the trace is written after its last step
    while not list(target.glob("*.gz")) and time.monotonic() < deadline:
        time.sleep(0.5)
    lab.say(f"profile of {server.name}: {[p.name for p in target.glob('*')]}")
    return answer.strip()
