"""Run a playbook's steps in order; whatever goes wrong, end in a known state and say which."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opsctl import errors
from opsctl.events import Event
from opsctl.playbook import Playbook, Use, use
from opsctl.playbook.spec import Arguments
from opsctl.report import Report
from opsctl.rollout import conditions, ending, guard_text, guarding, notifying, registry, steps
from opsctl.rollout.run import INTERRUPTED, Run, StepFailed, Told

# What remains of a rollback that the guard took to its target.
_PROOF = tuple(map(use, ("guard", "smoke", "confirm")))


@notifying.notified
def execute(run: Run, playbook: Playbook, uses: Iterable[Use] | None = None) -> Report:
    """Every step, and on a failure the way back. A `Refused` before any change is raised. `uses`
    are the steps where not all of the playbook's are wanted.

    Raises:
        OpsctlError: nothing was changed on the host, and why.
    """
    began = time.time()
    run.book = playbook
    failure = _attempt(run, playbook.steps if uses is None else uses)
    if failure is not None and failure.code == INTERRUPTED:
        run.session.emit(Event("interrupt", "warn", _on_interrupt(run, playbook)))
    restored: bool | None = None
    if failure is not None:
        failure, restored = _after(run, playbook, failure)
    if failure is None:
        return ending.finished(run, began)
    if restored is None and not _left_between(run, failure):
        guarding.disarm(run, well=False)
    return ending.failed(run, began, failure, restored=restored)


def _after(
    run: Run, playbook: Playbook, failure: StepFailed
) -> tuple[StepFailed | None, bool | None]:
    """What the playbook has for a failure: what is left of it, and whether what was there before
    is back, None where nobody tried. A step of it that fails keeps none of the others."""
    left: StepFailed | None = failure
    restored: bool | None = None
    for each in playbook.on_failure:
        if each.step != "restore":
            _attempt(run, (each,), ordered=False)
        elif left is not None and restored is None and _holds(run, each):
            left, restored = _recover(run, left)
    return left, restored


def _left_between(run: Run, failure: StepFailed) -> bool:
    """Whether a service that ran is stopped and not started, or its files are not whole: that is
    the guard's to end, as it would be were this side lost."""
    stopping = failure.code == INTERRUPTED and any(each.step == "stop" for each in run.told)
    stopped = ("stop" in run.done or stopping) and "start" not in run.done
    return run.guarded and (run.swapped or (stopped and run.was_up))


def _attempt(run: Run, uses: Iterable[Use], *, ordered: bool = True) -> StepFailed | None:
    """These steps; what ended them early, once the host is not as it was. Not `ordered`: what they
    stand on was done elsewhere."""
    try:
        return _forward(run, uses, ordered=ordered)
    except Exception as error:
        if not run.touched:
            _abandon(run, error.message if isinstance(error, errors.OpsctlError) else repr(error))
            raise
        return _failure_of(error)
    except KeyboardInterrupt:
        if not run.touched:
            _abandon(run, "interrupted")
            raise
        return StepFailed(INTERRUPTED, "interrupted by the operator")
    finally:
        run.close_watch()


def _forward(run: Run, uses: Iterable[Use], *, ordered: bool) -> StepFailed | None:
    try:
        for each in uses:
            if not _holds(run, each):
                continue
            if each.step == "finish":
                break
            _take(run, each, ordered=ordered)
    except StepFailed as failed:
        return failed
    if run.options.on_inconclusive == "restore" and run.unproved:
        return StepFailed("inconclusive", "; ".join(run.unproved))
    return None


def _holds(run: Run, each: Use) -> bool:
    """Whether a step is to run, as things are now; says so where it is not."""
    against = conditions.against(run, each)
    if against:
        run.told.append(Told(each.name, each.step, "skipped", against))
        run.session.emit(Event(each.name, "info", f"skipped: {against}"))
    return not against


def _take(run: Run, each: Use, *, ordered: bool) -> None:
    """One step of a playbook, if somebody wants it where that is asked."""
    group = each.spec.unmet(run.done) if ordered else None
    if group is not None and run.book is not None:
        raise errors.Refused(
            f"{each.name} needs {' or '.join(sorted(group))} before it, which was skipped",
            remedy=f"give it the same conditions in the playbook {run.book.name}",
            code="playbook_order",
        )
    run.arguments = each.arguments
    if ordered:
        run.began(each.name)
    try:
        if each.spec.asks:
            run.ask(each)
        message = _step(run, each.name, registry.ACTS[each.step])
    except BaseException as error:
        text = error.message if isinstance(error, StepFailed | errors.OpsctlError) else repr(error)
        run.told.append(Told(each.name, each.step, "failed", text))
        raise
    run.told.append(Told(each.name, each.step, "done", message))


def _on_interrupt(run: Run, playbook: Playbook) -> str:
    """What Ctrl-C set off, said at once: the way back takes as long as a load."""
    ways_back = [each for each in playbook.on_failure if each.step == "restore"]
    if all(conditions.against(run, each) for each in ways_back):
        left = "as it is, or to the guard if it is stopped"
        return f"interrupted: the service is left {left}; opsctl status {run.session.host.name}"
    back = "returning to what was there"
    if run.origin is not None:
        back = f"putting generation {run.origin} back"
    return f"interrupted: {back}" + ("; killing this leaves it to the guard" * run.guarded)


def _failure_of(error: Exception) -> StepFailed:
    """A bug of ours, too, must not leave the host stopped or half changed."""
    if isinstance(error, errors.OpsctlError):
        return StepFailed(error.code, error.message, remedy=error.remedy)
    return StepFailed(
        "bug",
        f"a bug in opsctl: {type(error).__name__}: {error}",
        remedy="report it with the traceback, which is in the evidence of --json",
        evidence={"traceback": "".join(traceback.format_exception(error))},
    )


