"""Past a near tie the reference is taken up again, until its end."""

from __future__ import annotations

from typing import cast

import anyio
import pytest

from opsctl.baseline import Answer, Baseline, Identity
from opsctl.sglang import (
    Completions,
    GenerateAnswer,
    Generation,
    ServerError,
    SpecCounters,
)
from opsctl.smoke import Ran, resume
from opsctl.smoke.lossless import compared
from opsctl.smoke.stages import ALONE, DEEP, RESUMED, Stage
from opsctl.traffic import Job, Sample

REFERENCE = tuple(range(100, 130))
PROMPT = (7, 8, 9)


def baseline(finish: str = "length") -> Baseline:
    """Token t has t + 500 beside it, nearly as likely, and t + 900, which is not."""
    top = tuple(((token, -0.7), (token + 500, -0.8), (token + 900, -6.0)) for token in REFERENCE)
    answer = Answer(
        prompt="p", sha256="sha", output_ids=REFERENCE, top=top, text="t", finish_reason=finish
    )
    identity = Identity(served_name="t", model_path="/m", files={}, precision="bfloat16")
    return Baseline(
        created=0, host="h", service="s", reference="plain", identity=identity, answers=(answer,)
    )


class Server:
    """Says the reference, but for what `changes` say at some places, once each."""

    def __init__(self, changes: dict[int, int]) -> None:
        self.changes = dict(changes)
        self.asked: list[tuple[int, ...]] = []

    async def tokenize(self, text: str, timeout: float) -> tuple[int, ...]:
        return PROMPT

    async def generate(self, request: Generation, timeout: float) -> GenerateAnswer:
        prompt = request.prompt
        assert isinstance(prompt, tuple)
        self.asked.append(prompt)
        return self.answer(len(prompt) - len(PROMPT), request.max_new_tokens)

    def answer(self, given: int, count: int) -> GenerateAnswer:
        ids = []
        for place in range(given, min(given + count, len(REFERENCE))):
            change = self.changes.pop(place, 0)
            ids.append(REFERENCE[place] + change)
            if change:  # its own way from here
                ids += [1] * (given + count - place - 1)
                break
        return GenerateAnswer("t", "length", len(ids), 3, 0.1, SpecCounters(), tuple(ids))


def run(
    server: Server, asked: int = len(REFERENCE), finish: str = "length"
) -> tuple[Ran, Ran | None]:
    job = Job("p", "sha", Generation("text", asked))
    sample = Sample(job, 0.0, 1.0, server.answer(0, len(REFERENCE)))
    alone = Ran(Stage(ALONE, "", (job,)), (sample,))
    return alone, anyio.run(resume, cast(Completions, server), [alone], baseline(finish), 5.0)


def outcomes(alone: Ran, rest: Ran) -> list[tuple[str, int | None]]:
    found = [each.divergence for each in compared([alone, rest], baseline())]
    return [(each.outcome, each.index) for each in found]


def test_an_equal_answer_is_asked_for_once() -> None:
    server = Server({})
    assert run(server)[1] is None
    assert server.asked == []


def test_it_goes_on_from_each_tie() -> None:
    server = Server({4: 500, 11: 500})
    alone, rest = run(server)
    assert rest is not None
    assert rest.stage.name == RESUMED
    assert server.asked == [(*PROMPT, *REFERENCE[:5]), (*PROMPT, *REFERENCE[:12])]
    assert outcomes(alone, rest) == [("near_tie", 4), ("near_tie", 11), ("equal", None)]


def test_what_is_wrong_after_a_tie_is_found_at_its_place() -> None:
    alone, rest = run(Server({4: 500, 11: 900}))
    assert rest is not None
    assert outcomes(alone, rest) == [("near_tie", 4), ("wrong", 11)]


def test_what_is_wrong_at_once_is_not_resumed() -> None:
    assert run(Server({4: 900}))[1] is None


def test_a_tie_at_the_end_is_not_worth_a_request() -> None:
    assert run(Server({len(REFERENCE) - 2: 500}))[1] is None


def test_after_a_stop_there_is_nothing_to_go_on_with() -> None:
    server = Server({len(REFERENCE) - 1: 500})
    assert run(server, asked=2 * len(REFERENCE), finish="stop")[1] is None


def test_a_prompt_of_other_tokens_is_another_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """/tokenize may put a beginning-of-sequence token before it that /generate does not."""
    server = Server({4: 500})
    monkeypatch.setattr(f"{__name__}.PROMPT", (1, *PROMPT))
    assert run(server)[1] is None
    assert server.asked == []


def test_the_deep_levels_answers_are_resumed_too() -> None:
    alone, _ = run(Server({}))
    server = Server({4: 500})
    (job,) = alone.stage.jobs
    sample = Sample(job, 0.0, 1.0, server.answer(0, len(REFERENCE)))
    deep = Ran(Stage(f"{DEEP}-1", "", (job,)), (sample,))
    rest = anyio.run(resume, cast(Completions, server), [alone, deep], baseline(), 5.0)
    assert rest is not None
    assert [each.job.given for each in rest.samples] == [5]


def test_it_ends_with_a_server_that_always_ties() -> None:
    server = Server(dict.fromkeys(range(30), 500))
    _, rest = run(server)
    assert rest is not None
    assert 1 < len(rest.samples) <= 6


@pytest.mark.parametrize("method", ["tokenize", "generate"])
def test_a_server_that_does_not_answer(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise ServerError("gone", cause="reset")

    server = Server({4: 500})
    monkeypatch.setattr(server, method, fail)
    _, rest = run(server)
    assert (rest is None) is (method == "tokenize")
    assert rest is None or rest.samples[0].error is not None
