"""Lines, samples and endpoints for this folder's tests."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from opsctl.acceptance import Endpoints, Measured, Sample
from opsctl.sglang import DdtreeMetrics, DecodeBatch


def decode(
    length: float | None, running: int = 1, *, rank: str = "", graph: bool | None = True
) -> DecodeBatch:
    return DecodeBatch(
        rank=rank,
        running=running,
        accept_len=length,
        cuda_graph=graph,
        gen_throughput=10.0 * running,
        queue=running - 1,
    )


def tree(length: float, verifies: int, steps: int = 40, rank: str = "") -> DdtreeMetrics:
    values: dict[str, float | str] = {
        "budget": 16.0,
        "steps": float(steps),
        "verifies": float(verifies),
        "accept_len_mean": length,
    }
    return DdtreeMetrics(rank=rank, values=MappingProxyType(values))


def measured(*lines: DecodeBatch | DdtreeMetrics, start: str = "a", **options: Any) -> Measured:
    return Measured.of(
        [Sample(100.0 + place, start, line) for place, line in enumerate(lines)], **options
    )


def endpoints(
    lifetime: float | None = None, metrics: dict[str, float] | None = None, ranks: int = 1
) -> Endpoints:
    state = {"last_gen_throughput": 50.0}
    if lifetime is not None:
        state["avg_spec_accept_length"] = lifetime
    return Endpoints({"version": "0.5.12.post1", "internal_states": [state] * ranks}, metrics)
