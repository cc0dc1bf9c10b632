"""DDTree on one GPU, from the incident to the comparison; writes one JSON file.

    python run.py --target FOLDER --draft FOLDER --whole SITE --without-graph SITE --out FILE

SITE is a folder that holds the `sglang` package with the set applied, whole or without the
CUDA-graph patch. Stages can be chosen with --stages, since a machine is lent for minutes.
Figures are only of what ran; a stage that failed says so in its place.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import platform
import random
import statistics
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from servers import Server, ask, generate, running

HERE = Path(__file__).resolve().parent
INCIDENT = "The size of tensor a (8) must match the size of tensor b (33)"
CHAT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)


def prompts(limit: int | None = None) -> list[tuple[str, str]]:
    """(kind, prompt) pairs, the kinds in turns."""
    kinds = json.loads((HERE / "prompts.json").read_text(encoding="utf-8"))
    pairs = [
        (kind, CHAT.format(texts[i]))
        for i in range(max(map(len, kinds.values())))
        for kind, texts in kinds.items()
        if i < len(texts)
    ]
    return pairs[:limit]


class Runs:
    """The servers of this validation, by name."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self._port = 31000

    def server(self, name: str, site: Path, *extra: str) -> Server:
        self._port += 7
        common = (f"--model-path={self.arguments.target}", "--mem-fraction-static=0.2", *extra)
        return Server(name, self._port, common, site, self.arguments.work)

    def keep(self, found: dict[str, Any]) -> None:
        """What is known so far: the machine may be taken at any moment."""
        path = self.arguments.out.with_suffix(".partial.json")
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    def plain(self, *extra: str) -> Server:
        return self.server("plain", self.arguments.whole, *extra)

    def dflash(self, *extra: str) -> Server:
        return self.server("dflash", self.arguments.whole, *self._draft("DFLASH"), *extra)

    def ddtree(self, budget: int, *extra: str, site: Path | None = None, name: str = "") -> Server:
        options = (*self._draft("DDTREE"), f"--speculative-ddtree-budget={budget}", *extra)
        return self.server(name or f"ddtree-{budget}", site or self.arguments.whole, *options)

    def _draft(self, algorithm: str) -> tuple[str, ...]:
        return (
            f"--speculative-algorithm={algorithm}",
            f"--speculative-draft-model-path={self.arguments.draft}",
        )


GRAPHS = "--cuda-graph-max-bs=8"
BATCHES = (2, 3, 4, 8)


def stage_incident(runs: Runs) -> dict[str, Any]:
    """The series without its CUDA-graph patch must die with the incident's own message."""
    server = runs.ddtree(32, GRAPHS, site=runs.arguments.without_graph, name="incident")
    with running([server], timeout=200):
        died = server.dead()
    lines = [line for line in server.text().splitlines() if INCIDENT in line]
    return {"died": died, "message": lines[0].strip() if lines else None}


def stage_compare(runs: Runs) -> dict[str, Any]:
    """Losslessness, acceptance and speed, every server up at once and asked in turns."""
    budgets = runs.arguments.budgets
    servers = [runs.plain(GRAPHS), runs.dflash(GRAPHS), *(runs.ddtree(b, GRAPHS) for b in budgets)]
    if runs.arguments.eager:
        name = f"ddtree-{runs.arguments.eager}-eager"
        servers.append(runs.ddtree(runs.arguments.eager, "--disable-cuda-graph", name=name))
    with running(servers, timeout=300):
        alive = [server for server in servers if server.ready_s is not None]
        found: dict[str, Any] = {
            "ready_s": {s.name: s.ready_s for s in servers},
            "failed": {s.name: s.text().splitlines()[-25:] for s in servers if s.ready_s is None},
        }
        measures = runs.arguments.measure
        if "lossless" in measures and alive and alive[0].name == "plain":
            found["lossless"] = _lossless(runs, alive)
            runs.keep(found)
        if "speed" in measures:
            found["speed"] = _speed(runs, alive)
            runs.keep(found)
        if "batch" in measures:
            found["batch"] = _batches(runs, alive)
        found["cuda_graph"] = {s.name: _graph_share(s) for s in alive}
        found["metrics_lines"] = {
            s.name: [x for x in s.text().splitlines() if "DDTREE metrics" in x][-2:] for s in alive
        }
    return found


