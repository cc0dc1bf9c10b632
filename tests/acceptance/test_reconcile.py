"""Every source's answer, and why they can differ."""

from __future__ import annotations

from acceptance_tools import decode, endpoints, measured, tree

from opsctl.acceptance import Endpoints, Measured, Question, reconcile

GAUGE = "sglang:spec_accept_length"
PASSES = "sglang:cuda_graph_passes_total"


def ask(found: Measured, told: Endpoints, *, lifetime: bool = True) -> dict[str, Question]:
    return {question.name: question for question in reconcile(found, told, lifetime=lifetime)}


def values(question: Question) -> list[tuple[str, float]]:
    return [(figure.source, figure.value) for figure in question.figures]


def test_all_answers_are_given() -> None:
    found = measured(decode(4.0), decode(2.0), tree(3.1, 80, 80))
    asked = ask(found, endpoints(3.0, {GAUGE: 2.0}))["accept_length"]
    assert values(asked) == [
        ("decode lines", 3.0),
        ("DDTREE lines", 3.1),
        ("/server_info", 3.0),
        ("/metrics", 2.0),
    ]
    assert asked.why.startswith("up to 1 apart (")
    assert "/metrics: only what the last decode line covers" in asked.why
    assert "DDTREE lines: every verify is counted" in asked.why
    assert "/server_info" not in asked.why  # it agrees


def test_those_that_agree_need_no_reason() -> None:
    assert ask(measured(decode(3.0)), endpoints(3.01, {GAUGE: 3.0}))["accept_length"].why == ""


def test_ddtree_lines_of_a_part_of_the_span() -> None:
    why = ask(measured(decode(4.0), decode(2.0), tree(2.0, 40)), Endpoints())["accept_length"].why
    assert why == "up to 1 apart (DDTREE lines: they cover 40 of 80 steps)"


def test_a_reason_is_given_once() -> None:
    asked = ask(measured(decode(3.0)), endpoints(metrics={"sglang:gen_throughput": 60.0}))
    why = asked["gen_throughput"].why
    assert why == "up to 50 apart (/server_info, /metrics: only what the last decode line covers)"


def test_a_lifetime_is_not_a_span() -> None:
    found, told = measured(decode(3.0)), endpoints(2.0)
    why = ask(found, told, lifetime=False)["accept_length"].why
    assert why.endswith("/server_info: counted from the server's start, which is not this span)")
    assert "the journal may lack some" in ask(found, told)["accept_length"].why


def test_the_share_under_cuda_graph() -> None:
    passes = {
        f'{PASSES}{{mode="decode_cuda_graph"}}': 30.0,
        f'{PASSES}{{mode="decode_none"}}': 10.0,
        f'{PASSES}{{mode="prefill_none"}}': 99.0,
    }
    found = measured(decode(2.0), decode(2.0, graph=False))
    asked = ask(found, endpoints(metrics=passes))
    assert values(asked["cuda_graph"]) == [("decode lines", 0.5), ("/metrics", 0.75)]
    assert values(asked["verify_steps"]) == [("decode lines", 80), ("/metrics", 40.0)]
    assert asked["verify_steps"].why.startswith("up to 40 apart")


def test_verifies_by_every_count() -> None:
    found = measured(decode(2.0, 3), decode(None, 2), tree(2.0, 118))
    asked = ask(found, endpoints(metrics={"sglang:spec_verify_calls_total": 100.0}))["verifies"]
    assert values(asked) == [("decode lines", 120), ("DDTREE lines", 118), ("/metrics", 100.0)]
    assert asked.why == "up to 20 apart (/metrics: only of requests that have ended)"


def test_data_parallel_ranks_answer_each() -> None:
    gauges = {f'{GAUGE}{{dp_rank="{rank}"}}': 2.0 + rank for rank in (0, 1)}
    asked = ask(measured(), endpoints(3.0, gauges, ranks=2))["accept_length"]
    assert [(f.source, f.rank, f.value) for f in asked.figures] == [
        ("/server_info", "DP0", 3.0),
        ("/server_info", "DP1", 3.0),
        ("/metrics", "DP0", 2.0),
        ("/metrics", "DP1", 3.0),
    ]


def test_no_answer_no_question() -> None:
    assert reconcile(measured(), Endpoints(), lifetime=True) == ()
    # A gauge that was never set is 0, which no accept length can be.
    assert "accept_length" not in ask(measured(), endpoints(metrics={GAUGE: 0.0}))
    assert "accept_length" not in ask(measured(decode(None)), Endpoints({"internal_states": 3}))
