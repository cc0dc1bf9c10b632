"""Policies: conditions, outcomes, and mistakes that are named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsctl.errors import UsageError
from opsctl.gate.policy import METRICS, Policy, Rule, read, text_of

BOTH = {"metric": "soak.throughput_ratio", "fail": "< 0.7", "pass": ">= 0.9"}


def rule(**parts: object) -> Rule:
    return Rule.model_validate({"metric": "soak.error_rate", **parts})


@pytest.mark.parametrize(
    ("value", "outcome"),
    [(0.69, "fail"), (0.7, "inconclusive"), (0.89, "inconclusive"), (0.9, "pass")],
)
def test_between_pass_and_fail_nothing_is_decided(value: float, outcome: str) -> None:
    assert rule(**BOTH).judge(value)[0] == outcome


@given(st.floats(-10, 10), st.floats(-10, 10).map(lambda x: round(x, 3)))
def test_a_rule_that_only_fails_passes_all_else(value: float, limit: float) -> None:
    expected = "fail" if value > limit else "pass"
    assert rule(fail=f"> {limit:.3f}").judge(value)[0] == expected


@pytest.mark.parametrize(
    ("missing", "outcome"),
    [("inconclusive", "inconclusive"), ("pass", "skipped"), ("fail", "fail")],
)
def test_a_figure_that_could_not_be_had(missing: str, outcome: str) -> None:
    assert rule(fail="> 0", missing=missing).judge(None)[0] == outcome


def test_the_reason_has_value_and_condition() -> None:
    outcome, reason = rule(**BOTH).judge(0.5)
    assert outcome == "fail"
    assert "0.5" in reason
    assert "< 0.7" in reason


def test_the_default_names_real_metrics_and_says_how_to_write_one() -> None:
    policy = read(None)
    assert {each.metric for each in policy.rules} <= set(METRICS)
    checks = policy.judge(dict.fromkeys(METRICS, 1.0))
    assert [check.name for check in checks] == [each.metric for each in policy.rules]
    assert {check.phase for check in checks} == {"deploy", "soak", "compare"}
    text = text_of(None)
    for word in ("level:", "baseline:", "soak:", "rules:", "on_inconclusive:"):
        assert re.search(rf"^{word}", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("version: 1\nname: x\nrules: [{metric: soak.eror_rate, fail: '> 0'}]", "soak.error_rate"),
        ("version: 1\nname: x\nrules: [{metric: soak.wrong, fail: 'more than 0'}]", "rules.0.fail"),
        ("version: 1\nname: x\nlevel: thorough", "level"),
        ("version: 1\nname: x\nchecks: {kv_pol: warn}", "kv_pool"),
        ("version: 1\nname: x\nrules: [{metric: soak.wrong}]", "rules.0"),
        ("version: 1\nname: x\nsoak: {at_once: 0}", "soak.at_once"),
        ("version: 2\nname: x", "version"),
        ("version: 1\nname: x\nrulez: []", "rulez"),
        ("[half", "policy.yaml:1: not valid YAML"),
        ("", "keys and values"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    for function in (read, text_of):
        with pytest.raises(UsageError) as caught:
            function(path)
        assert named in caught.value.message
        assert str(path) in caught.value.message
        assert "--show-policy" in caught.value.remedy


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.yaml"):
        read(tmp_path / "none.yaml")


def test_a_policy_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("version: 1\nname: mine\nsoak: {seconds: 5}\nchecks: {kv_pool: warn}\n")
    policy = read(path)
    assert isinstance(policy, Policy)
    assert (policy.name, policy.soak.seconds, policy.soak.at_once) == ("mine", 5, 4)
    assert policy.checks == {"kv_pool": "warn"}
    assert text_of(path) == path.read_text()