def _graph_share(server: Server) -> dict[str, int]:
    lines = [line for line in server.text().splitlines() if "Decode batch" in line]
    return {
        "true": sum("cuda graph: True" in line for line in lines),
        "false": sum("cuda graph: False" in line for line in lines),
    }


def _lossless(runs: Runs, servers: list[Server]) -> dict[str, Any]:
    """First divergence from the plain server's greedy text, judged by the logprob gap there.

    Every prompt alone, and then four at once: the plain server's own row for those shows what
    the batch alone does to bf16.
    """
    plain, tokens = servers[0], runs.arguments.tokens
    rows: dict[str, Any] = {
        server.name: {"alone": _Divergences(), "four_at_once": _Divergences(), "kinds": {}}
        for server in servers
    }
    chosen = prompts(runs.arguments.prompts)
    references = []
    for kind, prompt in chosen:
        options = {"return_logprob": True, "top_logprobs_num": 2}
        references.append(generate(plain.port, prompt, tokens, **options))
        for server in servers[1:]:
            answer = generate(server.port, prompt, tokens)
            rows[server.name]["alone"].add(references[-1], answer)
            meta = answer["meta_info"]
            if meta["spec_verify_ct"]:
                length = meta["completion_tokens"] / meta["spec_verify_ct"]
                rows[server.name]["kinds"].setdefault(kind, []).append(length)
    for server in servers:
        for start in range(0, len(chosen) - 3, 4):
            group = [prompt for _, prompt in chosen[start : start + 4]]
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                answers = pool.map(lambda p, port=server.port: generate(port, p, tokens), group)
                for reference, answer in zip(references[start:], answers, strict=False):
                    rows[server.name]["four_at_once"].add(reference, answer)
    return {
        name: {
            "alone": row["alone"].to_json(),
            "four_at_once": row["four_at_once"].to_json(),
            "accept_len_by_kind": {
                k: round(statistics.fmean(v), 3) for k, v in row["kinds"].items()
            },
        }
        for name, row in rows.items()
    }


class _Divergences:
    """Answers against the reference's, and the counters of the answers."""

    def __init__(self) -> None:
        self.equal = self.outside_top_two = self.tokens = self.verify_steps = 0
        self.gaps: list[float] = []

    def add(self, reference: dict[str, Any], answer: dict[str, Any]) -> None:
        expected, got, meta = reference["output_ids"], answer["output_ids"], answer["meta_info"]
        self.tokens += meta["completion_tokens"]
        self.verify_steps += meta.get("spec_verify_ct") or 0
        pairs = enumerate(zip(expected, got, strict=False))
        at = next((i for i, (a, b) in pairs if a != b), None)
        if at is None:
            self.equal += 1
            return
        first, second = reference["meta_info"]["output_top_logprobs"][at][:2]
        self.gaps.append(round(first[0] - second[0], 4))
        self.outside_top_two += got[at] not in {first[1], second[1]}

    def to_json(self) -> dict[str, Any]:
        steps = self.verify_steps
        return {
            "equal": self.equal,
            "diverged": len(self.gaps),
            "gaps": sorted(self.gaps),
            "outside_top_two": self.outside_top_two,
            "tokens": self.tokens,
            "verify_steps": steps,
            "accept_len": round(self.tokens / steps, 4) if steps else None,
        }


