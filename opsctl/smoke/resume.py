"""Past a near tie, where an answer goes its own way: the rest of the reference is asked for anew.

In bf16 most answers leave the baseline at a near tie within some dozen tokens. What comes after
would never be judged: so the prompt with the reference up to and with that token is asked again,
as often as need be. The prefix cache holds nearly all of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

import anyio

from opsctl.baseline import Answer, Baseline
from opsctl.sglang import Completions, Generation, ServerError
from opsctl.smoke.stages import Ran, Stage
from opsctl.traffic import Job, Sample, together

_MOST: Final = 6  # times of one answer
_LEAST: Final = 4  # tokens that are worth another request
_AT_ONCE: Final = 2


async def resume(
    client: Completions, ran: Sequence[Ran], baseline: Baseline, timeout: float
) -> Ran | None:
    """The rest of each answer of the first stage that left the baseline at a near tie; None
    where none did. `timeout` is for each request, in seconds."""
    alone = next((stage for stage in ran if stage.stage.name == "alone"), None)
    samples = alone.samples if alone else ()
    found: list[Sample] = []

    async def follow(sample: Sample) -> None:
        async with limiter:
            found.extend(await _rest(client, sample, baseline, timeout))

    limiter = anyio.CapacityLimiter(_AT_ONCE)
    async with anyio.create_task_group() as group:
        for sample in samples:
            if _tie(sample, baseline) is not None:
                group.start_soon(follow, sample)
    if not found:
        return None
    stage = Stage("resumed", "after near ties", tuple(each.job for each in found), _AT_ONCE)
    return Ran(stage, tuple(found))


async def _rest(
    client: Completions, sample: Sample, baseline: Baseline, timeout: float
) -> list[Sample]:
    known = baseline.answer(sample.job.sha256)
    assert known is not None
    text = sample.job.request.prompt
    assert isinstance(text, str)
    found: list[Sample] = []
    with contextlib.suppress(ServerError):  # a server without it: what was asked must do
        prompt = await client.tokenize(text, timeout)
        while len(found) < _MOST:
            job = _next(sample, known, baseline, prompt)
            if job is None:
                break
            (sample,) = await together(client, [job], 1, timeout)
            found.append(sample)
    return found


def _next(sample: Sample, known: Answer, baseline: Baseline, prompt: tuple[int, ...]) -> Job | None:
    index = _tie(sample, baseline)
    if index is None:
        return None
    given = index + 1
    left = sample.job.given + sample.job.request.max_new_tokens - given
    if left < _LEAST or given >= len(known.output_ids):
        return None
    request = Generation((*prompt, *known.output_ids[:given]), left)
    return Job(sample.job.prompt, sample.job.sha256, request, given)


def _tie(sample: Sample, baseline: Baseline) -> int | None:
    """Where it left the baseline at a near tie."""
    answer, job = sample.answer, sample.job
    if answer is None:
        return None
    asked = job.request.max_new_tokens
    found = baseline.judge(job.sha256, answer.output_ids, asked, job.given)
    return found.index if found is not None and found.outcome == "near_tie" else None
