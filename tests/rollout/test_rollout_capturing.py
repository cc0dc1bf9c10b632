"""A baseline in one go: whatever the capture comes to, the service speculates again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rollout_tools import SERVICE, facts

from opsctl.errors import Refused
from opsctl.report import Report
from opsctl.rollout import baselining, capturing, commands, steps
from opsctl.rollout.run import Options, Run
from opsctl.rollout.session import Session

HOST = cast(Session, SimpleNamespace(emit=lambda _: None))


def report(command: str, exit_code: int = 0) -> Report:
    verdict = "fail" if exit_code else "pass"
    return Report(
        command=command, verdict=cast(Any, verdict), exit_code=exit_code, summary=f"{command} said"
    )


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """How it was started, in order: True without speculation."""
    plain: list[bool] = []

    def restart(session: Any, patches: Path, options: Options) -> Report:
        plain.append(options.plain)
        return report("restart", failing.get(len(plain), 0))

    failing: dict[int, int] = {}
    monkeypatch.setattr(commands, "restart", restart)
    monkeypatch.setattr(baselining, "take", lambda *_, **__: report("baseline capture"))
    cast(Any, HOST).failing = failing
    return plain


def capture() -> Report:
    return capturing.capture(HOST, Path("p"), None, Options(budget=9.0))


def test_there_and_back(starts: list[bool]) -> None:
    assert capture().command == "baseline capture"
    assert starts == [True, False]


def test_a_start_that_fails_ends_it(starts: list[bool]) -> None:
    cast(Any, HOST).failing[1] = 11
    found = capture()
    assert (found.command, found.exit_code) == ("restart", 11)
    assert starts == [True]


def test_a_way_back_that_fails_is_said_beside_the_baseline(starts: list[bool]) -> None:
    cast(Any, HOST).failing[2] = 11
    found = capture()
    assert (found.command, found.verdict, found.exit_code) == ("baseline capture", "fail", 11)
    assert "restart said" in found.summary
    assert "baseline capture said" in found.summary


@pytest.mark.parametrize(
    "error", [Refused("two answers", remedy="", code="x"), KeyboardInterrupt()]
)
def test_it_goes_back_whatever_the_capture_came_to(
    starts: list[bool], monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def take(*_: Any, **__: Any) -> Report:
        raise error

    monkeypatch.setattr(baselining, "take", take)
    with pytest.raises(type(error)):
        capture()
    assert starts == [True, False]


def test_a_start_that_could_not_be_made_is_refused_before_the_stop() -> None:
    def call(op: str, **_: Any) -> None:
        assert op == "check_plain"
        raise Refused("no option to leave out", code="not_speculative")

    session = SimpleNamespace(
        inspect=facts, service=SERVICE, host=SimpleNamespace(name="alpha"), call=call
    )
    run = Run("restart", cast(Session, session), Options(plain=True))
    with pytest.raises(Refused, match="no option to leave out"):
        steps.preflight(run)
    run = Run("restart", cast(Session, session), Options())
    assert "active" in steps.preflight(run), "with speculation nobody asks"
