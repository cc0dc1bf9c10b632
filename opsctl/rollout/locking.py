"""The lock of a service by itself: who holds it, hold it, end its holder, wait for it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from opsctl import errors
from opsctl.errors import LockHeld, OpsctlError, Refused, UsageError
from opsctl.events import Event
from opsctl.report import Reason, Report
from opsctl.rollout import guard_text, lock_text
from opsctl.rollout.reports import plain_report
from opsctl.rollout.run import Options
from opsctl.rollout.session import Session, whoami
from opsctl.units.properties import Unit

# Seconds: how often a holder looks whether its connection still is, and how long a command
# that was interrupted may take to end by itself.
_LOOK_EVERY = 5.0
_GRACE = 5.0


def show(session: Session) -> Report:
    now = session.lock_state()
    return plain_report(session, "lock show", "; ".join(_lines(session, now)), data=_data(now))


def _lines(session: Session, now: Mapping[str, Any]) -> list[str]:
    lines = [lock_text.describe(now["holder"])]
    if now["terms"] is not None:
        if now["holder"] is None:
            lines.append(guard_text.pending(now["terms"], _look(session)))
            lines.append(guard_text.ways_out(session.host.name))
        else:
            lines.append("the guard on the host is armed, and acts when this holder is lost")
    return lines


def _look(session: Session) -> Unit | None:
    """At the unit; without it the time of the guard's act is not known, and no more is lost."""
    with contextlib.suppress(OpsctlError):
        return session.unit()
    return None


def _data(now: Mapping[str, Any]) -> dict[str, Any]:
    return {"holder": now["holder"], "guard": {key: now[key] for key in ("terms", "report")}}


def release(session: Session, now: Mapping[str, Any]) -> Report:
    """End the program that holds the lock; `now` is the `lock_state` that was looked at.

    Raises:
        Refused: the guard holds it, or somebody else than in `now`.
        LockHeld: the holder could not be ended.
    """
    holder = now["holder"]
    if holder is None:
        text = "nothing to do: nobody holds the lock"
        return plain_report(session, "lock release", text, data={"released": None})
    require_releasable(session, now)
    again = session.lock_state()["holder"]
    if again is not None and again.get("pid") != holder.get("pid"):
        raise Refused(
            f"meanwhile another holds it: {lock_text.describe(again)}",
            remedy="run the command again",
            code="lock_changed",
        )
    ended = session.call("release_lock", who=whoami())
    text = "nothing to do: it was released meanwhile" if ended is None else "the lock is free"
    if ended is not None:
        text += f": ended was {lock_text.whose(ended)}"
    if ended is not None and now["terms"] is not None:
        text += "; its rollout was not over, and the guard on the host now acts: "
        text += f"opsctl status {session.host.name}"
    return plain_report(session, "lock release", text, data={"released": ended})


def require_releasable(session: Session, now: Mapping[str, Any]) -> None:
    """The guard's own lock is not for taking: it would start again where it was."""
    if now["by_guard"] and now["terms"] is not None:
        raise Refused(
            "the guard on the host holds the lock: it puts the service right now",
            remedy=f"opsctl status {session.host.name} says how far it is; --lock-wait on deploy, "
            "restart and rollback waits for it",
            code="guard_at_work",
        )


def take(session: Session, options: Options, argv: Sequence[str] = (), *, quiet: bool) -> Report:
    """Hold the lock while `argv` runs on this machine, or until Ctrl-C.

    The lock is the host program's, which ends with this client. `quiet` keeps the command's
    output from stdout.

    Raises:
        LockHeld: somebody else has it, or a lost rollout waits for its end (`guard_pending`).
        UsageError: there is no such command.
    """
    why = options.why or (f"running {argv[0]}" if argv else "held by hand")
    _lock_when_settled(session, options, why)
    session.emit(Event("lock", "ok", f"held: {why}" + ("" if argv else "; Ctrl-C frees it")))
    began = time.time()
    status: int | None = None
    if argv:
        status = _run(session, argv, quiet=quiet)
    else:
        _hold(session)
    lost = not _still_held(session)
    if not lost:
        with contextlib.suppress(OpsctlError):
            session.remote.call("unlock")
    held = round(time.time() - began, 3)
    if lost:
        return _lost(session, status, held)
    report = plain_report(session, "lock take", f"held for {held:.0f} s, free again")
    update: dict[str, Any] = {
        "started_at": began,
        "duration_s": held,
        "data": {"command": list(argv), "status": status},
    }
    if status:
        update |= {
            "verdict": "fail",
            "exit_code": status,
            "summary": f"{argv[0]} ended with {status}; {report.summary}",
        }
    return report.model_copy(update=update)


