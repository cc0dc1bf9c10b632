"""A baseline as a file, and which servers it can speak for."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.baseline import Answer, Baseline, Identity, identity, load
from opsctl.errors import UsageError
from opsctl.sglang import GenerateAnswer, SpecCounters

TINY = Identity(
    served_name="tiny", model_path="/m", files={"config.json": "a"}, precision="bfloat16"
)


def made(**changes: Any) -> Baseline:
    given: dict[str, Any] = {
        "created": 12.5,
        "host": "host",
        "service": "service",
        "reference": "plain",
        "identity": TINY,
        "answers": (
            Answer(
                prompt="first",
                sha256="ab",
                output_ids=(1, 2, 3, 4),
                top=tuple(((token, -0.1), (9, -0.2)) for token in (1, 2, 3, 4)),
                text="x",
                finish_reason="length",
            ),
        ),
    }
    return Baseline(**(given | changes))


def test_a_round_trip_keeps_everything() -> None:
    first = made()
    again = load(first.model_dump_json(), "there")
    assert again == first
    assert again.id == first.id


def test_the_id_is_of_the_content() -> None:
    assert made().id == made().id
    assert made().id != made(created=12.6).id


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "Field required"),
        ("no json", "Invalid JSON"),
        (made().model_dump_json().replace('"format":1', '"format":2'), "format"),
        (made().model_dump_json().replace('"plain"', '"hearsay"'), "reference"),
    ],
)
def test_what_is_no_baseline_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(text, "b.json")
    assert "b.json is no baseline" in caught.value.message
    assert says in caught.value.message


@pytest.mark.parametrize(
    ("ids", "asked", "outcome"),
    [
        ((1, 2, 3, 4), 4, "equal"),
        ((1, 2), 2, "equal"),
        ((1, 2), 4, "wrong"),
        ((1, 9, 7, 7), 4, "near_tie"),
        ((1, 8, 7, 7), 4, "unknown"),
    ],
)
def test_judge(ids: tuple[int, ...], asked: int, outcome: str) -> None:
    found = made().judge("ab", ids, asked)
    assert found is not None
    assert found.outcome == outcome
    assert made().judge("cd", ids, asked) is None


@pytest.mark.parametrize(
    ("finish", "asked", "outcome"),
    [
        ("stop", 8, "wrong"),  # a block that was verified beyond the stop
        ("stop", 4, "equal"),  # the limit came first
        ("stop", 3, "equal"),
        ("length", 8, "equal"),  # nobody knows how it goes on
    ],
)
def test_tokens_after_the_end(finish: str, asked: int, outcome: str) -> None:
    answers = tuple(each.model_copy(update={"finish_reason": finish}) for each in made().answers)
    found = made(answers=answers).judge("ab", (1, 2, 3, 4, 5), asked)
    assert found is not None
    assert found.outcome == outcome


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, ""),
        ({"algorithm": "DDTREE", "version": "0.6", "arguments": {"x": 1}}, ""),
        ({"served_name": "other", "model_path": "/elsewhere"}, ""),  # the files decide
        ({"precision": "float16"}, "the precision is bfloat16 there and float16 here"),
        ({"quantization": "fp8"}, "the quantization is none there and fp8 here"),
        ({"kv_cache_dtype": "fp8_e5m2"}, "the type of the KV cache"),
        ({"arguments": {"json_model_override_args": "{}"}}, ""),
        ({"arguments": {"json_model_override_args": '{"a": 1}'}}, 'none there and {"a": 1} here'),
        ({"arguments": {"json_model_override_args": "{half"}}, "none there and {half here"),
        ({"files": {"config.json": "b"}}, "another one (config.json)"),
        ({"files": {"config.json": "a", "w": "c"}}, "another one (w)"),
    ],
)
def test_unlike(changes: dict[str, Any], says: str) -> None:
    found = TINY.unlike(TINY.model_copy(update=changes))
    assert len(found) == bool(says)
    assert says in "".join(found)


def test_the_form_of_an_override_is_no_difference() -> None:
    first, again = (
        TINY.model_copy(update={"arguments": {"json_model_override_args": text}})
        for text in ('{"a": 1, "b": 2}', '{"b":2,"a":1}')
    )
    assert first.unlike(again) == []


@pytest.mark.parametrize(
    ("info", "model", "precision"),
    [
        ({"dtype": "auto"}, {"dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "auto"}, {"dtype": "float32"}, "float16"),  # as SGLang has it
        ({"dtype": "float32"}, {"dtype": "bfloat16"}, "float32"),
        ({"dtype": "half"}, None, "float16"),
        ({}, None, ""),
    ],
)
def test_precision(info: dict[str, Any], model: dict[str, Any] | None, precision: str) -> None:
    assert identity(info, "tiny", model).precision == precision


def test_identity_keeps_what_is_good_to_know() -> None:
    info: dict[str, Any] = {
        "dtype": "bfloat16",
        "kv_cache_dtype": "auto",
        "speculative_algorithm": None,
        "model_path": "/m",
        "version": "0.5.12.post1",
        "internal_states": [{}],
        "cuda_graph_bs": [1, 2],
        "tp_size": 8,
        "speculative_ddtree_budget": 16,
        "api_key": "hunter2",
        "hicache_storage_backend_extra_config": '{"token": "hunter2"}',
        "model_loader_extra_config": '{"token": "hunter2"}',
        "some_new_argument": "hunter2",
    }
    found = identity(info, "tiny", {"files": {"config.json": "a"}, "quantization": "fp8"})
    assert (found.algorithm, found.kv_cache_dtype, found.quantization) == ("", "", "fp8")
    assert found.arguments == {
        "dtype": "bfloat16",
        "kv_cache_dtype": "auto",
        "model_path": "/m",
        "cuda_graph_bs": [1, 2],
        "tp_size": 8,
        "speculative_ddtree_budget": 16,
    }


def test_an_answer_of_a_generation() -> None:
    answered = GenerateAnswer(
        text="x",
        finish_reason="stop",
        completion_tokens=2,
        prompt_tokens=5,
        latency_s=0.1,
        meta=SpecCounters(),
        output_ids=(1, 2),
        top=(((1, -0.1),), ((2, -0.2),)),
    )
    found = Answer.of("first", "ab", answered)
    assert (found.output_ids, found.prompt_tokens, found.finish_reason) == ((1, 2), 5, "stop")
    assert found.top == (((1, -0.1),), ((2, -0.2),))
