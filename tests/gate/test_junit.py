"""The JUnit file, read by an XML parser and held against the structure that readers expect."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import ALL, FAILED, HOSTILE, INCONCLUSIVE, LOCKED, PASSED

from opsctl.gate import GateCheck, GateResult, words
from opsctl.gate.junit import junit

# Jenkins' junit-10.xsd, as far as it goes: of each element the attributes and the children that
# it may have, and of the attributes those that it must.
ATTRIBUTES = {
    "testsuites": ({"name"}, {"time", "tests", "failures", "errors", "disabled"}),
    "testsuite": (
        {"name", "tests"},
        {"failures", "errors", "skipped", "time", "timestamp", "hostname", "id", "package"},
    ),
    "properties": (set(), set()),
    "property": ({"name", "value"}, set()),
    "testcase": ({"name", "classname"}, {"time", "assertions", "status"}),
    "failure": (set(), {"type", "message"}),
    "error": (set(), {"type", "message"}),
    "skipped": (set(), {"type", "message"}),
}
CHILDREN = {
    "testsuites": ("testsuite",),
    "testsuite": ("properties", "testcase"),
    "properties": ("property",),
    "testcase": ("skipped", "error", "failure"),
}
RESULTS = {"fail": "failure", "inconclusive": "error", "skipped": "skipped"}


def suite_of(result: GateResult) -> ET.Element:
    root = ET.fromstring(junit(result).encode())
    (suite,) = root
    for element in root.iter():
        required, optional = ATTRIBUTES[element.tag]
        assert required <= set(element.attrib) <= required | optional, element.tag
        order = [CHILDREN[element.tag].index(child.tag) for child in element]
        assert order == sorted(order)
    return suite


@pytest.mark.parametrize("result", [*ALL.values(), HOSTILE], ids=[*ALL, "hostile"])
def test_the_structure_is_that_of_junit(result: GateResult) -> None:
    suite = suite_of(result)
    cases = suite.findall("testcase")
    found = Counter(child.tag for case in cases for child in case)
    assert all(len(case) <= 1 for case in cases)
    assert int(suite.attrib["tests"]) == len(cases) > 0
    for counted, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.attrib[counted]) == found[tag]
    names = [(case.attrib["classname"], case.attrib["name"]) for case in cases]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("result", [PASSED, FAILED, INCONCLUSIVE], ids=["pass", "fail", "unsure"])
def test_a_case_a_check(result: GateResult) -> None:
    cases = suite_of(result).findall("testcase")
    for check, case in zip(result.checks, cases, strict=True):
        assert case.attrib["classname"] == f"gate.{check.phase}"
        assert case.attrib["name"] == check.name
        assert float(case.get("time", -1)) == (-1 if check.seconds is None else check.seconds)
        if check.outcome == "pass":
            assert not len(case)
            continue
        assert case[0].tag == RESULTS[check.outcome]
        # GitLab shows the text, the others the message.
        assert case[0].attrib["message"] == check.reason
        assert (case[0].text or "").startswith(check.reason)


def test_a_failure_tells_kind_policy_remedy_and_evidence() -> None:
    check = next(check for check in FAILED.checks if check.name == "lossless")
    case = next(
        case for case in suite_of(FAILED).iter("testcase") if case.get("name") == "lossless"
    )
    assert case[0].get("type") == check.kind
    text = case[0].text or ""
    assert check.kind in text
    assert FAILED.remedy in text
    assert all(str(value) in text for value in check.evidence["counts"].values())


def test_properties_say_which_gate_it_was() -> None:
    found = {each.get("name"): each.get("value") for each in suite_of(FAILED).iter("property")}
    assert found["host"] == FAILED.host
    assert found["set"] == FAILED.patch_set
    assert found["generation"] == "3"
    assert (found["verdict"], found["ending"], found["exit_code"]) == ("fail", "rolled back", "10")


@pytest.mark.parametrize(
    ("result", "tag"),
    [
        (replace(LOCKED, outcome="inconclusive", checks=()), "error"),
        (replace(PASSED, outcome="fail", ending="rolled back", exit_code=10), "failure"),
        (replace(FAILED, ending="not restored", exit_code=11), "failure"),
    ],
    ids=["not begun", "no check failed", "not restored"],
)
def test_what_no_check_explains_has_a_case(result: GateResult, tag: str) -> None:
    first = suite_of(result).findall("testcase")[0]
    assert (first.get("classname"), first.get("name")) == ("gate", "verdict")
    assert first[0].tag == tag
    assert result.summary in (first[0].text or "")
    assert result.remedy in (first[0].text or "")


@settings(deadline=None)
@given(st.text(alphabet=st.characters(), max_size=80))
def test_any_text_is_read_back(text: str) -> None:
    check = GateCheck("smoke", "answered", "fail", text)
    suite = suite_of(replace(PASSED, outcome="fail", checks=(check,), remedy=""))
    read = suite.findall("testcase")[0][0]
    assert read.get("message", "") == words.visible(text)
    assert (read.text or "") == words.visible(text)
