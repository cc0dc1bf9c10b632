"""Which answers are none to compare with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import anyio
import pytest

from opsctl.baseline import Answer, Prompt, capture
from opsctl.sglang import Completions, GenerateAnswer, Generation, ServerError, SpecCounters

GOOD = GenerateAnswer(
    text="x",
    finish_reason="stop",
    completion_tokens=2,
    prompt_tokens=5,
    latency_s=0.1,
    meta=SpecCounters(),
    output_ids=(1, 2),
    top=(((1, -0.1),), ((2, -0.2),)),
)
PROMPT = Prompt(id="first", kind="chat", text="Hello")


class Server:
    def __init__(self, *answers: GenerateAnswer) -> None:
        self.answers = list(answers)
        self.asked: list[Generation] = []

    async def generate(self, request: Generation, timeout: float) -> GenerateAnswer:
        self.asked.append(request)
        return self.answers.pop(0)


def asked(server: Server) -> list[Answer]:
    async def ask() -> list[Answer]:
        client = cast(Completions, server)
        return await capture(client, [PROMPT], 9.0, lambda *_: None, logprobs=True)

    return anyio.run(ask)


def test_a_prompt_is_asked_twice() -> None:
    server = Server(GOOD, GOOD)
    assert [answer.output_ids for answer in asked(server)] == [(1, 2)]
    assert [request.top_logprobs for request in server.asked] == [5, 5]
    with pytest.raises(ServerError, match="asked twice"):
        asked(Server(GOOD, replace(GOOD, output_ids=(1, 3))))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"output_ids": (), "completion_tokens": 0, "top": ()}, "without tokens"),
        ({"completion_tokens": 3}, "2 tokens, and the server counted 3"),
        ({"finish_reason": "abort"}, "it ended by abort"),
        ({"finish_reason": ""}, "it ended by nothing"),
        ({"top": (((1, -0.1),), ((2, float("nan")),))}, "no number"),
        ({"top": (((1, float("-inf")),), ((2, -0.2),))}, "no number"),
    ],
)
def test_what_is_no_answer(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ServerError, match=says) as caught:
        asked(Server(replace(GOOD, **changes)))
    assert caught.value.cause == "malformed"
    assert caught.value.message.startswith("first: ")
