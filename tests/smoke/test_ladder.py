"""How many at once, and which requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from smoke_samples import RIGHT, answer, job, lost, prompt, ran, sample

from opsctl.baseline.prompts import bundled
from opsctl.sglang import Completions, GenerateAnswer, Generation
from opsctl.sglang.faults import Cause
from opsctl.smoke import Level, Ran, ServerFacts, run_stages, stages
from opsctl.smoke.server import ladder, padded
from opsctl.smoke.stages import CONTINUED, continued

LAB = ServerFacts(algorithm="DDTREE", captured=(1, 2, 4), most_running=6, context=500)
sizes = st.lists(st.integers(1, 512), unique=True, max_size=12).map(sorted).map(tuple)


def at_once(facts: ServerFacts, most: int = 64) -> list[int]:
    return [rung.at_once for rung in ladder(facts, most)]


@pytest.mark.parametrize(
    ("captured", "running", "expected"),
    [
        ((1, 2, 4), 6, {2, 3, 4, 5}),
        ((1, 2, 4, 8, 16), 48, {2, 3, 9, 16, 17}),
        ((1, 2, 3, 4), 48, {2, 4, 5}),  # none lies between
        ((), 48, {2, 4}),  # no graphs
        ((1, 2, 4), 2, {2}),
        ((1, 2, 4), 1, set()),
        ((1, 2, 4, 512), 48, {2, 3, 4, 5}),
    ],
)
def test_rungs(captured: tuple[int, ...], running: int, expected: set[int]) -> None:
    found = at_once(ServerFacts(captured=captured, most_running=running))
    assert set(found) - {1} == expected
    assert found[-1] == 1


@settings(deadline=None)
@given(sizes, st.one_of(st.none(), st.integers(1, 300)), st.integers(1, 256))
def test_no_rung_is_wider_than_server_or_level(
    captured: tuple[int, ...], running: int | None, most: int
) -> None:
    found = at_once(ServerFacts(captured=captured, most_running=running), most)
    limit = min(most, running or most)
    assert all(1 <= size <= limit for size in found)
    assert found[-1] == 1


@settings(deadline=None)
@given(sizes)
def test_a_padded_size_is_asked_where_there_is_one(captured: tuple[int, ...]) -> None:
    found = at_once(ServerFacts(captured=captured, most_running=512), 512)
    between = [n for n in range(2, max(captured, default=0)) if n not in captured]
    inside = [n for n in between if n > min(captured)]
    assert bool(set(found) & set(inside)) == bool(inside)


@pytest.mark.parametrize("level", ["standard", "deep"])
def test_stages_of_the_bundled_prompts(level: Level) -> None:
    prompts = bundled().prompts
    planned = stages(prompts, LAB, level)
    names = [stage.name for stage in planned]
    assert names[0] == "alone"
    assert names[-1] == "canary"
    assert {"streamed", "hang-up", "limit"} <= set(names)
    assert planned[0].jobs[0].sha256 == planned[-1].jobs[0].sha256 == prompts[0].sha256
    known = {each.sha256: each.tokens for each in prompts}
    for stage in planned:
        assert len(stage.jobs) >= stage.at_once or stage.name == CONTINUED
        for each in stage.jobs:
            if stage.name != "limit" and not each.request.hang_up_after:
                assert each.request.max_new_tokens <= known[each.sha256]
    if level == "deep":
        rungs = [stage for stage in planned if stage.name.startswith("rung-")]
        assert all({job.sha256 for job in rung.jobs} == set(known) for rung in rungs)
        held = {job.sha256 for stage in planned if stage.spare for job in stage.jobs[stage.spare :]}
        assert held == set(known)


def test_answers_of_a_rung_end_one_by_one() -> None:
    planned = {stage.name: stage for stage in stages(bundled().prompts, LAB, "standard")}
    lengths = [job.request.max_new_tokens for job in planned["rung-4"].jobs]
    assert len(set(lengths)) == 4


@settings(deadline=None)
@given(st.lists(st.integers(1, 48), min_size=1, unique=True).map(sorted).map(tuple))
def test_whoever_is_in_the_last_row_lives_on_in_smaller_batches(captured: tuple[int, ...]) -> None:
    """A padded replay may repeat a wider batch's last rows, and must then hurt one that runs."""
    facts = ServerFacts(captured=captured, most_running=48)
    for stage in stages(bundled().prompts, facts, "standard"):
        lengths = [job.request.max_new_tokens for job in stage.jobs]
        if stage.name.startswith("rung-") and len(lengths) % 4 == 0:
            assert lengths[-1] == max(lengths)
        if stage.spare:
            assert padded(stage.at_once, captured)
            assert stage.at_once + stage.spare in captured
            assert len(lengths) > stage.at_once + stage.spare  # some follow
            assert max(lengths[: stage.spare]) < min(lengths[stage.spare :])


