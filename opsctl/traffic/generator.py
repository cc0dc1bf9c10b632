"""Jobs sent so many at once; what came of each, with its times."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from opsctl.sglang import Completions, GenerateAnswer, Generation, ServerError

# Beyond the bound of a request, seconds.
_GIVE_UP: Final = 10.0


@dataclass(frozen=True, slots=True)
class Job:
    """A request, and which prompt it is of: by its name and its text's hash. Of the prompt's known
    answer the first `given` tokens are part of the request already."""

    prompt: str
    sha256: str
    request: Generation
    given: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """What came of a job. `began` and `ended` are seconds since the run's beginning."""

    job: Job
    began: float
    ended: float
    outcome: GenerateAnswer | ServerError

    @property
    def answer(self) -> GenerateAnswer | None:
        return self.outcome if isinstance(self.outcome, GenerateAnswer) else None

    @property
    def error(self) -> ServerError | None:
        return self.outcome if isinstance(self.outcome, ServerError) else None


async def together(
    client: Completions, jobs: Sequence[Job], at_once: int, timeout: float
) -> list[Sample]:
    """All jobs, up to `at_once` under way at a time, in the order of `jobs`; `timeout` seconds
    for each. Never raises for a server's sake."""
    limiter, origin = anyio.CapacityLimiter(at_once), time.monotonic()
    found: dict[int, Sample] = {}

    async def one(index: int, job: Job) -> None:
        async with limiter:
            found[index] = await _sample(client, job, timeout, origin)

    async with anyio.create_task_group() as group:
        for index, job in enumerate(jobs):
            group.start_soon(one, index, job)
    return [found[index] for index in range(len(jobs))]


async def soak(
    client: Completions,
    jobs: Sequence[Job],
    at_once: int,
    seconds: float,
    timeout: float,
    *,
    seed: int,
    told: Callable[[Sample], None] = lambda _: None,
) -> list[Sample]:
    """`at_once` requests under way all the time, drawn from `jobs` by a generator seeded with
    `seed`, for `seconds`; the last ones are waited for. In the order in which they ended.

    Ends early once nobody was answered for `timeout` and a little more.
    """
    rng, origin = random.Random(seed), time.monotonic()  # noqa: S311 - to be repeatable
    found: list[Sample] = []
    answered = origin

    async def client_of_many() -> None:
        nonlocal answered
        while time.monotonic() < min(origin + seconds, answered + timeout + _GIVE_UP):
            sample = await _sample(client, rng.choice(jobs), timeout, origin)
            found.append(sample)
            told(sample)
            if sample.answer is not None:
                answered = time.monotonic()
            if sample.error is not None and sample.error.cause in {"refused", "reset"}:
                await anyio.sleep(0.5)  # a dead server answers thousands of times a second

    async with anyio.create_task_group() as group:
        for _ in range(at_once):
            group.start_soon(client_of_many)
    return found


async def _sample(client: Completions, job: Job, timeout: float, origin: float) -> Sample:
    began = time.monotonic() - origin
    outcome: GenerateAnswer | ServerError
    try:
        outcome = await client.generate(job.request, timeout)
    except ServerError as error:
        outcome = error
    return Sample(job, began, time.monotonic() - origin, outcome)
