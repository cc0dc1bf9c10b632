"""Requests to the lab's server, with the counters that it gave for each."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from workbench import LAB, Bench, Outcome

from opsctl import lab
from opsctl.sglang import SglangClient, SpecCounters

PORT = 30001
PROMPTS = ("Write quicksort in Python with comments.", "def add(a, b):", "The quick brown fox")
# Decode lines print two digits and are one step each in the lab; a request that ends in mid-step
# is counted whole there. Three runs were 0.02 % apart; this leaves room.
TOLERANCE = 0.02


@dataclass(frozen=True)
class Sent:
    """What was asked, by the server's own counters of each request."""

    counters: tuple[SpecCounters, ...]

    @property
    def verifies(self) -> int:
        return sum(one.verify_steps or 0 for one in self.counters)

    @property
    def accept_len(self) -> float:
        """Accepted drafts and a bonus token each, over the verifies of these requests."""
        return 1 + sum(one.accepted or 0 for one in self.counters) / self.verifies


def send(requests: int, at_once: int) -> Sent:
    running = lab.status(LAB)
    assert running is not None

    def one(number: int) -> SpecCounters:
        with SglangClient(f"http://{running.address}:{PORT}") as client:
            return client.generate(PROMPTS[number % len(PROMPTS)], 96, timeout=60).meta

    with ThreadPoolExecutor(at_once) as pool:
        found = Sent(tuple(pool.map(one, range(requests))))
    assert found.verifies > requests
    time.sleep(0.5)  # the last step's line comes after its answer
    return found


def check_metrics(bench: Bench) -> dict[str, Any]:
    """`opsctl metrics` before and after some requests: it grew by what these counted. The data."""
    verifies, tokens = _counted(bench.opsctl("metrics"))
    sent = send(requests=6, at_once=3)
    after = bench.opsctl("metrics")
    assert after.exit_code == 0, after.said
    data: dict[str, Any] = after.report["data"]
    more_verifies, more_tokens = _counted(after)
    more_verifies, more_tokens = more_verifies - verifies, more_tokens - tokens
    assert more_verifies == pytest.approx(sent.verifies, rel=TOLERANCE)
    assert more_tokens / more_verifies == pytest.approx(sent.accept_len, rel=TOLERANCE)
    measured = data["measured"]
    assert len(measured["batch_sizes"]) > 1
    mean = data["acceptance"]["accept_len"]["mean"]
    assert measured["draft_acceptance"] == pytest.approx((mean - 1) / 7)
    assert data["acceptance"]["cuda_graph_share"] == 1.0
    assert {"decode lines", "/server_info", "/metrics"} <= answers(data).keys()
    return data


def _counted(outcome: Outcome) -> tuple[int, float]:
    """Verifies and the tokens that they yielded, of the present start."""
    data = outcome.report["data"]
    length, verifies = data["acceptance"]["accept_len"], data["measured"]["verifies"]
    return verifies, verifies * length["mean"] if length else 0.0


def answers(data: dict[str, Any]) -> dict[str, float]:
    """The accept length by source."""
    (asked,) = (question for question in data["sources"] if question["name"] == "accept_length")
    return {figure["source"]: figure["value"] for figure in asked["figures"]}