def test_padded_sizes_come_after_the_wider_with_other_prompts_each_turn() -> None:
    planned = stages(bundled().prompts, LAB, "standard")
    names = [stage.name for stage in planned]
    turns = [stage for stage in planned if stage.spare]
    assert names.index(turns[0].name) > names.index("rung-5")
    last = [stage.jobs[stage.spare + stage.at_once - 1].prompt for stage in turns]
    assert len(set(last)) == len(last) == 2


@given(sizes, st.integers(1, 600))
@settings(deadline=None)
def test_padded_is_below_the_largest_and_not_captured(captured: tuple[int, ...], size: int) -> None:
    wider = [each for each in captured if each >= size]
    assert padded(size, captured) == (bool(wider) and min(wider) > size)


def test_continued_prompts_hold_the_beginning_of_their_answer() -> None:
    begun = sample(answer(RIGHT[:10]), job("one", tokens=10))
    whole = sample(answer(), job("one"))
    (found,) = continued([ran("alone", whole), ran("rung-1", begun)])
    assert found.request.prompt == "one" + " ".join(map(str, RIGHT[:10]))
    assert found.request.max_new_tokens == len(RIGHT) - 10
    assert found.sha256 == whole.job.sha256


@pytest.mark.parametrize("ids", [RIGHT, (*RIGHT[:9], 7)])
def test_there_is_nothing_to_continue(ids: tuple[int, ...]) -> None:
    begun = sample(answer(ids), job("one"))
    assert continued([ran("alone", sample(answer(), job("one"))), ran("rung-1", begun)]) == ()
    assert continued([ran("alone", sample(lost(), job("one"))), ran("rung-1", begun)]) == ()
    assert continued([ran("alone", answer())]) == ()


def test_a_long_context_is_left_to_deep() -> None:
    long = ServerFacts(context=262_144, capacity=100_000)
    assert "limit" not in [s.name for s in stages(bundled().prompts, long, "standard")]
    limit = next(s for s in stages(bundled().prompts, long, "deep") if s.name == "limit")
    request = limit.jobs[0].request
    assert len(request.prompt) + request.max_new_tokens <= 100_000


@pytest.mark.parametrize("level", ["standard", "deep"])
@pytest.mark.parametrize("context", [4, 40])
def test_without_a_prompt_that_fits_only_the_limit_is_asked(level: Level, context: int) -> None:
    (limit,) = stages((), ServerFacts(context=context), level)
    assert limit.name == "limit"
    assert 1 <= len(limit.jobs[0].request.prompt) <= context
    assert stages((), ServerFacts(), level) == []


