"""What figures over many lines show, and what they do not."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from opsctl.journal.numbers import Numbers
from opsctl.sglang import DecodeBatch


def fed(
    lengths: Iterable[float],
    *,
    running: Iterable[int] = itertools.repeat(1),
    tokens: Iterable[int] = itertools.repeat(500),
    speed: Iterable[float] = itertools.repeat(100.0),
    drafted: int | None = 8,
    interval: int = 40,
    rank: str = "TP0",
) -> Numbers:
    numbers = Numbers(interval=interval, drafted=drafted)
    rows = zip(lengths, running, tokens, speed, strict=False)
    for line, (length, requests, held, rate) in enumerate(rows):
        numbers.decode(
            line,
            DecodeBatch(
                rank=rank,
                running=requests,
                tokens=held * requests,
                accept_len=length,
                gen_throughput=rate * requests,
            ),
        )
    return numbers


def kinds(numbers: Numbers) -> list[str]:
    return [verdict.kind for verdict in numbers.verdicts()]


def mixed(count: int) -> list[float]:
    return [1.0 + 7.0 * ((line * 37) % 101) / 101 for line in range(count)]


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([1.0] * 2, ["zero_acceptance"]),
        ([1.0], []),
        ([1.0] * 3 + [2.5], []),
        ([3.0] * 50 + [1.0] * 15, []),
        ([3.0] * 50 + [1.0] * 16, ["zero_acceptance"]),
        ([8.0] * 4, ["implausible_acceptance"]),
        ([8.0] * 3, []),
        ([8.0] * 100 + [7.0], []),
        ([5.0 - line / 600 for line in range(1600)], ["acceptance_decay"]),
        (mixed(2000), []),
    ],
    ids=lambda value: str(value)[:30],
)
def test_lengths(lengths: list[float], expected: list[str]) -> None:
    assert kinds(fed(lengths)) == expected


def test_short_intervals_need_more_lines() -> None:
    assert kinds(fed([1.0] * 63, interval=1)) == []
    assert kinds(fed([1.0] * 64, interval=1)) == ["zero_acceptance"]
    assert kinds(fed([8.0] * 127, interval=1)) == []


def test_the_maximum_is_the_servers_or_the_rate_of_one() -> None:
    assert kinds(fed([8.0] * 10, drafted=16)) == []
    assert kinds(fed([8.0] * 10, drafted=None)) == []  # the line's rate would tell


def test_one_request_against_two() -> None:
    running = [1] * 20 + [2] * 20
    assert kinds(fed([4.0] * 20 + [1.3] * 20, running=running)) == ["acceptance_collapse"]
    assert kinds(fed([4.0] * 20 + [3.0] * 20, running=running)) == []
    few = [1] * 20 + [2] * 4  # of so many lines, four are chance
    assert kinds(fed([4.0] * 20 + [1.3] * 4, running=few)) == []


def test_longer_sequences_lose_acceptance_without_a_fault() -> None:
    tokens = [1000] * 10 + [40000] * 10
    assert kinds(fed([4.0] * 10 + [2.0] * 10, tokens=tokens)) == ["acceptance_decay"]
    running = [1] * 10 + [2] * 10
    both = fed([4.0] * 10 + [1.3] * 10, running=running, tokens=tokens)
    assert kinds(both) == ["acceptance_decay"]


def test_a_request_that_became_slow() -> None:
    slow = [200.0 * 0.98**line for line in range(190)]
    assert kinds(fed(mixed(190), speed=slow)) == ["throughput_collapse"]
    assert kinds(fed(mixed(190), speed=[200.0] * 95 + [150.0] * 95)) == []


def test_ranks_that_repeat_a_batch_count_once() -> None:
    numbers = Numbers(drafted=8)
    for line in range(40):
        length = 1.0 if line % 2 else 4.0
        numbers.decode(line, DecodeBatch(rank=f"TP{line % 2}", running=1, accept_len=length))
    assert kinds(numbers) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("accept len 2.90 -> 2.80, same prompts", []),
        ("accept len 2.90 -> 1.83, same prompts", ["acceptance_decay"]),
        ("accept len 2.90 -> 1.00", ["zero_acceptance"]),
        ("avg accept_rate 0.00 accept_len 1.00", ["zero_acceptance"]),
        ("avg accept_rate 0.40 accept_len 3.00", []),
        ("accept len: 1.00, cuda graph: True, gen throughput (token/s): 3.0, #queue-req: 0", []),
        ("the prompt was accepted", []),
    ],
)
def test_other_lines(text: str, expected: list[str]) -> None:
    numbers = Numbers()
    numbers.text(0, text)
    assert kinds(numbers) == expected
