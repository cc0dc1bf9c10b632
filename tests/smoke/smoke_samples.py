"""Answers, stages and baselines of the further levels, made short."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from opsctl.baseline import Answer, Baseline, Identity, Prompt
from opsctl.sglang import GenerateAnswer, Generation, ServerError, SpecCounters
from opsctl.smoke import Ran
from opsctl.smoke.stages import Stage
from opsctl.traffic import Job, Sample

RIGHT = tuple(range(100, 140))
# Tokens 1 and 2 are nearly as likely as the right one, token 3 is far from it.
NEAR, FAR = 1, 3


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def answer(
    ids: Sequence[int] = RIGHT,
    *,
    steps: int | None = 10,
    accept_len: float | None = None,
    **changes: Any,
) -> GenerateAnswer:
    """A sound one; `steps` verify steps made it."""
    length = len(ids) / steps if accept_len is None and steps else accept_len
    given: dict[str, Any] = {
        "text": " ".join(map(str, ids)),
        "finish_reason": "length",
        "completion_tokens": len(ids),
        "prompt_tokens": 9,
        "latency_s": 0.5,
        "meta": SpecCounters(verify_steps=steps, accept_len=length),
        "output_ids": tuple(ids),
    }
    return GenerateAnswer(**(given | changes))


def job(prompt: str = "first", tokens: int = len(RIGHT), **changes: Any) -> Job:
    return Job(prompt, sha(prompt), Generation(prompt, tokens, **changes))


def sample(outcome: GenerateAnswer | ServerError, of: Job | None = None) -> Sample:
    return Sample(of or job(), 0.0, 1.0, outcome)


def lost(cause: Any = "reset", status: int | None = None) -> ServerError:
    return ServerError("POST /generate: it broke", cause=cause, status=status)


def ran(name: str, *outcomes: GenerateAnswer | ServerError | Sample, at_once: int = 0) -> Ran:
    """A stage with these outcomes, all at once unless it says otherwise."""
    samples = tuple(each if isinstance(each, Sample) else sample(each) for each in outcomes)
    jobs = tuple(each.job for each in samples)
    return Ran(Stage(name, "for a test", jobs, at_once or len(samples)), samples)


def baseline(*prompts: str, ids: Sequence[int] = RIGHT, **changes: Any) -> Baseline:
    """A plain float16 one in which each place has a near tie and a token far away."""
    top = tuple(((token, -0.1), (NEAR, -0.11), (FAR, -5.0)) for token in ids)
    given: dict[str, Any] = {
        "prompt_tokens": 9,
        "output_ids": tuple(ids),
        "top": top,
        "text": " ".join(map(str, ids)),
        "finish_reason": "length",
    } | changes
    return Baseline(
        created=0.0,
        host="host",
        service="service",
        reference="plain",
        identity=Identity(
            served_name="tiny", model_path="/m", files={"config.json": "a"}, precision="float16"
        ),
        answers=tuple(
            Answer(prompt=prompt, sha256=sha(prompt), **given) for prompt in prompts or ("first",)
        ),
    )


def prompt(name: str = "first", **changes: Any) -> Prompt:
    given: dict[str, Any] = {"id": name, "kind": "code", "text": name, "tokens": len(RIGHT)}
    return Prompt(**(given | changes))


def changed(at: int, to: int) -> tuple[int, ...]:
    """The right answer with another token at one place, and another text from there."""
    return (*RIGHT[:at], to, *range(900, 900 + len(RIGHT) - at - 1))