def _lock_when_settled(session: Session, options: Options, why: str) -> None:
    """The guard of a lost rollout waits for this lock: held by hand, it would wait without end."""
    while True:
        options = settle(session, options)
        session.lock(why, options.lock_wait)
        terms = session.lock_state()["terms"]
        if terms is None:
            return
        session.remote.call("unlock")
        if not options.lock_wait:
            raise guard_pending(session, terms)


def guard_pending(session: Session, terms: Mapping[str, Any], unit: Unit | None = None) -> LockHeld:
    """That a rollout which was lost has an end on its way; when, by a look at the `unit`."""
    return LockHeld(
        guard_text.pending(terms, unit),
        remedy=guard_text.ways_out(session.host.name),
        code="guard_pending",
    )


def _lost(session: Session, status: int | None, held: float) -> Report:
    text = f"the lock was lost while it was held, after at most {held:.0f} s"
    remedy = "somebody ended this holder, or the connection died; look before you go on"
    return Report(
        command="lock take",
        host=session.host.name,
        service=session.service.name,
        verdict="fail",
        exit_code=status or errors.EXIT_UNREACHABLE,
        summary=text,
        reasons=(Reason(code="lock_lost", message=text, remedy=remedy),),
        duration_s=held,
        data={"status": status},
    )


def _still_held(session: Session) -> bool:
    try:
        holder = session.lock_state()["holder"]
    except OpsctlError:
        return False
    return holder is not None and holder.get("token") == session.token


def _hold(session: Session) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        while _still_held(session):
            time.sleep(_LOOK_EVERY)


def _run(session: Session, argv: Sequence[str], *, quiet: bool) -> int:
    try:
        process = subprocess.Popen(list(argv), stdout=sys.stderr if quiet else None)
    except OSError as error:
        raise UsageError(
            f"{argv[0]}: {error.strerror}", remedy="a command of this machine follows the --"
        ) from None
    held = True
    while True:
        try:
            return _exit_status(process.wait(_LOOK_EVERY))
        except subprocess.TimeoutExpired:
            if held and not _still_held(session):
                held = False
                session.emit(Event("lock", "fail", f"lost, while {argv[0]} still runs"))
        except KeyboardInterrupt:
            return _exit_status(_end(process))


def _end(process: subprocess.Popen[bytes]) -> int:
    """Ctrl-C reached the command as well; a signal to this process alone did not."""
    for send in (process.terminate, process.kill):
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            return process.wait(_GRACE)
        send()
    return process.wait()


def _exit_status(returncode: int) -> int:
    return 128 - returncode if returncode < 0 else returncode


def settle(session: Session, options: Options, *, guard: bool = True) -> Options:
    """Wait for as long as `lock_wait` while somebody is at work, and with `guard` also until the
    guard has ended a lost rollout. What is left of it.

    The look at the host comes after this, so that it sees how that ended.

    Raises:
        LockHeld: somebody is at work still.
    """
    deadline = time.monotonic() + options.lock_wait
    told: Mapping[str, Any] = {}
    while options.lock_wait:
        now = session.lock_state()
        if now["holder"] is None and not (guard and now["terms"]):
            break
        left = deadline - time.monotonic()
        if left <= 0:
            if now["holder"] is not None:
                raise lock_text.held(now, session.host.name, waited=options.lock_wait)
            return replace(options, lock_wait=0.0)
        # Its age is another at each look.
        cause = {**(now["holder"] or now["terms"]), "held_s": None}
        if cause != told:
            told, held = cause, now["holder"] is not None
            text = lock_text.describe(now["holder"]) if held else guard_text.pending(now["terms"])
            session.emit(Event("lock", "info", f"waiting: {text}"))
        time.sleep(min(1.0, left))
    return replace(options, lock_wait=max(0.0, deadline - time.monotonic()))
