"""A baseline of a service that speculates, in one go: one start without, and back."""

from __future__ import annotations

import contextlib
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from opsctl import errors
from opsctl.errors import OpsctlError, Refused, Unreachable
from opsctl.events import Event
from opsctl.playbook import Shelf
from opsctl.report import Reason, Report
from opsctl.rollout import baselining, commands
from opsctl.rollout.run import Options
from opsctl.rollout.session import Session
from opsctl.rollout.subject import require_prompts
from opsctl.units.properties import Unit

_COMMAND = "baseline capture"
_INTERRUPTED = "interrupted"
_WHY = "the way back from a start without speculation"


def capture(
    session: Session, shelf: Shelf, prompts: Path | None, options: Options, *, deep: bool = False
) -> Report:
    """Restart without speculation, record what the server answers, and restart as before; `deep`
    as for `baselining.take`.

    A server that runs without it already is spared the first restart. The way back is gone
    whatever came before it. Its failure decides the exit status (11); without one that is the
    capture's: 0, or 10 and, interrupted, 130 where there is none.

    Raises:
        OpsctlError: the prompts cannot be asked, or the first restart was refused; nothing was
            changed.
    """
    require_prompts(prompts, deep=deep)
    began = time.time()
    taken = _taken(session, shelf, prompts, options, deep=deep)
    back = _back(session, shelf, options)
    report = _joined(session, taken, back)
    took = round(time.time() - began, 3)
    return report.model_copy(update={"started_at": began, "duration_s": took})


def _taken(
    session: Session, shelf: Shelf, prompts: Path | None, options: Options, *, deep: bool
) -> Report:
    """The capture's report, or the first restart's where that was not proven."""
    before = session.unit()
    if not (before.plain and before.active):
        try:
            first = commands.restart(session, shelf, replace(options, plain=True))
        except BaseException as error:
            if not _changed(session, before):
                raise
            return _failure(session, error)
        if first.exit_code:
            return first
    try:
        return baselining.take(session, prompts, trust=False, deep=deep)
    except BaseException as error:
        return _failure(session, error)


def _changed(session: Session, before: Unit) -> bool:
    """Whether a restart that raised had begun: interrupted twice, it may."""
    try:
        now = session.unit()
    except OpsctlError:
        return False  # it says itself that nothing was changed
    return (now.invocation_id, now.state) != (before.invocation_id, before.state)


def _back(session: Session, shelf: Shelf, options: Options) -> Report:
    session.emit(Event("baseline", "info", "starting it as before"))
    try:
        _free(session, options)
        return commands.restart(session, shelf, replace(options, plain=False))
    except BaseException as error:  # whatever it is, the operator has to know how the server runs
        return _failure(session, error)


def _free(session: Session, options: Options) -> None:
    """Give back the first restart's lock, which the second one takes for itself, and call off the
    guard where that one ended between stop and start.

    After a lost connection it is our lost program's, and the guard may wait for it.
    """
    try:
        with contextlib.suppress(Refused):  # it never came to the lock
            session.call("disarm_guard", well=False)
        session.remote.call("unlock")
    except Unreachable:
        session.emit(Event("reconnect", "start"))
        session.reconnect()
        session.lock(_WHY, max(options.lock_wait, options.budget or session.service.load.budget))
        session.call("disarm_guard", well=False)
        session.remote.call("unlock")
        session.emit(Event("reconnect", "ok"))


def _failure(session: Session, error: BaseException) -> Report:
    data: dict[str, Any] = {}
    if isinstance(error, OpsctlError):
        reason = Reason(code=error.code, message=error.message, remedy=error.remedy)
    elif isinstance(error, KeyboardInterrupt):
        reason = Reason(code=_INTERRUPTED, message="interrupted by the operator")
    else:
        data = {"evidence": {"traceback": "".join(traceback.format_exception(error))}}
        reason = Reason(
            code="bug",
            message=f"a bug in opsctl: {type(error).__name__}: {error}",
            remedy="report it with the traceback, which is in the evidence of --json",
        )
    session.emit(Event("baseline", "fail", reason.message))
    return _report(session, errors.EXIT_ROLLED_BACK, reason.message, (reason,), data)


def _joined(session: Session, taken: Report, back: Report) -> Report:
    kept = taken.exit_code == errors.EXIT_OK
    reasons = (*back.reasons, *taken.reasons)
    result = taken.summary if kept else f"{taken.summary}; no baseline is kept"
    if back.exit_code not in {errors.EXIT_OK, errors.EXIT_INCONCLUSIVE}:
        remedy = f"opsctl restart {session.host.name}"
        text = f"{_now(session)}: {back.summary}; {result}"
        reason = Reason(code="not_as_before", message=text, remedy=remedy)
        evidence = {**taken.data, "restart": back.data}
        return _report(session, errors.EXIT_NOT_RESTORED, text, (reason, *reasons), evidence)
    unproved = back.exit_code == errors.EXIT_INCONCLUSIVE
    text = f"{result}; it is started as before" + ", but its health is unproved" * unproved
    if kept:
        return taken.model_copy(update={"summary": text, "reasons": reasons})
    interrupted = any(reason.code == _INTERRUPTED for reason in taken.reasons)
    exit_code = errors.EXIT_INTERRUPTED if interrupted else errors.EXIT_ROLLED_BACK
    return _report(session, exit_code, text, (*taken.reasons, *back.reasons), taken.data)


def _now(session: Session) -> str:
    """How the server is left by a way back that failed."""
    try:
        unit = session.unit()
    except OpsctlError:
        return f"{session.service.unit} may run without speculation, or be down"
    if unit.down:
        return f"{unit.name} is down"
    if unit.plain:
        return f"{unit.name} runs without speculation"
    return f"{unit.name} is {unit.state}, and not proven"


def _report(
    session: Session, exit_code: int, text: str, reasons: tuple[Reason, ...], data: dict[str, Any]
) -> Report:
    return Report(
        command=_COMMAND,
        host=session.host.name,
        service=session.service.name,
        verdict="fail",
        exit_code=exit_code,
        summary=text,
        reasons=reasons,
        data=data,
    )