@pytest.mark.parametrize(
    ("info", "facts"),
    [
        ({}, ServerFacts()),
        (
            {
                "speculative_algorithm": "DDTREE",
                "speculative_num_draft_tokens": 8,
                "cuda_graph_bs": [4, 1, 2],
                "max_req_input_len": 506,
                "chunked_prefill_size": 256,
                "max_total_num_tokens": 4096,
                "version": "0.5.12.post1",
                "internal_states": [{"effective_max_running_requests_per_dp": 6}],
            },
            ServerFacts("DDTREE", "0.5.12.post1", 8, (1, 2, 4), 6, 506, 256, 4096),
        ),
        ({"cuda_graph_bs": [1, 2], "disable_cuda_graph": True}, ServerFacts()),
        ({"chunked_prefill_size": -1, "max_running_requests": 7}, ServerFacts(most_running=7)),
        ({"internal_states": [5], "max_running_requests": 7}, ServerFacts(most_running=7)),
        (
            {"internal_states": [None], "cuda_graph_bs": [2, True, 0, "4"]},
            ServerFacts(captured=(2,)),
        ),
        # DFLASH's width stands there although the server was started without speculation
        ({"speculative_algorithm": None, "speculative_num_draft_tokens": 8}, ServerFacts()),
    ],
)
def test_facts(info: dict[str, Any], facts: ServerFacts) -> None:
    assert ServerFacts.of(info) == facts


class Server(Completions):
    """Answers until a number of requests was asked."""

    def __init__(self, dies_after: int, cause: Cause = "refused") -> None:
        self.left, self.cause = dies_after, cause

        self.under_way = 0
        self.widest: list[int] = []  # under way beside each request, with it
        self.asked: list[int] = []  # tokens

    async def generate(self, request: Generation, timeout: float) -> GenerateAnswer:
        self.left -= 1
        if self.left < 0:
            raise lost(self.cause)
        self.under_way += 1
        self.asked.append(request.max_new_tokens)
        await anyio.lowlevel.checkpoint()
        self.widest.append(self.under_way)
        self.under_way -= 1
        return answer()


def run(server: Completions, told: list[Ran]) -> list[Ran]:
    planned = stages((prompt(quick=True), prompt("second", quick=True)), LAB, "standard")

    def go_on(stage: Ran) -> bool:
        told.append(stage)
        return not any(sample.error for sample in stage.samples)

    async def ask() -> Sequence[Ran]:
        return await run_stages(server, planned, 1.0, go_on)

    return list(anyio.run(ask))


def test_every_stage_is_run_in_order() -> None:
    told: list[Ran] = []
    found = run(Server(10_000), told)
    assert [stage.stage.name for stage in found] == [stage.stage.name for stage in told]
    assert found[-1].stage.name == "canary"
    assert all(len(stage.samples) == len(stage.stage.jobs) for stage in found)


def test_a_padded_size_begins_as_wide_as_its_graph_with_the_spare_ones() -> None:
    server, widest, first = Server(10_000), {}, {}

    async def ask() -> None:
        def told(stage: Ran) -> bool:
            widest[stage.stage.name] = max(server.widest)
            first[stage.stage.name] = server.asked[0]
            server.widest.clear()
            server.asked.clear()
            return True

        await run_stages(server, stages(bundled().prompts, LAB, "standard"), 1.0, told)

    anyio.run(ask)
    assert (widest["rung-2"], widest["padded-3-1"], widest["rung-1"]) == (2, 4, 1)
    assert first["padded-3-1"] == 12


def test_a_dead_server_is_not_asked_on() -> None:
    told: list[Ran] = []
    found = run(Server(3), told)
    assert [stage.stage.name for stage in told] == ["alone", "rung-2"]
    assert [bool(sample.error) for sample in found[1].samples] == [False, True]


def test_a_silent_server_is_asked_for_one_token_more() -> None:
    told: list[Ran] = []
    found = run(Server(3, "timeout"), told)
    assert [stage.stage.name for stage in found] == ["alone", "rung-2", "pulse"]
    assert [stage.stage.name for stage in told] == ["alone", "rung-2"]
    assert found[-1].stage.jobs[0].request.max_new_tokens == 1
