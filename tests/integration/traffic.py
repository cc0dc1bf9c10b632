"""Requests to the lab's server, with the counters that it gave for each."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from workbench import LAB, Bench

from opsctl import lab
from opsctl.sglang import SglangClient, SpecCounters

PORT = 30001
PROMPTS = ("Write quicksort in Python with comments.", "def add(a, b):", "The quick brown fox")
# Decode lines print two digits and are one step each in the lab; a request that ends in mid-step
# is counted whole there. Measured 0.1 % apart at the most; this leaves room.
TOLERANCE = 0.02
# opsctl reads the journal so long after it was started, at the most, seconds; nothing else may
# have been asked of the server in that time before.
QUIET = 5.0


@dataclass(frozen=True)
class Sent:
    """`since` is Unix time; the lab shares this machine's clock."""

    since: float
    counters: tuple[SpecCounters, ...]

    @property
    def verifies(self) -> int:
        return sum(one.verify_steps or 0 for one in self.counters)

    @property
    def accept_len(self) -> float:
        """Accepted drafts and a bonus token each, over the verifies of these requests."""
        return 1 + sum(one.accepted or 0 for one in self.counters) / self.verifies


def send(requests: int, at_once: int, quiet: float = QUIET) -> Sent:
    running = lab.status(LAB)
    assert running is not None
    time.sleep(quiet)
    since = time.time()

    def one(number: int) -> SpecCounters:
        with SglangClient(f"http://{running.address}:{PORT}") as client:
            return client.generate(PROMPTS[number % len(PROMPTS)], 96, timeout=60).meta

    with ThreadPoolExecutor(at_once) as pool:
        found = Sent(since, tuple(pool.map(one, range(requests))))
    assert found.verifies > requests
    time.sleep(0.5)  # the last step's line comes after its answer
    return found


def check_metrics(bench: Bench, sent: Sent) -> dict[str, Any]:
    """The span of `sent` in `opsctl metrics` against the requests' own counters; its data."""
    outcome = bench.opsctl("metrics", "--last", f"{time.time() - sent.since + QUIET:.3f}s")
    assert outcome.exit_code == 0, outcome.said
    data: dict[str, Any] = outcome.report["data"]
    assert data["span"]["since"] < sent.since
    measured = data["measured"]
    mean = data["acceptance"]["accept_len"]["mean"]
    assert mean == pytest.approx(sent.accept_len, rel=TOLERANCE)
    assert measured["verifies"] == pytest.approx(sent.verifies, rel=TOLERANCE)
    assert len(measured["batch_sizes"]) > 1
    assert measured["draft_acceptance"] == pytest.approx((mean - 1) / 7)
    assert data["acceptance"]["cuda_graph_share"] == 1.0
    assert {"decode lines", "/server_info", "/metrics"} <= answers(data).keys()
    return data


def answers(data: dict[str, Any]) -> dict[str, float]:
    """The accept length by source."""
    (asked,) = (question for question in data["sources"] if question["name"] == "accept_length")
    return {figure["source"]: figure["value"] for figure in asked["figures"]}
