"""Many generations at once: bodies, streams in both of SGLang's forms, and what goes wrong."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import httpx
import pytest

from opsctl.sglang import Completions, GenerateAnswer, Generation, Load, ServerError

KEY = "sk-very-secret"
Handler = Callable[[httpx.Request], httpx.Response]


def meta(tokens: int, finish: str = "length", **more: Any) -> dict[str, Any]:
    return {
        "completion_tokens": tokens,
        "prompt_tokens": 3,
        "finish_reason": {"type": finish},
        **more,
    }


def ask(handler: Handler, request: Generation, timeout: float = 5.0) -> GenerateAnswer:
    async def run() -> GenerateAnswer:
        transport = httpx.MockTransport(handler)
        async with Completions("http://server", KEY, transport, "0.5.12.post1") as client:
            return await client.generate(request, timeout)

    return anyio.run(run)


def events(*pieces: object) -> httpx.Response:
    lines = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces)
    return httpx.Response(200, text=lines + "data: [DONE]\n\n")


def test_what_is_asked_for() -> None:
    asked: list[dict[str, Any]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == f"Bearer {KEY}"
        asked.append(json.loads(request.content))
        return httpx.Response(200, json={"text": "a", "output_ids": [7], "meta_info": meta(1)})

    ask(handler, Generation("Hello", 4))
    ask(handler, Generation((5, 6), 4, top_logprobs=3, ignore_eos=True))
    assert asked[0] == {
        "text": "Hello",
        "stream": False,
        "sampling_params": {"temperature": 0, "max_new_tokens": 4},
    }
    assert asked[1]["input_ids"] == [5, 6]
    assert (asked[1]["return_logprob"], asked[1]["top_logprobs_num"]) == (True, 3)
    assert asked[1]["sampling_params"]["ignore_eos"] is True


def test_logprobs_and_counters() -> None:
    top = [[[-0.1, 7, "a"], [-2.5, 9, None]], [[-0.5, 8, "b"], [-0.6, 3, "c"]]]
    body = {
        "text": "ab",
        "output_ids": [7, 8],
        "meta_info": meta(2, output_top_logprobs=top, cached_tokens=2, spec_verify_ct=1),
    }
    answer = ask(lambda _: httpx.Response(200, json=body), Generation("x", 2, top_logprobs=2))
    assert answer.top == (((7, -0.1), (9, -2.5)), ((8, -0.5), (3, -0.6)))
    assert (answer.cached_tokens, answer.meta.verify_steps) == (2, 1)


@pytest.mark.parametrize(
    "pieces",
    [
        [("a", [1], 1), ("abc", [1, 2, 3], 3), ("abcd", [1, 2, 3, 4], 4)],
        [("a", [1], 1), ("bc", [2, 3], 3), ("d", [4], 4)],
    ],
    ids=["all so far", "--incremental-streaming-output"],
)
def test_a_stream_in_either_form(pieces: list[tuple[str, list[int], int]]) -> None:
    sent = [{"text": t, "output_ids": ids, "meta_info": meta(n)} for t, ids, n in pieces]
    answer = ask(lambda _: events(*sent), Generation("x", 4, stream=True))
    assert (answer.text, answer.output_ids) == ("abcd", (1, 2, 3, 4))
    assert len(answer.arrivals) == 3
    assert list(answer.arrivals) == sorted(answer.arrivals)


def test_a_client_that_goes_away() -> None:
    sent = 0

    class Endless(httpx.AsyncByteStream):
        closed = False

        async def __aiter__(self) -> AsyncIterator[bytes]:
            nonlocal sent
            while True:
                sent += 1
                piece = {"text": "a" * sent, "output_ids": [1] * sent, "meta_info": meta(sent)}
                yield f"data: {json.dumps(piece)}\n\n".encode()

        async def aclose(self) -> None:
            Endless.closed = True

    response = httpx.Response(200, stream=Endless())
    answer = ask(lambda _: response, Generation("x", 100, hang_up_after=5))
    assert len(answer.output_ids) == 5
    assert Endless.closed


@pytest.mark.parametrize(
    ("response", "stream", "cause"),
    [
        (httpx.Response(400, text=f"no, {KEY}"), False, "status"),
        (httpx.Response(500, text=f"no, {KEY}"), True, "status"),
        (httpx.Response(200, text="<html>"), False, "malformed"),
        (httpx.Response(200, json={"text": "x"}), False, "malformed"),
        (events({"error": {"message": "abort"}}), True, "status"),
        (events(), True, "malformed"),
        (httpx.Response(200, text="data: {half\n\n"), True, "malformed"),
    ],
    ids=["refused", "failed", "no json", "no meta", "error in stream", "empty stream", "cut"],
)
def test_no_answer(response: httpx.Response, stream: bool, cause: str) -> None:
    with pytest.raises(ServerError) as caught:
        ask(lambda _: response, Generation("x", 4, stream=stream))
    assert caught.value.cause == cause
    assert KEY not in f"{caught.value.message} {caught.value.body}"


def body(changes: dict[str, Any]) -> str:
    """The JSON, with NaN and Infinity where need be, of a sound answer of one token but for
    `changes` to it or to its meta_info."""
    whole: dict[str, Any] = {"text": "a", "output_ids": [7], "meta_info": meta(1)}
    for key, value in changes.items():
        (whole if key in whole else whole["meta_info"])[key] = value
    return json.dumps(whole)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    "changes",
    [
        {"meta_info": None},
        {"meta_info": []},
        {"meta_info": "x"},
        {"output_ids": 5},
        {"output_ids": "ab"},
        {"output_ids": [7, None]},
        {"output_ids": [7.5]},
        {"output_ids": [True]},
        {"text": 5},
        {"text": ["a"]},
        {"completion_tokens": "x"},
        {"completion_tokens": float("nan")},
        {"prompt_tokens": []},
        {"cached_tokens": "x"},
        {"finish_reason": 5},
        {"finish_reason": {"type": []}},
        {"finish_reason": {}},
        {"spec_verify_ct": float("inf")},
        {"spec_verify_ct": float("nan")},
        {"spec_accept_length": float("nan")},
        {"spec_accept_histogram": [float("inf")]},
        {"output_top_logprobs": 5},
        {"output_top_logprobs": [[["x", 7, None]]]},
        {"output_top_logprobs": [[[float("nan"), 7, None]]]},
        {"output_top_logprobs": [[[float("-inf"), 7, None]]]},
        {"output_top_logprobs": [[[-0.5, None, None]]]},
    ],
    ids=str,
)
def test_wrong_types_are_malformed(changes: dict[str, Any], stream: bool) -> None:
    content = body(changes)
    text = f"data: {content}\n\ndata: [DONE]\n\n" if stream else content
    with pytest.raises(ServerError) as caught:
        ask(lambda _: httpx.Response(200, text=text), Generation("x", 4, stream=stream))
    assert caught.value.cause == "malformed"


@pytest.mark.parametrize("changes", [{}, {"text": None}, {"cached_tokens": None}])
def test_what_a_server_leaves_out_is_not_malformed(changes: dict[str, Any]) -> None:
    content = body(changes)
    for stream in (False, True):
        text = f"data: {content}\n\ndata: [DONE]\n\n" if stream else content

        def reply(_: httpx.Request, text: str = text) -> httpx.Response:
            return httpx.Response(200, text=text)

        assert ask(reply, Generation("x", 4, stream=stream)).output_ids == (7,)


@pytest.mark.parametrize(
    "load",
    [
        {"num_reqs": "x", "num_tokens": 0, "num_pending_tokens": 0},
        {"num_running_reqs": "1", "num_waiting_reqs": "1", "num_used_tokens": 0},
        {"num_running_reqs": 0, "num_waiting_reqs": 0, "num_used_tokens": None},
    ],
)
def test_a_load_of_wrong_types_is_none(load: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Load.of(load)


def test_who_waits_is_known_where_the_server_tells() -> None:
    old = {"num_reqs": 3, "num_tokens": 90, "num_pending_tokens": 30}
    assert Load.of(old) == Load(3, 60, None)
    assert Load.of(old | {"num_waiting_reqs": 2}) == Load(3, 60, 2)
    new = {"num_running_reqs": 4, "num_waiting_reqs": 1, "num_used_tokens": 60}
    assert Load.of(new) == Load(5, 60, 1)


@pytest.mark.parametrize("tokens", [5, "ab", [1.5], [float("inf")], [None]])
def test_tokens_that_are_none(tokens: object) -> None:
    async def run() -> None:
        transport = httpx.MockTransport(
            lambda _: httpx.Response(200, text=json.dumps({"tokens": tokens}))
        )
        async with Completions("http://server", KEY, transport) as client:
            await client.tokenize("x", 5.0)

    with pytest.raises(ServerError) as caught:
        anyio.run(run)
    assert caught.value.cause == "malformed"


def test_one_bound_for_a_whole_answer() -> None:
    """A stream that trickles for ever is no answer."""

    class Trickle(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            while True:
                await anyio.sleep(0.02)
                piece = {"text": "a", "output_ids": [1], "meta_info": meta(1)}
                yield f"data: {json.dumps(piece)}\n\n".encode()

        async def aclose(self) -> None:
            pass

    with pytest.raises(ServerError, match=r"no answer within 0\.2 s") as caught:
        ask(lambda _: httpx.Response(200, stream=Trickle()), Generation("x", 4, stream=True), 0.2)
    assert caught.value.cause == "timeout"