def _speed(runs: Runs, servers: list[Server]) -> dict[str, Any]:
    """Batch 1: tokens a second and accept length, by server; a repeat asks all in a new order."""
    chosen = prompts(runs.arguments.prompts)
    tokens = runs.arguments.tokens
    names = [server.name for server in servers]
    rates: dict[str, list[float]] = {name: [] for name in names}
    steps: dict[str, int] = dict.fromkeys(names, 0)
    made: dict[str, int] = dict.fromkeys(names, 0)
    kinds: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    order = list(servers)
    shuffle = random.Random(0)  # noqa: S311 - an order, the same each time
    for server in servers:
        for _, prompt in chosen[:2]:
            generate(server.port, prompt, tokens)
    for repeat in range(runs.arguments.repeats):
        shuffle.shuffle(order)
        count = dict.fromkeys(names, 0)
        seconds = dict.fromkeys(names, 0.0)
        for kind, prompt in chosen:
            for server in order:
                answer = generate(server.port, prompt, tokens)
                meta = answer["meta_info"]
                count[server.name] += meta["completion_tokens"]
                seconds[server.name] += answer["seconds"]
                verify = meta.get("spec_verify_ct")
                if repeat == 0 and verify:
                    steps[server.name] += verify
                    made[server.name] += meta["completion_tokens"]
                    kinds[server.name].setdefault(kind, []).append(
                        meta["completion_tokens"] / verify
                    )
        for name in names:
            rates[name].append(count[name] / seconds[name])
    return {
        name: {
            "tokens_per_s": [round(x, 2) for x in rates[name]],
            "median": round(statistics.median(rates[name]), 2),
            "verify_steps": steps[name],
            "accept_len": round(made[name] / steps[name], 4) if steps[name] else None,
            "accept_len_by_kind": {
                kind: round(statistics.fmean(values), 3) for kind, values in kinds[name].items()
            },
        }
        for name in names
    }


def _batches(runs: Runs, servers: list[Server]) -> dict[str, Any]:
    """Throughput of n requests at once that all run to the same length, n = 2, 3, 4, 8."""
    chosen = [prompt for _, prompt in prompts(16)]
    found: dict[str, Any] = {server.name: {} for server in servers}
    for server in servers:  # kernels are compiled for new shapes at their first use
        for size in BATCHES:
            _together(server, chosen[:size])
    for repeat in range(max(2, runs.arguments.repeats // 3)):
        for size in BATCHES:
            group = [chosen[(repeat * 3 + i) % len(chosen)] for i in range(size)]
            for server in servers if repeat % 2 == 0 else servers[::-1]:
                found[server.name].setdefault(str(size), []).append(_together(server, group))
    return found


def _together(server: Server, group: list[str]) -> float:
    """Tokens a second of one batch; 128 tokens each, so that nearly all steps are full."""

    def one(prompt: str) -> int:
        options = {"temperature": 0, "max_new_tokens": 128, "ignore_eos": True}
        answer = ask(server.port, "/generate", {"text": prompt, "sampling_params": options})
        return int(answer["meta_info"]["completion_tokens"])

    with concurrent.futures.ThreadPoolExecutor(len(group)) as pool:
        began = time.perf_counter()
        count = sum(pool.map(one, group))
        return round(count / (time.perf_counter() - began), 1)


STAGES = {"incident": stage_incident, "compare": stage_compare}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("target", "draft", "whole", "without-graph", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("validation-work"))
    parser.add_argument("--stages", nargs="+", default=list(STAGES), choices=list(STAGES))
    parser.add_argument("--budgets", nargs="+", type=int, default=[4, 8, 16, 32, 64])
    parser.add_argument("--measure", nargs="+", default=["lossless", "speed", "batch"])
    parser.add_argument("--eager", type=int, default=0, help="a budget to run without graphs too")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=10)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {"machine": _machine(), "options": {}}
    for name in ("budgets", "prompts", "tokens", "repeats"):
        result["options"][name] = getattr(arguments, name)
    runs = Runs(arguments)
    for stage in arguments.stages:
        began = time.monotonic()
        try:
            result[stage] = STAGES[stage](runs)
        except Exception:
            result[stage] = {"error": traceback.format_exc()}
        result[stage]["seconds"] = round(time.monotonic() - began, 1)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(f"{stage} {json.dumps(result[stage])[:3000]}\n")
        sys.stdout.flush()


def _machine() -> dict[str, Any]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    return {"gpu": gpu, "python": platform.python_version(), "time": time.time()}


if __name__ == "__main__":
    main()
