"""Past a near tie, where an answer goes its own way: the rest of the reference is asked for anew.

In bf16 most answers leave the baseline at a near tie within some dozen tokens. What comes after
would never be judged: so the prompt with the reference up to and with that token is asked again,
as often as need be. The prefix cache holds nearly all of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from opsctl.baseline import Baseline
from opsctl.sglang import Completions, Generation, ServerError
from opsctl.smoke.lossless import judged
from opsctl.smoke.stages import ALONE, DEEP, RESUMED, Ran, Stage
from opsctl.traffic import Job, Sample, together

_MOST: Final = 6  # times of one answer
_LEAST: Final = 4  # tokens that are worth another request


async def resume(
    client: Completions, ran: Sequence[Ran], baseline: Baseline, timeout: float
) -> Ran | None:
    """The rest of each answer of the first stage, and of the deep level's own, that left the
    baseline at a near tie, one at a time; None where none did. `timeout` is for each request, in
    seconds."""
    found: list[Sample] = []
    for stage in ran:
        if stage.stage.name == ALONE or stage.stage.name.startswith(f"{DEEP}-"):
            for sample in stage.samples:
                found += await _rest(client, sample, baseline, timeout)
    if not found:
        return None
    jobs = tuple(sample.job for sample in found)
    return Ran(Stage(RESUMED, "after near ties", jobs), tuple(found))


async def _rest(
    client: Completions, sample: Sample, baseline: Baseline, timeout: float
) -> list[Sample]:
    found: list[Sample] = []
    if _next(sample, baseline, ()) is None:
        return found
    text = sample.job.request.prompt
    assert isinstance(text, str)
    with contextlib.suppress(ServerError):  # a server without it: what was asked must do
        prompt = await client.tokenize(text, timeout)
        if sample.answer is None or sample.answer.prompt_tokens != len(prompt):
            return found  # another BOS than /generate puts before it: another prompt
        while len(found) < _MOST and (job := _next(sample, baseline, prompt)) is not None:
            (sample,) = await together(client, [job], 1, timeout)
            found.append(sample)
    return found


def _next(sample: Sample, baseline: Baseline, prompt: tuple[int, ...]) -> Job | None:
    """What to ask after `sample`, if it left the baseline at a near tie before its end."""
    job, found = sample.job, judged(sample, baseline)
    if found is None or found.outcome != "near_tie" or found.index is None:
        return None
    asked = job.given + job.request.max_new_tokens
    given = baseline.begun(job.sha256, found.index + 1)
    whole = len(baseline.begun(job.sha256, asked))  # a reference may have stopped before
    if whole - len(given) < _LEAST:
        return None
    request = Generation((*prompt, *given), asked - len(given))
    return Job(job.prompt, job.sha256, request, len(given))