def _step(run: Run, name: str, function: Callable[[Run], str]) -> str:
    emit = run.session.emit
    emit(Event(name, "start"))
    try:
        message = function(run)
    except StepFailed as failed:
        emit(Event(name, "fail", failed.message, failed.evidence))
        raise
    except errors.OpsctlError as error:
        emit(Event(name, "fail", error.message))
        raise
    emit(Event(name, "ok", message))
    return message


def _abandon(run: Run, why: str) -> None:
    """Nothing was changed; a generation that was staged is not left to look alive."""
    guarding.disarm(run, well=False)
    if run.command != "deploy" or run.target is None:
        return
    try:
        run.session.call("conclude", number=run.target, status="abandoned", verdict={"why": why})
    except errors.OpsctlError as error:
        run.session.emit(Event("abandon", "warn", error.message))


def _recover(run: Run, failure: StepFailed) -> tuple[StepFailed | None, bool]:
    """What is left of `failure`, and whether what was there before is back.

    A guard that acted while this side was away has the first word. It takes a rollback on to its
    target, which only remains to be proven then.
    """
    try:
        acted = run.guard_report or _reach_again(run)
    except (Exception, KeyboardInterrupt) as error:
        return failure, _not_restored(run, error)
    if acted is None:
        return failure, _restore(run, failure)
    if acted["to"] != run.target or not acted["healthy"]:
        return failure, _guard_restored(run, acted)
    run.session.emit(Event("guard", "ok", guard_text.describe(acted)))
    run.guard_report = None
    unproven = _attempt(run, _PROOF, ordered=False)
    return (None, False) if unproven is None else _recover(run, unproven)


def _not_restored(run: Run, error: BaseException) -> bool:
    message = "interrupted again: the way back is not finished"
    if isinstance(error, StepFailed):
        message = error.message
    elif isinstance(error, Exception):
        message = _failure_of(error).message
    run.session.emit(Event("restore", "fail", message))
    return False


def _restore(run: Run, failure: StepFailed) -> bool:
    """Put back the generation that was there and, if it was serving, prove that it serves."""
    emit = run.session.emit
    goal = f"generation {run.origin} is put back" if run.swapped else "the files are untouched"
    emit(Event("restore", "info", f"the rollout failed: {goal}"))
    failed_target, smoke, ready = run.target, run.smoke, run.ready
    run.undoing = failure.message
    run.arguments = Arguments()
    try:
        _renew_guard(run)
        if failure.code == steps.STARTED_AGAIN and not run.swapped:
            run.open_watch(ignore=run.previous_invocation)  # what they start is the old version
        else:
            _step(run, "stop", steps.stop)
        if run.swapped and run.origin is not None:
            run.target = run.origin
            _step(run, "swap", steps.swap)
        if run.was_active:
            run.strict = False  # the old version is held to what it always was: no floor
            for name in ("start", "wait", "smoke"):
                _step(run, name, registry.ACTS[name])
        elif run.was_up:  # it did not serve, and systemd went on trying, as it does from here on
            _step(run, "start", registry.ACTS["start"])
    except (Exception, KeyboardInterrupt) as error:
        acted = _acted_on_the_way_back(run, error)
        return _not_restored(run, error) if acted is None else _guard_restored(run, acted)
    finally:
        run.close_watch()
        run.target, run.smoke, run.ready = failed_target, smoke, ready
    _note_rolled_back(run, failure)
    guarding.disarm(run)
    generation = f"generation {run.origin}" if run.origin is not None else "the old version"
    state = "is in place; the unit was down before and stays so"
    if run.was_active:
        state = "serves again"
    elif run.was_up:
        state = "is in place and starts; it did not serve before"
    emit(Event("restore", "ok", f"{generation} {state}"))
    return True


def _renew_guard(run: Run) -> None:
    """Its terms were for the way there. On a full disk those stand, and lead back as well."""
    if not run.guarded:
        return
    try:
        _step(run, "guard", steps.guard)
    except errors.Unreachable:
        raise
    except errors.OpsctlError as error:
        run.session.emit(Event("guard", "warn", f"as it was armed before: {error.message}"))


def _note_rolled_back(run: Run, failure: StepFailed) -> None:
    """A record that cannot be written, on a full disk say, makes no difference to what serves."""
    if run.command != "deploy" or run.target is None:
        return
    verdict = {"verdict": "fail", "code": failure.code, "reasons": [failure.message]}
    try:
        run.session.call("conclude", number=run.target, status="rolled_back", verdict=verdict)
    except errors.OpsctlError as error:
        run.session.emit(Event("restore", "warn", f"not recorded: {error.message}"))


def _reach_again(run: Run) -> Mapping[str, Any] | None:
    """The failure may have been the connection's: then the guard may have acted, and said what."""
    try:
        run.session.unit()
    except errors.Unreachable:
        run.session.emit(Event("reconnect", "start"))
        run.session.reconnect()
        report = guarding.take_over(run)
        run.session.emit(Event("reconnect", "ok"))
        return report
    return None


def _acted_on_the_way_back(run: Run, error: BaseException) -> Mapping[str, Any] | None:
    """The way back was cut short; the guard may have finished it."""
    if run.guard_report is None and isinstance(error, errors.Unreachable):
        with contextlib.suppress(errors.OpsctlError):
            return _reach_again(run)
    return run.guard_report


def _guard_restored(run: Run, report: Mapping[str, Any]) -> bool:
    """Whether the guard, while this side was away, put back what was there."""
    run.guarded = False
    run.guard_report = report
    good = report["to"] == run.origin and report["healthy"] is not False
    run.session.emit(Event("restore", "ok" if good else "fail", guard_text.describe(report)))
    return good
