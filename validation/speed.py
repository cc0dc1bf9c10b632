"""Tokens a second on the small pair, in groups of servers that share the card.

More than four servers at once disturb each other through the host's cores, so each group is
small, and each holds DFLASH: figures are compared within a group and repeat only.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from compare import steps_of
from lab import Found, Lab, prompts
from servers import Server, generate
from steps import batches


def groups(lab: Lab, found: dict[str, Found]) -> None:
    """Stages `speed` and `batch`, one of them or both on the same servers; `found` by stage."""
    for number, specs in enumerate(lab.arguments.groups):
        started: Found = {}
        servers = [lab.server(spec, lab.small, label=f"-{number}") for spec in specs.split(",")]
        with lab.up(servers, started) as alive:
            names = [server.name for server in alive]
            for stage in found.values():
                group = {"servers": names, **started}
                stage.setdefault("groups", []).append(group)
            if "speed" in found:
                alone(lab, alive, found["speed"]["groups"][number])
            if "batch" in found:
                batches(
                    lab,
                    alive,
                    found["batch"]["groups"][number].setdefault("sizes", {}),
                    sizes=lab.arguments.sizes,
                    repeats=lab.arguments.batch_repeats,
                    tokens=lab.arguments.batch_tokens,
                    texts=[prompt for _, prompt in prompts(16)],
                )
            for stage in found.values():
                graphs = {server.name: server.graph_share() for server in alive}
                stage["groups"][number]["cuda_graph"] = graphs
            lab.keep()


def alone(lab: Lab, servers: Sequence[Server], found: Found) -> None:
    """Batch 1; each prompt goes to every server before the next, in a new order each repeat."""
    options = lab.arguments
    chosen = [prompt for _, prompt in prompts(options.speed_prompts)]
    for server in servers:
        for prompt in chosen:
            generate(server, prompt, options.speed_tokens)
    names = [server.name for server in servers]
    found["tokens_per_s"] = {name: [] for name in names}
    found["accept_len"] = {}
    order, shuffle = list(servers), random.Random(0)  # noqa: S311 - an order, always the same
    for repeat in range(options.repeats):
        tokens, steps = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
        seconds = dict.fromkeys(names, 0.0)
        shuffle.shuffle(order)
        for prompt in chosen:
            for server in order:
                began = time.perf_counter()
                answer = generate(server, prompt, options.speed_tokens)
                seconds[server.name] += time.perf_counter() - began
                tokens[server.name] += answer["meta_info"]["completion_tokens"]
                steps[server.name] += steps_of(answer)
        for name in names:
            found["tokens_per_s"][name].append(round(tokens[name] / seconds[name], 2))
            found["accept_len"][name] = round(tokens[name] / steps[name], 3)
        lab.say(f"batch 1: repeat {repeat + 1} of {options.repeats}")
        lab.keep()
