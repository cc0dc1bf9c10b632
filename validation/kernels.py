"""DDTREE's Triton kernels: equal to the plain versions, and how long they take.

    PYTHONPATH=<folder of the patched sglang> python validation/kernels.py [--json FILE]

On a machine with CUDA it checks random cases and times builder, mask and walk by CUDA events,
each alone and the three together. Without CUDA it checks a few cases with TRITON_INTERPRET=1.
Exits with 1 if any case differs.
"""

# mypy: disable-error-code="import-not-found, unused-ignore, no-any-return"
from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sglang.srt.speculative import ddtree_kernels, ddtree_top_k, ddtree_tree

DEPTH = 7  # block size 8
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def marginals(
    rng: np.random.Generator, batch: int, depth: int, ranks: int, kind: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities [batch, depth, ranks], descending, and distinct ids; on the CPU."""
    scale = {"flat": 0.01, "peaked": 6.0, "mixed": 2.0, "ties": 2.0}[kind]
    logits = rng.normal(size=(batch, depth, 4 * ranks)).astype(np.float32) * scale
    if kind == "ties":
        logits = np.round(logits)  # few distinct values
    logprobs = torch.log_softmax(torch.from_numpy(logits), dim=-1)
    if kind == "ties":
        logprobs = torch.round(logprobs * 4) / 4  # sums are exact, so ties are ties
    values, ids = torch.topk(logprobs, ranks, dim=-1)
    return values.contiguous(), ids.contiguous()


def check_case(rng: np.random.Generator, batch: int, budget: int, depth: int, kind: str) -> str:
    """Build, mask and walk one random batch both ways; '' if equal, or what differs."""
    ranks = int(rng.integers(1, budget + 1)) if rng.random() < 0.3 else budget
    seeded = bool(rng.random() < 0.3)
    logprobs, ids = marginals(rng, batch, depth, ranks, kind)
    roots = torch.from_numpy(rng.integers(0, 1000, batch))
    seq_lens = torch.from_numpy(rng.integers(1, 3000, batch))
    width = budget + 1
    plain = ddtree_tree.build_tree(logprobs, ids, roots, seq_lens, budget, seeded)
    arrays = ddtree_kernels.build_tree(
        *(x.to(DEVICE) for x in (logprobs, ids)),
        roots.to(DEVICE)[:, None].repeat(1, 8)[:, 0],  # strided, as the worker has them
        seq_lens.to(DEVICE),
        width,
        seeded,
    )
    for name, ours in zip(("tokens", "parents", "depths", "positions"), arrays, strict=True):
        if not torch.equal(ours.cpu(), getattr(plain, name)):
            return f"{name} of {batch=} {budget=} {depth=} {ranks=} {kind=} {seeded=}"

    size = ddtree_tree.mask_size(batch, width, int(seq_lens.sum()))
    expected = torch.zeros(size, dtype=torch.bool)
    ddtree_tree.write_mask(plain, seq_lens, seq_lens, expected)
    mask = torch.full((size + 64,), 7, dtype=torch.uint8, device=DEVICE)
    ddtree_kernels.write_mask(arrays[1], seq_lens.to(DEVICE), int(seq_lens.max()), depth, mask)
    if not torch.equal(mask[:size].cpu(), expected.to(torch.uint8)):
        return f"mask of {batch=} {budget=} {depth=} {kind=}"
    if not bool((mask[size:] == 7).all()):
        return f"mask of {batch=} {budget=} wrote past its end"

    predicted = torch.from_numpy(rng.integers(0, 4 * ranks, (batch, width)))
    # Half of the nodes continue to one of their children, so that walks go deep.
    for node in range(width - 1, 0, -1):
        follow = (plain.parents[:, node] >= 0) & torch.from_numpy(rng.random(batch) < 0.7)
        rows = torch.nonzero(follow).squeeze(1)
        predicted[rows, plain.parents[rows, node].long()] = plain.tokens[rows, node]
    walked = ddtree_kernels.walk_tree(arrays[0], arrays[1], arrays[2], predicted.to(DEVICE), depth)
    if not torch.equal(walked.cpu(), ddtree_tree.walk_tree(plain, predicted)):
        return f"walk of {batch=} {budget=} {depth=} {kind=}"
    return ""


def check_top_k(rng: np.random.Generator) -> str:
    """The K best tokens of a few rows, by the kernel and by torch; '' if equal."""
    vocab = int(rng.choice([300, 5000, 49152, 151936] if DEVICE == "cuda" else [300, 3000]))
    k, rows = int(rng.choice([1, 4, 16, 32, 64])), int(rng.integers(1, 17))
    logits = torch.from_numpy(rng.normal(size=(rows, vocab)).astype(np.float32) * 4).to(DEVICE)
    if rng.random() < 0.5:
        logits = logits.to(torch.bfloat16)
    if DEVICE == "cpu":
        logits = logits.float()  # the interpreter is wrong in bfloat16
    values, ids, logsumexp = ddtree_top_k.top_k(logits, k, 7)
    logits = logits.float()
    if not torch.equal(values, torch.topk(logits, k).values):
        return f"top-k values of {vocab=} {k=} {rows=}"
    if not torch.equal(logits.gather(1, ids - 7), values):
        return f"top-k ids of {vocab=} {k=} {rows=}"
    if not torch.allclose(logsumexp, torch.logsumexp(logits, 1, keepdim=True), atol=1e-4):
        return f"logsumexp of {vocab=} {k=} {rows=}"
    return ""


def check(cases: int) -> list[str]:
    rng = np.random.default_rng(20260412)
    failures = []
    for case in range(cases):
        kind = ("flat", "peaked", "mixed", "ties")[case % 4]
        batch = int(rng.integers(1, 9))
        budget = int(rng.choice([1, 2, 3, 7, 8, 16, 31, 32, 33, 63, 64, 127]))
        depth = int(rng.choice([1, 2, 7, 15]))
        if DEVICE == "cpu":
            batch, budget = min(batch, 3), min(budget, 16)
        failures.append(check_case(rng, batch, budget, depth, kind))
        if case % 8 == 0:
            failures.append(check_top_k(rng))
    return [failure for failure in failures if failure]


def by_events(step: Callable[[], Any], calls: int = 1, repeats: int = 200) -> dict[str, float]:
    """Microseconds of one call by CUDA events; `step` makes `calls` of them."""
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        step()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000 / calls)
    times.sort()
    return {"median_us": round(statistics.median(times), 2), "p95_us": round(times[-10], 2)}


def timed(step: Callable[[], Any], calls: int = 20) -> dict[str, float]:
    """GPU time alone, from a graph of some calls: the server replays kernels back to back too."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(5):
            step()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(calls):
            step()
    return by_events(graph.replay, calls)


def launched(step: Callable[[], Any]) -> dict[str, float]:
    """A call from the host, launch and Python included."""
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    return by_events(step)


def time_all(seq_len: int = 2048) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    rows = []
    for budget in (4, 8, 16, 32, 64):
        for batch in (1, 2, 4, 8):
            logprobs, ids = (x.to(DEVICE) for x in marginals(rng, batch, DEPTH, budget, "mixed"))
            roots = torch.zeros(batch, dtype=torch.int64, device=DEVICE)
            seq_lens = torch.full((batch,), seq_len, dtype=torch.int64, device=DEVICE)
            predicted = torch.zeros((batch, budget + 1), dtype=torch.int64, device=DEVICE)
            size = ddtree_tree.mask_size(batch, budget + 1, batch * seq_len)
            mask = torch.zeros(size, dtype=torch.uint8, device=DEVICE)
            inputs = (logprobs, ids, roots, seq_lens, budget + 1, False)
            tree = ddtree_kernels.build_tree(*inputs)

            def build(inputs: Any = inputs) -> Any:
                return ddtree_kernels.build_tree(*inputs)

            def write(tree: Any = tree, seq_lens: Any = seq_lens, mask: Any = mask) -> None:
                ddtree_kernels.write_mask(tree[1], seq_lens, seq_len, DEPTH, mask)

            def walk(tree: Any = tree, predicted: Any = predicted) -> None:
                ddtree_kernels.walk_tree(tree[0], tree[1], tree[2], predicted, DEPTH)

            def three(build: Any = build, write: Any = write, walk: Any = walk) -> None:
                build()
                write()
                walk()

            logits = torch.randn(batch * DEPTH, 49152, device=DEVICE, dtype=torch.bfloat16)

            def rank(logits: Any = logits, budget: int = budget) -> None:
                ddtree_top_k.top_k(logits, budget, 0)

            def rank_torch(logits: Any = logits, budget: int = budget) -> None:
                full = logits.float()
                torch.topk(full, budget)
                torch.logsumexp(full, dim=1, keepdim=True)

            row = {
                "budget": budget,
                "batch": batch,
                "seq_len": seq_len,
                "build": timed(build),
                "mask": timed(write),
                "walk": timed(walk),
                "together": timed(three),
                "together_launched": launched(three),
                "top_k": timed(rank),
                "top_k_torch": timed(rank_torch),
            }
            rows.append(row)
            print(json.dumps(row), flush=True)  # noqa: T201
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000 if DEVICE == "cuda" else 24)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    failures = check(args.cases)
    print(f"{args.cases} random cases on {DEVICE}: {len(failures)} differ")  # noqa: T201
    for failure in failures[:10]:
        print(f"  differs: {failure}")  # noqa: T201
    rows = time_all() if DEVICE == "cuda" else []
    if args.json:
        report = {"device": DEVICE, "cases": args.cases, "failures": failures, "times": rows}
        if DEVICE == "cuda":
            report["gpu"] = torch.cuda.get_device_name()
        args.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
