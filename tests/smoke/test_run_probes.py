"""The probes over the recorded answers of a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from opsctl.inventory.models import Smoke
from opsctl.journal import Diagnosis
from opsctl.sglang import ServerError, SglangClient
from opsctl.smoke import UnitFacts, judge, run_probes

ANSWERS = Path(__file__).parent.parent / "sglang" / "data" / "answers-0.5.12.post1-dflash-cpu.json"


@pytest.fixture
def recorded() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(ANSWERS.read_text(encoding="utf-8"))
    return loaded


def client_of(answers: dict[str, Any], sent: list[Any]) -> SglangClient:
    paths = {
        "/server_info": "server_info",
        "/generate": "generate",
        "/v1/chat/completions": "chat",
    }

    def handler(request: httpx.Request) -> httpx.Response:
        sent.append((request.url.path, json.loads(request.content or "null")))
        answer = answers.get(paths.get(request.url.path, ""))
        return httpx.Response(404) if answer is None else httpx.Response(200, json=answer)

    return SglangClient("http://server", transport=httpx.MockTransport(handler))


def test_a_real_server_passes(recorded: dict[str, Any]) -> None:
    sent: list[Any] = []
    settings = Smoke(max_tokens=32, min_accept_len=1.5)
    with client_of(recorded, sent) as client:
        probes = run_probes(client, settings, "tiny")
    unit = UnitFacts("active", "running", "a", 0)
    result = judge(
        probes, settings, unit_before=unit, unit_after=unit, diagnosis=Diagnosis(incident=False)
    )
    assert result.verdict == "pass", result.reasons
    assert (result.tokens, result.verify_steps) == (32, 19)
    assert result.accept_len == pytest.approx(1.684, abs=1e-3)
    assert (probes.algorithm, probes.version, probes.draft_tokens) == ("DFLASH", "0.5.12.post1", 8)
    bodies = dict(sent)
    assert bodies["/v1/chat/completions"]["model"] == "tiny"
    assert bodies["/generate"]["text"] == settings.prompt


def test_errors_are_answers_too(recorded: dict[str, Any]) -> None:
    with client_of({}, []) as client:
        probes = run_probes(client, Smoke(), "tiny")
    assert isinstance(probes.chat, ServerError)
    assert isinstance(probes.generate, ServerError)
    assert probes.algorithm is None
    plain = recorded | {"server_info": {"speculative_algorithm": None}}
    with client_of(plain, []) as client:
        assert run_probes(client, Smoke(), "tiny").algorithm == ""
