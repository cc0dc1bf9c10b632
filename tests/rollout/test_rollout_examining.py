"""What each level of an exam asks of a server, and of which baseline."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rollout_tools import SERVICE

from opsctl.baseline import Answer, Baseline, Identity
from opsctl.baseline.prompts import bundled, for_server
from opsctl.events import Event
from opsctl.rollout import baselining, examining
from opsctl.rollout.examining import Wanted
from opsctl.rollout.session import Session
from opsctl.sglang import GenerateAnswer, Generation, SpecCounters
from opsctl.smoke import Exam, Seen, ServerFacts, judge_exam

FACTS = ServerFacts(most_running=2, chunk=64)
NOW = Identity(served_name="t", model_path="/m", files={"config.json": "a"}, precision="float32")
OTHERS = for_server(bundled().prompts, FACTS.chunk, FACTS.context)
IDS = tuple(range(1000, 1400))


def known(*, deep: bool) -> Baseline:
    return Baseline(
        created=0.0,
        host="alpha",
        service="serve",
        reference="plain",
        identity=NOW,
        answers=tuple(
            Answer(
                prompt=each.id,
                sha256=each.sha256,
                output_ids=IDS[: each.tokens],
                text="x",
                finish_reason="length",
            )
            for each in (*OTHERS, *(bundled().deep if deep else ()))
        ),
    )


class Server:
    """Says what the baseline has."""

    async def generate(self, request: Generation, timeout: float) -> GenerateAnswer:
        ids = IDS[: request.max_new_tokens]
        return GenerateAnswer("x", "length", len(ids), 3, 0.1, SpecCounters(), ids)


class Host:
    host = SimpleNamespace(name="alpha")
    service = SERVICE

    def __init__(self, baseline: Baseline) -> None:
        self.baseline = baseline
        self.told: list[Event] = []

    def emit(self, event: Event) -> None:
        self.told.append(event)

    def inspect(self) -> dict[str, Any]:
        return {"generation": None}

    def call(self, op: str, **_: Any) -> Any:
        known = {"list_baselines": [self.baseline.id]}
        return known.get(op) or self.baseline.model_dump_json()

    @contextlib.asynccontextmanager
    async def completions(self, _: str) -> AsyncIterator[Server]:
        yield Server()


@pytest.fixture(autouse=True)
def _running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examining, "subject", lambda _: (NOW, FACTS))


def prepared(host: Host, level: Any) -> Exam:
    exam = examining.prepare(cast(Session, host), Wanted(level))
    assert exam is not None
    return exam


def judged_tokens(host: Host, level: Any) -> int:
    exam = prepared(host, level)
    ran = examining.run(cast(Session, host), exam)
    checks = {check.name: check for check in judge_exam(exam, Seen(ran=ran))}
    assert checks["lossless"].verdict == "pass"
    return int(checks["lossless"].evidence["tokens_judged"])


def test_the_deep_level_judges_enough_to_see_one_token_in_two_thousand() -> None:
    host = Host(known(deep=True))
    assert judged_tokens(host, "deep") - judged_tokens(host, "standard") >= 9_600
    assert "deep-1: 10 answers in" in " ".join(event.message for event in host.told)


def test_what_the_baseline_lacks_is_not_asked_and_said_with_its_command() -> None:
    host = Host(known(deep=False))
    exam = prepared(host, "deep")
    assert exam.deep == bundled().deep
    ran = examining.run(cast(Session, host), exam)
    assert not [stage for stage in ran if stage.stage.name.startswith("deep")]
    found = {check.name: check for check in judge_exam(exam, Seen(ran=ran))}["lossless"]
    assert found.verdict == "inconclusive"
    assert baselining.command(cast(Session, host), deep=True) in found.reason


def test_other_levels_know_nothing_of_them() -> None:
    exam = prepared(Host(known(deep=True)), "standard")
    assert (exam.deep, exam.deep_asked, exam.prompts) == ((), (), OTHERS)
