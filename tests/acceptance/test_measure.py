"""What a span's lines come to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from acceptance_tools import decode, measured, tree

from opsctl.acceptance import Measured, Sample, samples_of
from opsctl.journal import Entry, clean

LOG = Path(__file__).parent.parent / "sglang" / "data" / "healthy-0.5.12.post1-dflash-cpu.log"


def test_a_line_weighs_as_many_as_it_has_requests() -> None:
    """40 steps of one request at 8.0 and of three at 2.0 are (40*8 + 120*2) / 160 = 3.5."""
    found = measured(decode(8.0, 1), decode(2.0, 3))
    assert found.acceptance.accept_len is not None
    assert found.acceptance.accept_len.mean == 3.5
    assert found.acceptance.accept_len.p50 == 5.0  # of lines
    assert found.steps == 80
    assert (found.running, found.queue) == (3, 2)


def test_a_line_weighs_as_many_as_it_covers_steps() -> None:
    """Two starts with other --decode-log-interval: 1 * 8.0 and 3 * 2.0 over 4."""
    found = Measured.of([Sample(1.0, "a", decode(8.0), 1), Sample(2.0, "b", decode(2.0), 3)])
    assert found.acceptance.accept_len is not None
    assert found.acceptance.accept_len.mean == 3.5
    assert found.steps == 4


def test_ranks_that_repeat_a_batch_count_once_in_each_start() -> None:
    repeated = [decode(2.0, rank=rank) for rank in ("TP0", "TP1")] * 2
    assert measured(*repeated).acceptance.count == 2
    # A start with another tensor-parallel size has other ranks.
    two = [Sample(1.0, "a", decode(2.0)), Sample(2.0, "b", decode(4.0, rank="TP0"))]
    found = Measured.of(two)
    assert (found.acceptance.count, found.starts) == (2, 2)


def test_data_parallel_ranks_count_each() -> None:
    found = measured(
        decode(2.0, 2, rank="DP0 TP0"), decode(4.0, 1, rank="DP1 TP1"), decode(2.0, rank="DP0 TP1")
    )
    assert (found.acceptance.count, found.ranks) == (2, 2)
    assert (found.running, found.queue) == (3, 1)


def test_by_batch_size() -> None:
    found = measured(decode(8.0, 1), decode(4.0, 2), decode(2.0, 2), decode(None, 2))
    assert list(found.batch_sizes) == [1, 2]
    two = found.batch_sizes[2]
    assert two.accept_len is not None
    assert (two.lines, two.accept_len.mean, two.gen_throughput) == (3, 3.0, 20.0)


def test_ddtree_lines_are_counts_and_not_samples() -> None:
    found = measured(tree(8.0, 10), tree(2.0, 30), tree(2.0, 30, rank="TP1"))
    assert found.tree is not None
    assert (found.tree.lines, found.tree.steps, found.tree.verifies) == (2, 80, 40)
    assert found.tree.accept_len == pytest.approx((8.0 * 10 + 2.0 * 30) / 40)
    assert found.acceptance.count == 0
    assert measured(decode(2.0)).tree is None


@pytest.mark.parametrize(
    ("length", "drafts", "rate"), [(1.0, 8, 0.0), (8.0, 8, 1.0), (4.5, 8, 0.5), (4.5, None, None)]
)
def test_draft_acceptance(length: float, drafts: int | None, rate: float | None) -> None:
    assert measured(decode(length), draft_tokens=drafts).draft_acceptance == rate


def test_nothing_is_not_zero() -> None:
    nothing = measured()
    assert nothing.acceptance.count == 0
    found = nothing.to_json()
    empty = ("draft_acceptance", "first", "last", "gen_throughput", "running", "queue", "tree")
    assert all(found[name] is None for name in empty)
    json.dumps(found)


def test_a_real_servers_log() -> None:
    lines = clean(LOG.read_bytes().decode()).split("\n")
    entries = [Entry(float(place), line, invocation="i") for place, line in enumerate(lines)]
    found = Measured.of(samples_of(entries, lambda start: 1), draft_tokens=8)
    assert found.acceptance.count == 65
    length = found.acceptance.accept_len
    assert length is not None
    assert length.min == 1.0
    assert 1.0 < length.mean < length.max <= 8.0
    assert found.acceptance.cuda_graph_share == 0.0
    assert found.steps == 65
    assert len(found.history) == 65
    assert list(found.batch_sizes) == [1]
