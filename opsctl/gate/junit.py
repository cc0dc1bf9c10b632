"""The checks of a gate as JUnit XML, the form that every CI reads.

A check that failed is a `failure`. One that is *inconclusive* is an `error`, JUnit's word for a
test that could not be judged: Jenkins and GitHub's reporters count it with the failures (some
apart from them), GitLab lists it as an error of its own. As `skipped` it would be left out of
GitLab's merge request, though the gate ends with 12. A check that did not apply is `skipped`,
and its reason is told. GitLab shows an element's text and drops its attributes, Jenkins and
GitHub's reporters begin with the attribute `message`: so the reason stands in both.

The structure is Jenkins' (junit-10.xsd of its xUnit plugin); names hold no figures, since CI
knows a test again by its name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TypeVar

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from opsctl.gate import words
from opsctl.gate.model import GateCheck, GateResult

_EVIDENCE = 8_000  # characters of a check's evidence

_Ended = TypeVar("_Ended", Failure, Error, Skipped)


def junit(result: GateResult) -> str:
    """The whole file: a suite with a case for each check (classname `gate.PHASE`).

    Where no check says why the gate did not pass, or the host was not restored, a case
    `gate.verdict` does: an empty suite is green in some readers and an error in others.
    """
    suite = TestSuite(words.visible(f"opsctl gate {result.host} {result.patch_set}"))
    suite.hostname = words.visible(result.host)
    suite.timestamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(result.started_at))
    for name, value in _properties(result):
        suite.add_property(name, words.visible(value))
    for case in _cases(result):
        suite.add_testcase(case)
    suites = JUnitXml("opsctl gate")
    suites.add_testsuite(suite)
    # After the sums, which are of the cases: a gate is mostly the load.
    suite.time = suites.time = round(result.duration_s, 3)
    xml: bytes = suites.tostring()  # type: ignore[no-untyped-call]
    return xml.decode("utf-8")


def _properties(result: GateResult) -> Iterator[tuple[str, str]]:
    yield "host", result.host
    yield "service", result.service
    yield "set", result.patch_set
    yield "generation", "" if result.generation is None else str(result.generation)
    yield "verdict", result.outcome
    yield "ending", result.ending
    yield "exit_code", str(result.exit_code)
    yield "policy", result.policy
    yield "summary", result.summary


def _cases(result: GateResult) -> Iterator[TestCase]:
    if (verdict := _verdict(result)) is not None:
        yield verdict
    for check in result.checks:
        name, time_s = words.visible(check.name), check.seconds
        case = TestCase(name, f"gate.{check.phase}", None if time_s is None else round(time_s, 3))
        if (ended := _ended(check, result.remedy)) is not None:
            case.result = [ended]
        yield case


def _ended(check: GateCheck, remedy: str) -> Failure | Error | Skipped | None:
    told = [check.reason]
    if check.outcome == "skipped":
        return _of(Skipped, told, "skipped")
    if check.outcome == "pass":
        return None
    told += [f"kind: {check.kind}"] if check.kind else []
    told += [f"policy: {check.policy}"] if check.policy else []
    told += [f"remedy: {remedy}"] if remedy else []
    told += [text] if (text := words.evidence(check, _EVIDENCE)) else []
    if check.outcome == "fail":
        return _of(Failure, told, check.kind or check.name)
    return _of(Error, told, "inconclusive")


def _verdict(result: GateResult) -> TestCase | None:
    told = [words.headline(result), result.summary]
    told += [f"remedy: {result.remedy}"] if result.remedy else []
    case = TestCase("verdict", "gate")
    if result.ending == "not restored":
        case.result = [_of(Failure, told, "not_restored")]
    elif result.outcome == "pass" or result.of(result.outcome):
        return None
    elif result.outcome == "fail":
        case.result = [_of(Failure, told, "failed")]
    else:
        case.result = [_of(Error, told, result.outcome)]
    return case


def _of(kind: type[_Ended], told: list[str], type_: str) -> _Ended:
    made = kind(words.visible(told[0]), words.visible(type_))
    made.text = words.visible("\n".join(told))
    return made
