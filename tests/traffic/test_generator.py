"""So many at once and never more; a soak that a seed repeats."""

from __future__ import annotations

import time
from typing import cast

import anyio
import pytest

from opsctl.sglang import Completions, GenerateAnswer, Generation, ServerError, SpecCounters
from opsctl.traffic import Job, Sample, generator, soak, together

JOBS = [Job(f"p{number}", f"sha{number}", Generation(f"{number}", 4)) for number in range(12)]


class Server:
    """Answers after a moment; counts how many it has under way."""

    def __init__(self, fails: str = "") -> None:
        self.fails, self.now, self.most = fails, 0, 0
        self.asked: list[str] = []

    async def generate(self, request: Generation, timeout: float) -> GenerateAnswer:
        prompt = str(request.prompt)
        self.asked.append(prompt)
        self.now += 1
        self.most = max(self.most, self.now)
        await anyio.sleep(0.002 * (int(prompt) % 3 + 1))
        self.now -= 1
        if prompt == self.fails:
            raise ServerError("gone", cause="reset")
        return GenerateAnswer(prompt, "length", 4, 1, 0.01, SpecCounters(), (1,))


@pytest.mark.parametrize("at_once", [1, 3, 12])
def test_so_many_at_once(at_once: int) -> None:
    server = Server(fails="5")
    found = anyio.run(together, cast(Completions, server), JOBS, at_once, 5.0)
    assert server.most == at_once
    assert [sample.job for sample in found] == JOBS, "in the order of the jobs"
    assert [sample.job.prompt for sample in found if sample.error] == ["p5"]
    assert all(sample.began <= sample.ended for sample in found)


def soaked(seed: int) -> tuple[Server, list[Sample]]:
    server = Server()

    async def run() -> list[Sample]:
        return await soak(cast(Completions, server), JOBS, 1, 0.15, 5.0, seed=seed)

    return server, anyio.run(run)


def test_a_soak_asks_the_same_for_the_same_seed() -> None:
    (first, samples), (second, _), (other, _) = soaked(1), soaked(1), soaked(2)
    count = min(len(first.asked), len(second.asked), len(other.asked))
    assert count > 8
    assert first.asked[:count] == second.asked[:count] != other.asked[:count]
    assert len(samples) == len(first.asked), "the last one is waited for"


def test_a_soak_ends_once_nobody_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "_GIVE_UP", 0.1)
    server = Server(fails="3")

    async def run() -> list[Sample]:
        found = cast(Completions, server)
        return await soak(found, [JOBS[3]], 2, 60.0, 0.2, seed=1)

    began = time.monotonic()
    assert anyio.run(run)
    assert time.monotonic() - began < 5


def test_a_dead_server_is_not_asked_thousands_of_times() -> None:
    server = Server(fails="3")

    async def run() -> list[Sample]:
        return await soak(cast(Completions, server), [JOBS[3]], 2, 0.7, 5.0, seed=1)

    assert 2 <= len(anyio.run(run)) <= 6
