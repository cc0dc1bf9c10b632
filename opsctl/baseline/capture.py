"""Asking a server for what later answers are compared with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from opsctl.baseline.model import Answer
from opsctl.baseline.prompts import Prompt
from opsctl.sglang import Completions, GenerateAnswer, Generation, ServerError

# Of each output token. The runner-up decides nearly all; SGLang's cost grows with it.
TOP: Final = 5
_ENDS: Final = ("length", "stop")


async def capture(
    client: Completions,
    prompts: Sequence[Prompt],
    timeout: float,
    told: Callable[[Prompt, Answer], None],
    *,
    logprobs: bool,
) -> list[Answer]:
    """One prompt at a time, so that no batch's shape is in the answers; `timeout` is for each,
    in seconds. `told` hears of each as it comes.

    Raises:
        ServerError: one was not answered; also (cause "malformed") if an answer is none to compare
            with, or the last repeat of the first prompt's answer differs: the server is no
            reference then.
    """
    answers: list[Answer] = []
    for prompt in prompts:
        answer = await _ask(client, prompt, timeout, logprobs=logprobs)
        fault = _fault(answer)
        if fault:
            raise ServerError(f"{prompt.id}: {fault}", cause="malformed")
        answers.append(Answer.of(prompt.id, prompt.sha256, answer))
        told(prompt, answers[-1])
    again = await _ask(client, prompts[0], timeout, logprobs=logprobs)
    if again.output_ids != answers[0].output_ids:
        raise ServerError(
            f"{prompts[0].id}: asked twice, this server gave two answers: it is no reference",
            cause="malformed",
        )
    return answers


def _fault(answer: GenerateAnswer) -> str:
    """Why nothing can be compared with it; empty if it can."""
    count = len(answer.output_ids)
    if not count:
        return "an answer without tokens"
    if answer.completion_tokens not in {None, count}:
        return f"{count} tokens, and the server counted {answer.completion_tokens}"
    if answer.finish_reason not in _ENDS:
        return f"it ended by {answer.finish_reason or 'nothing'}, not {' or '.join(_ENDS)}"
    if not all(math.isfinite(logprob) for place in answer.top for _, logprob in place):
        return "a logprob that is no number: the model computes NaN or infinity"
    return ""


async def _ask(
    client: Completions, prompt: Prompt, timeout: float, *, logprobs: bool
) -> GenerateAnswer:
    top = TOP if logprobs else 0
    return await client.generate(Generation(prompt.text, prompt.tokens, top_logprobs=top), timeout)
