"""The JSON report: its schema is committed, and every ending has the exit that is documented."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from opsctl import errors, report
from opsctl.errors import OpsctlError
from opsctl.events import Event
from opsctl.report import Reason, Report, of_error, record

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "report.schema.json"
REMAKE = (
    "python -c \"from opsctl import report; print(report.schema_text(), end='')\" "
    "> docs/report.schema.json"
)


def test_the_committed_schema_is_current() -> None:
    assert COMMITTED.read_text(encoding="utf-8") == report.schema_text(), f"run: {REMAKE}"


def test_the_schema_says_what_a_reader_needs() -> None:
    schema = json.loads(report.schema_text())
    assert schema["properties"]["schema"]["const"] == "opsctl.report/1"
    assert set(schema["properties"]["verdict"]["enum"]) == {
        *("pass", "fail", "inconclusive", "refused", "error")
    }
    assert {"schema", "command", "verdict", "exit_code", "summary"} <= set(schema["required"])
    assert schema["additionalProperties"] is False


def test_a_report_survives_json() -> None:
    made = Report(
        command="deploy",
        host="a",
        service="s",
        verdict="fail",
        exit_code=10,
        summary="größer",
        reasons=(Reason(code="c", message="m"),),
        generation=3,
        data={"x": [1, None]},
        events=(record(Event("stop", "ok", "in 1 s", {"n": 1}, at=1.23456)),),
    )
    text = json.dumps(made.dump())
    assert Report.model_validate(json.loads(text)) == made
    assert json.loads(text)["schema"] == "opsctl.report/1"
    assert json.loads(text)["events"] == [
        {"step": "stop", "state": "ok", "message": "in 1 s", "at": 1.235, "data": {"n": 1}}
    ]


@pytest.mark.parametrize("wrong", [{"schema": "opsctl.report/2"}, {"verdict": "ok"}, {"extra": 1}])
def test_another_shape_is_not_a_report(wrong: dict[str, object]) -> None:
    good = {"command": "x", "verdict": "pass", "exit_code": 0, "summary": ""}
    assert Report.model_validate(good)
    with pytest.raises(ValidationError):
        Report.model_validate({**good, **wrong})


TREE = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, OpsctlError) and kind is not OpsctlError
]


@pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)
def test_every_error_has_its_report(kind: type[OpsctlError]) -> None:
    made = of_error("plan", kind("what", remedy="do this"), host="a", service="s")
    assert made.exit_code == kind.exit_code
    refused = kind.exit_code in {errors.EXIT_REFUSED, errors.EXIT_LOCKED}
    assert made.verdict == ("refused" if refused else "error")
    assert made.reasons == (Reason(code=kind.default_code, message="what", remedy="do this"),)
    assert (made.host, made.service, made.command) == ("a", "s", "plan")


def test_the_tree_is_drawn_with_its_exits() -> None:
    """`errors` draws each class beside its exit status."""
    for kind in TREE:
        line = next(line for line in (errors.__doc__ or "").splitlines() if kind.__name__ in line)
        assert f" {kind.exit_code}" in line, line


def test_a_code_of_its_own_goes_before_the_default() -> None:
    assert of_error("x", errors.Refused("m", code="drift")).reasons[0].code == "drift"
    assert errors.HostProgramError("m", remote_traceback="t").remote_traceback == "t"
