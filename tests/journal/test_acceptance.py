from __future__ import annotations

import json
from pathlib import Path

import pytest

from opsctl.journal import Acceptance, clean
from opsctl.sglang import DecodeBatch, parse

LOG = Path(__file__).parent.parent / "sglang" / "data" / "healthy-0.5.12.post1-dflash-cpu.log"


def line(length: float | None, rank: str = "", graph: bool | None = True) -> DecodeBatch:
    return DecodeBatch(
        rank=rank, running=1, accept_len=length, cuda_graph=graph, gen_throughput=10.0
    )


def test_figures() -> None:
    found = Acceptance.from_lines([line(float(n), graph=n > 2) for n in range(1, 12)])
    assert found.count == 11
    assert found.accept_len is not None
    assert found.accept_len.mean == found.accept_len.p50 == 6.0
    assert (found.accept_len.p10, found.accept_len.p90) == (2.0, 10.0)
    assert (found.accept_len.min, found.accept_len.max) == (1.0, 11.0)
    assert found.cuda_graph_share == pytest.approx(9 / 11)
    assert found.gen_throughput == 10.0
    json.dumps(found.to_json())


def test_nothing_to_say() -> None:
    assert Acceptance.from_lines([]) == Acceptance(count=0)
    bare = Acceptance.from_lines([line(None, graph=None)])
    assert (bare.count, bare.accept_len, bare.cuda_graph_share) == (1, None, None)
    one = Acceptance.from_lines([line(2.0)]).accept_len
    assert one is not None
    assert one.p10 == one.p90 == 2.0


def test_ranks_that_repeat_a_batch_count_once() -> None:
    repeated = [line(2.0, "TP0"), line(2.0, "TP1"), line(4.0, "TP0"), line(4.0, "TP1")]
    assert Acceptance.from_lines(repeated).count == 2
    apart = [line(2.0, "DP0 TP0"), line(4.0, "DP1 TP1")]
    assert Acceptance.from_lines(apart).count == 2


def test_a_real_log() -> None:
    parsed = (parse(clean(text)) for text in LOG.read_bytes().decode().split("\n"))
    found = Acceptance.from_lines(line for line in parsed if isinstance(line, DecodeBatch))
    assert found.count > 50
    assert found.accept_len is not None
    assert 1.0 <= found.accept_len.p10 <= found.accept_len.mean <= found.accept_len.max == 8.0
    assert found.cuda_graph_share == 0.0
