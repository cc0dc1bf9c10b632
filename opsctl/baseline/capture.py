"""Asking a server for what later answers are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from opsctl.baseline.model import Answer
from opsctl.baseline.prompts import Prompt
from opsctl.sglang import Completions, GenerateAnswer, Generation, ServerError

# Of each output token. The runner-up decides nearly all; SGLang's cost grows with it.
TOP: Final = 5


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
        ServerError: one was not answered; also if the last repeat of the first prompt's answer
            differs (cause "malformed"), for then the server is no reference.
    """
    answers: list[Answer] = []
    for prompt in prompts:
        answer = await _ask(client, prompt, timeout, logprobs=logprobs)
        answers.append(Answer.of(prompt.id, prompt.sha256, answer))
        told(prompt, answers[-1])
    again = await _ask(client, prompts[0], timeout, logprobs=logprobs)
    if again.output_ids != answers[0].output_ids:
        raise ServerError(
            f"{prompts[0].id}: asked twice, this server gave two answers: it is no reference",
            cause="malformed",
        )
    return answers


async def _ask(
    client: Completions, prompt: Prompt, timeout: float, *, logprobs: bool
) -> GenerateAnswer:
    top = TOP if logprobs else 0
    return await client.generate(Generation(prompt.text, prompt.tokens, top_logprobs=top), timeout)
