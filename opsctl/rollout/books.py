"""Run a playbook or a runbook by its name: whole, from a step on, or as a rehearsal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Final, Literal

from opsctl import errors
from opsctl.errors import OpsctlError, Refused, UsageError
from opsctl.events import Event
from opsctl.playbook import CONDITIONS, Beginning, Playbook, Use
from opsctl.playbook.spec import PROOFS
from opsctl.report import Reason, Report
from opsctl.rollout import conditions, engine, lock_text, progress, registry
from opsctl.rollout.plan import Plan
from opsctl.rollout.run import INTERRUPTED, Options, Run, StepFailed, Told
from opsctl.rollout.session import Session
from opsctl.text import moment

# A rehearsal does not wait for what these wait for.
_WAITS: Final = frozenset({"wait", "follow", "drain"})
# An entry of so long ago, seconds, is of a host that may be another by now.
_STALE: Final = 86400.0
# A proof that ended so says nothing against the start: it is made again of the same one.
_START_STANDS: Final = frozenset({INTERRUPTED, "budget_exceeded", "never_answered", "wrong_model"})

Kind = Literal["deploy", "rollback", "restart", "gate"]


def kind_of(book: Playbook) -> Kind:
    """What it does to the host at the most; see `Run.command`."""
    if book.has("stage"):
        return "deploy"
    if book.has("swap"):
        return "rollback"
    changes = any(use.spec.effect == "changes" for use in book.steps)
    return "restart" if changes else "gate"


def run(
    session: Session,
    book: Playbook,
    options: Options,
    *,
    plan: Plan | None = None,
    begin: str | None = None,
    ask: Callable[[Use], None] = lambda _: None,
    dry: bool = False,
) -> Report:
    """All of `book`, or from the step `begin` on. `plan` is for one that stages. `ask` is asked
    before each step that changes something, and raises where the answer is no. `dry` does what
    only reads, up to the first step that changes something, and says what would follow.

    Raises:
        UsageError: `begin` is no step of it, or the rest cannot stand without what is left out.
        Refused: it cannot as things are on the host, where it could otherwise.
        OpsctlError: nothing was changed on the host, and why.
    """
    beginning = Beginning((), book.steps)
    if begin is not None:
        beginning = _beginning(book, begin, session.host.name)
    rollout = Run(kind_of(book), session, options, plan=plan, ask=ask)
    uses = _checked(rollout, book, begin or "", beginning)
    if dry:
        return _rehearse(rollout, book, uses, len(beginning.steps))
    log = progress.Log(session.host.name, session.service.name, book.name)
    rollout.began = log.begin
    try:
        report = engine.execute(rollout, book, uses)
    except OpsctlError as error:
        raise _with_way_on(error, book, rollout) from None
    if report.exit_code in (errors.EXIT_OK, errors.EXIT_ROLLED_BACK):
        log.forget()
    return _told(report, book, rollout)


def _beginning(book: Playbook, begin: str, host: str) -> Beginning:
    try:
        return book.beginning_at(begin)
    except ValueError as error:
        remedy = f"opsctl {_noun(book)} show {book.name} lists its steps; without --from all run"
        if any(use.name == begin for use in book.steps):
            remedy = _command(book, host, book.nearest_beginning(begin))
        raise UsageError(str(error), remedy=remedy, code="cannot_begin") from None


def _checked(run: Run, book: Playbook, begin: str, beginning: Beginning) -> Iterator[Use]:
    """Its looks, then the rest of its steps, if that can do without what is left out.

    Raises:
        Refused: it cannot, by what the looks found.
    """
    yield from beginning.looks
    for use, why in beginning.lacking:
        if not conditions.against(run, use):
            raise Refused(
                f"{why}, and {' and '.join(CONDITIONS[name] for name in use.when)}",
                remedy=_command(book, run.session.host.name, book.nearest_beginning(begin)),
                code="cannot_begin",
            )
    yield from beginning.rest


def _command(book: Playbook, host: str, begin: str) -> str:
    return f"opsctl {_noun(book)} run {book.name} {host} --from {begin}"


def _noun(book: Playbook) -> str:
    return "runbook" if book.runbook is not None else "playbook"


def _told(report: Report, book: Playbook, rollout: Run) -> Report:
    """The engine's report as this command's, with how to go on where it did not end well."""
    reasons = report.reasons
    if report.exit_code == errors.EXIT_NOT_RESTORED and report.data["restored"] is None:
        way_on = _way_on(book, rollout, reasons[0].code)
        if way_on:
            going_on = Reason(code="way_on", message="to go on from there", remedy=way_on)
            reasons = (*reasons, going_on)
    return report.model_copy(
        update={
            "command": f"{_noun(book)} run",
            "summary": f"{book.name}: {report.summary}",
            "reasons": reasons,
        }
    )


def _with_way_on(error: OpsctlError, book: Playbook, rollout: Run) -> OpsctlError:
    """Declined, say, or refused in the middle, with nothing changed."""
    way_on = _way_on(book, rollout, error.code)
    if way_on:
        error.remedy = f"{error.remedy}; to go on: {way_on}" if error.remedy else way_on
    return error


def _way_on(book: Playbook, rollout: Run, code: str) -> str:
    """The command that goes on where this ended of `code`, if it would be let and have anything to
    do: what the guard ends, or has ended, is begun afresh."""
    failed = next((told for told in rollout.told if told.outcome == "failed"), None)
    names = [use.name for use in book.steps]
    if failed is None or failed.name not in names or rollout.guarded or rollout.guard_report:
        return ""
    begin = failed.name
    if failed.step in PROOFS and code not in _START_STANDS:
        before = book.steps[: names.index(begin)]
        starts = [use.name for use in before if use.step == "stop"]
        starts = starts or [use.name for use in before if use.step == "start"]
        begin = starts[-1] if starts else begin
    begin = book.nearest_beginning(begin, lambda use: not conditions.against(rollout, use))
    longer = f" --budget {2 * rollout.budget:.0f}s" if code == "budget_exceeded" else ""
    return _command(book, rollout.session.host.name, begin) + longer


def _rehearse(rollout: Run, book: Playbook, uses: Iterable[Use], total: int) -> Report:
    """What would be done, in order. Steps that read are done as long as nothing would be changed
    before them: after that, what they found would not be what they will find."""
    began = time.time()
    emit = rollout.session.emit
    rollout.book = book
    changed = False
    for use in uses:
        against = "" if changed else conditions.against(rollout, use)
        if against:
            rollout.told.append(Told(use.name, use.step, "skipped", against))
            emit(Event(use.name, "info", f"would be skipped: {against}"))
            continue
        if use.step == "finish" and not changed:
            rollout.told.append(Told(use.name, use.step, "would", "it would end here"))
            emit(Event(use.name, "info", "it would end here"))
            break
        if use.step == "lock" and (holder := _held(rollout)):
            rollout.told.append(Told(use.name, use.step, "failed", holder))
            emit(Event(use.name, "fail", holder))
            break
        if use.spec.effect == "reads" and not changed and use.step not in _WAITS:
            failure = _look(rollout, use)
            if failure is not None:
                break
            continue
        changed = changed or use.spec.effect == "changes"
        text = _would(use, changed=changed)
        rollout.told.append(Told(use.name, use.step, "would", text))
        emit(Event(use.name, "info", f"would: {text}"))
    rollout.close_watch()
    failed = next((told for told in rollout.told if told.outcome == "failed"), None)
    count = sum(told.outcome == "would" for told in rollout.told)
    text = f"{book.name}: {count} of {total} steps would follow; nothing was changed"
    if failed is not None:
        text = f"{book.name}: it would end at {failed.name}: {failed.message}"
    return Report(
        command=f"{_noun(book)} run",
        host=rollout.session.host.name,
        service=rollout.session.service.name,
        verdict="fail" if failed else "pass",
        exit_code=errors.EXIT_REFUSED if failed else errors.EXIT_OK,
        summary=text,
        started_at=began,
        duration_s=round(time.time() - began, 3),
        data={
            "playbook": book.name,
            "dry_run": True,
            "steps": [asdict(told) for told in rollout.told],
        },
    )


def _look(rollout: Run, use: Use) -> StepFailed | OpsctlError | None:
    """A step that reads, for real; what it failed of."""
    emit = rollout.session.emit
    rollout.arguments = use.arguments
    try:
        message = registry.ACTS[use.step](rollout)
    except (StepFailed, OpsctlError) as error:
        rollout.told.append(Told(use.name, use.step, "failed", error.message))
        emit(Event(use.name, "fail", error.message))
        return error
    rollout.told.append(Told(use.name, use.step, "done", message))
    emit(Event(use.name, "ok", message))
    return None


def _would(use: Use, *, changed: bool) -> str:
    """What a step does, and under which conditions once those cannot be known yet."""
    text = use.spec.does
    if changed:
        held = [f"if {CONDITIONS[name]}" for name in use.when]
        held += [f"unless {CONDITIONS[name]}" for name in use.unless]
        text += f", {' and '.join(held)}" if held else ""
    return text


def _held(rollout: Run) -> str:
    """Who holds the lock, for a person; empty where nobody does."""
    holder = rollout.session.lock_state().get("holder")
    return lock_text.describe(holder) if holder else ""


def resumed(session: Session, book: Playbook) -> str:
    """The step at which `book` was begun here last and did not end well.

    Raises:
        UsageError: there is none, or what it would go on with is another by now: it is a day old,
            or the guard on the host has ended that rollout.
    """
    last = progress.read(session.host.name, session.service.name)
    afresh = "without --resume it runs from its first step"
    if last is None or last.playbook != book.name:
        raise UsageError(
            f"{book.name} was not begun from this machine last, or it ended well",
            remedy=afresh,
            code="nothing_to_resume",
        )
    when = f"{book.name} ended at {last.step} at {moment(last.at)}"
    report = session.lock_state().get("report") or {}
    guarded = float(report.get("at") or 0.0) > last.at
    if guarded or time.time() - last.at > _STALE:
        why = "the guard on the host has ended it since" if guarded else "that is too long ago"
        raise UsageError(f"{when}: {why}", remedy=afresh, code="nothing_to_resume")
    session.emit(Event("resume", "info", f"{when}; going on there"))
    return last.step
