"""The requests of `--standard` and `--deep`, in stages, each with so many at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

import anyio

from opsctl.baseline import Prompt
from opsctl.sglang import Completions, GenerateAnswer, Generation
from opsctl.smoke.server import Rung, ServerFacts, ladder
from opsctl.traffic import Job, Sample, together

Level = Literal["quick", "standard", "deep"]
LEVELS: Final[tuple[Level, ...]] = get_args(Level)  # each asks more than the one before

# Tokens of the requests of a rung: several verify steps, and answers that end one by one, the last
# row's last, so that it lives on in smaller batches: see `_padded`.
_RUNG_TOKENS: Final = (22, 28, 34, 40)
_BESIDE_TOKENS: Final = 40
_HANG_UP_AFTER: Final = 4
# Tokens of the requests that end at once, so that the others' batch is padded.
_SPARE_TOKENS: Final = 12
# Requests one after the other in each place of a padded batch, and how often it begins.
_HELD_TURNS: Final = 2
_PADDED_TIMES: Final = 2
# For the one token that tells a lost request from a server that answers nobody, in seconds.
_PULSE_TIMEOUT: Final = 10.0
# A prompt near the context limit takes a prefill of all of it: in the standard level of short
# contexts alone.
_SHORT_CONTEXT: Final = 16_384
# Left of the context for the answer: less than a block of drafts or a tree reaches.
_ROOM: Final = 8
ALONE: Final = "alone"
DEEP: Final = "deep"  # what the names of the stages of the deep level's own prompts begin with
ONE: Final = "rung-1"  # the last rung: the requests of the others, one at a time
RESUMED: Final = "resumed"  # see `resume`
CONTINUED: Final = "continued"  # the name of the stage whose prompts have answers behind them
PULSE: Final = "pulse"  # the name of the stage that asks whether anybody is answered
# Prompts a stage: whoever waits hears of each, and a dead server is not asked for all of them.
_DEEP_AT_A_TIME: Final = 10
_FILLER: Final = 100  # a token id that any vocabulary has


@dataclass(frozen=True, slots=True)
class Limits:
    """What a level may cost."""

    at_once: int  # the widest rung
    every_prompt: bool  # at each rung, not the quick ones alone


LIMITS: Final = {"standard": Limits(64, False), "deep": Limits(256, True)}


@dataclass(frozen=True, slots=True)
class Stage:
    """`name` is stable, for scripts; `why` is for a person."""

    name: str
    why: str
    jobs: tuple[Job, ...]
    at_once: int = 1
    spare: int = 0  # of the jobs, the first, asked beside the others: see `_padded`


@dataclass(frozen=True, slots=True)
class Ran:
    """A stage and what came of it, in the order of its jobs."""

    stage: Stage
    samples: tuple[Sample, ...]


def stages(
    prompts: Sequence[Prompt], facts: ServerFacts, level: Level, deep: Sequence[Prompt] = ()
) -> list[Stage]:
    """In the order in which they are asked: the first prompt first and, as the canary, last. Where
    no prompt fits the server only what needs none, which proves nothing. `deep` are asked beside
    them, one at a time as the baseline's capture does: in a batch a fault would be the batch's.

    Which requests can be compared with which is told by their prompts' hashes.
    """
    limit = _at_limit(facts, level)
    if not prompts:
        return limit
    limits = LIMITS[level]
    first = prompts[0]
    quick = [prompt for prompt in prompts if limits.every_prompt or prompt.quick] or [first]
    found = [Stage(ALONE, "one at a time", tuple(_job(prompt) for prompt in prompts))]
    for rung in ladder(facts, limits.at_once):
        if rung.spare:
            found += _padded(rung, quick)
            continue
        widest = limits.every_prompt or rung.at_once == 1
        count = max(rung.at_once, len(quick)) if widest else rung.at_once
        chosen = itertools.islice(itertools.cycle(quick), count)
        lengths = itertools.cycle(_RUNG_TOKENS)
        jobs = tuple(_job(*each) for each in zip(chosen, lengths, strict=False))
        found.append(Stage(f"rung-{rung.at_once}", rung.why, jobs, rung.at_once))
    found.append(Stage(CONTINUED, "their own answers continued", ()))  # see `continued`
    found.append(Stage("streamed", "as a stream", (_job(first, stream=True),)))
    gone = _job(first, first.tokens * 4, hang_up_after=_HANG_UP_AFTER)
    beside = tuple(_job(prompt, _BESIDE_TOKENS) for prompt in quick[:2])
    found.append(
        Stage("hang-up", "a client goes away in mid-stream", (gone, *beside), 1 + len(beside))
    )
    found += _deep(deep)
    return [*found, *limit, Stage("canary", "the first prompt again", (_job(first),))]


def _deep(prompts: Sequence[Prompt]) -> Iterator[Stage]:
    for number, start in enumerate(range(0, len(prompts), _DEEP_AT_A_TIME), 1):
        jobs = tuple(_job(prompt) for prompt in prompts[start : start + _DEEP_AT_A_TIME])
        yield Stage(f"{DEEP}-{number}", "answers that hardly repeat themselves", jobs)


def _padded(rung: Rung, quick: Sequence[Prompt]) -> Iterator[Stage]:
    """As many as the graph holds, of which the first end soon: the others move up, the rows that
    they had last are padding from then on, and others follow those that end. Some times, with other
    prompts in these rows.

    If a spare row keeps the lengths and KV slots of its last replay, they are those of a request
    that still runs, under a mask laid out for others: each step writes into that request's own
    tokens. That is a token or two, which an answer may withstand. The row's other slots are free,
    and another's once the pool has given away all that were free before: in a small pool while the
    batch is held. Either way no step of another size sets the row right before it shows.
    """
    held = rung.at_once * _HELD_TURNS
    for turn in range(max(_PADDED_TIMES, math.ceil(len(quick) / held))):
        chosen = itertools.islice(
            itertools.cycle(quick), turn * held, (turn + 1) * held + rung.spare
        )
        jobs = tuple(
            _job(prompt, _SPARE_TOKENS if at < rung.spare else None)
            for at, prompt in enumerate(chosen)
        )
        yield Stage(f"padded-{rung.at_once}-{turn + 1}", rung.why, jobs, rung.at_once, rung.spare)


def _at_limit(facts: ServerFacts, level: Level) -> list[Stage]:
    """A prompt that all but fills the context; none where that is long and the level is not."""
    if facts.context is None or (level != "deep" and facts.context > _SHORT_CONTEXT):
        return []
    size = max(1, min(facts.context, facts.capacity or facts.context) - _ROOM)
    request = Generation((_FILLER,) * size, _ROOM, ignore_eos=True)
    return [Stage("limit", "at the context limit", (Job("", "", request),))]


async def run_stages(
    client: Completions,
    planned: Sequence[Stage],
    timeout: float,
    told: Callable[[Ran], bool] = lambda _: True,
) -> list[Ran]:
    """Each stage once the one before is over; `told` hears of each and says whether to go on: a
    dead server need not be asked twice. `timeout` is for each request, in seconds.

    Where requests were never answered, the last stage is a `PULSE`: one token, for whoever wants
    to know whether the server answers anybody still.
    """
    found: list[Ran] = []
    for plan in planned:
        stage = replace(plan, jobs=continued(found)) if plan.name == CONTINUED else plan
        if not stage.jobs:
            continue
        found.append(await _run(client, stage, timeout))
        if not told(found[-1]):
            if any(s.error and s.error.cause == "timeout" for s in found[-1].samples):
                request = Generation(stage.jobs[0].request.prompt, 1)
                pulse = Stage(PULSE, "whether it answers at all", (Job("", "", request),))
                again = await together(client, pulse.jobs, 1, min(timeout, _PULSE_TIMEOUT))
                found.append(Ran(pulse, tuple(again)))
            break
    return found


async def _run(client: Completions, stage: Stage, timeout: float) -> Ran:
    """The spare ones first, and the others beside them."""
    found: dict[int, list[Sample]] = {}

    async def ask(part: int, jobs: Sequence[Job], at_once: int) -> None:
        found[part] = await together(client, jobs, at_once, timeout)

    async with anyio.create_task_group() as group:
        if stage.spare:
            group.start_soon(ask, 0, stage.jobs[: stage.spare], stage.spare)
        group.start_soon(ask, 1, stage.jobs[stage.spare :], stage.at_once)
    return Ran(stage, (*found.get(0, ()), *found[1]))


def continued(ran: Sequence[Ran]) -> tuple[Job, ...]:
    """Prompts with the beginning of their answer behind them, as the next turn of a chat has it;
    what is asked for is the rest of the answer alone. So the KV of generated tokens is taken from
    the prefix cache, which no prompt of its own does."""
    one, whole = stage_of(ran, ONE), answers_alone(ran)
    jobs = []
    for sample in one.samples if one else ():
        first, all_of_it = sample.answer, whole.get(sample.job.sha256)
        if first is None or all_of_it is None:
            continue
        begun = len(first.output_ids)
        rest = len(all_of_it.output_ids) - begun
        if rest > 0 and all_of_it.output_ids[:begun] == first.output_ids:
            prompt = sample.job.request.prompt
            assert isinstance(prompt, str)
            request = Generation(prompt + first.text, rest)
            jobs.append(Job(sample.job.prompt, sample.job.sha256, request))
    return tuple(jobs)


def stage_of(ran: Iterable[Ran], name: str) -> Ran | None:
    """The one of that name, if it was reached."""
    return next((stage for stage in ran if stage.stage.name == name), None)


def answers_alone(ran: Sequence[Ran]) -> dict[str, GenerateAnswer]:
    """Of the stage "alone", by the prompt's hash."""
    alone = stage_of(ran, ALONE)
    samples = alone.samples if alone else ()
    return {sample.job.sha256: sample.answer for sample in samples if sample.answer is not None}


def _job(
    prompt: Prompt,
    tokens: int | None = None,
    *,
    stream: bool = False,
    hang_up_after: int | None = None,
) -> Job:
    wanted = prompt.tokens if tokens is None else tokens
    if hang_up_after is None:
        wanted = min(wanted, prompt.tokens)  # the baseline has no more
    request = Generation(prompt.text, wanted, stream=stream, hang_up_after=hang_up_after)
    return Job(prompt.id, prompt.sha256, request)
