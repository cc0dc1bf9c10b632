"""Whoever the inventory names is told of a rollout: when it begins, and how it ended.

It reads the rollout's events, as the terminal does, and sends from the courier's threads: the
service is down meanwhile, and nothing waits for a receiver before the rollout has ended. What
fails is a `warn` event, and no more. The guard's own notice comes from the host (`hostside.notice`)
with the terms that `guards_terms` makes.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Concatenate, ParamSpec

from opsctl import errors
from opsctl.events import Emit, Event
from opsctl.inventory.notices import Occasion
from opsctl.notices import Courier, Happening, Notice, Outcome, Side, named
from opsctl.report import Reason, Report, of_error
from opsctl.rollout.run import Run
from opsctl.rollout.session import Session, whoami
from opsctl.text import counted

P = ParamSpec("P")

# What is under way when the rollout has ended is waited for so long, seconds.
_AT_THE_END = 10.0
_TEST = 20.0  # a test is there to be waited for
_LOOK = 5.0

# The first of these to begin is when the host is about to change; of a step by another name the
# run itself knows.
_CHANGES = frozenset({"stop", "swap", "start"})

_ENDS: dict[int, Occasion] = {
    errors.EXIT_OK: "success",
    errors.EXIT_INCONCLUSIVE: "inconclusive",
    errors.EXIT_ROLLED_BACK: "rollback",
    errors.EXIT_INTERRUPTED: "interrupted",
}


def notified(
    execute: Callable[Concatenate[Run, P], Report],
) -> Callable[Concatenate[Run, P], Report]:
    """`execute`, with whoever is to know of it told."""

    @functools.wraps(execute)
    def told(run: Run, /, *args: P.args, **kwargs: P.kwargs) -> Report:
        if not run.session.service.notices:
            return execute(run, *args, **kwargs)
        with _Teller(run) as teller:
            report = execute(run, *args, **kwargs)
            teller.ended(report)
            return report

    return told


def tell(session: Session, report: Report, why: str) -> Report:
    """`report` itself, once whoever is to know of it was told: of a command without steps that
    ends a rollout."""
    if session.service.notices:
        courier = Courier(session.service.notices)
        side = Side(report.generation)
        with _harmless(session.emit):
            courier.send(_of_report(session, report, why=why, origin=side, goal=side))
        report_failures(courier.close(_AT_THE_END), session.emit)
    return report


def send_test(session: Session, *, from_host: bool = False) -> Report:
    """Send a test to every webhook of the service; `from_host`: also from there, as the guard
    would, to those that it tells.

    Raises:
        UsageError: the service has none.
        Unreachable: the host was to send, and there is no conversation with it.
    """
    webhooks = session.service.notices or ()
    if not webhooks:
        raise errors.UsageError(
            f"{session.service.name} on {session.host.name} has no notices",
            remedy="add them to the inventory: docs/notices.md",
            code="no_notices",
        )
    began = time.time()
    notice = _notice(session, "test", command="notices test", summary="Nothing has happened.")
    courier = Courier(webhooks)
    courier.send(notice)
    rows: list[dict[str, Any]] = []
    if from_host and (terms := guards_terms(session)) is not None:
        found = session.remote.call("tell", hooks=terms["hooks"], notice=notice.record())
        rows += [
            {"webhook": each["label"], "from": "the host", "error": each["error"]} for each in found
        ]
    rows[:0] = [
        {"webhook": each.webhook, "from": "here", "error": each.error}
        for each in courier.close(_TEST)
    ]
    failed = [row for row in rows if row["error"]]
    return Report(
        command="notices test",
        host=session.host.name,
        service=session.service.name,
        verdict="fail" if failed else "pass",
        exit_code=errors.EXIT_REFUSED if failed else errors.EXIT_OK,
        summary=f"{len(rows) - len(failed)} of {counted(len(rows), 'notice')} accepted",
        reasons=tuple(
            Reason(
                code="notice_failed",
                message=f"{row['webhook']}, from {row['from']}: {row['error']}",
                remedy="docs/notices.md says what each fault means",
            )
            for row in failed
        ),
        started_at=began,
        duration_s=round(time.time() - began, 3),
        data={"notices": rows},
    )


class _Teller:
    """Of one rollout; its events pass through here while it is entered."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._emit = run.session.emit
        self._courier = Courier(run.session.service.notices or ())
        self._goal = Side()
        self._told = 0.0  # when, Unix seconds

    def __enter__(self) -> _Teller:
        self._run.session.emit = self._hear
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.ended(self._raised(error))
        self._run.session.emit = self._emit
        report_failures(self._courier.close(_AT_THE_END), self._emit)

    def _hear(self, event: Event) -> None:
        changes = event.state == "start" and event.step in _CHANGES
        if (changes or self._run.touched) and not self._told:
            self._told = event.at
            with _harmless(self._emit):
                self._goal = goal_of(self._run)
                facts = self._facts()
                self._courier.send(_notice(self._run.session, "start", at=event.at, **facts))
        self._emit(event)

    def ended(self, report: Report) -> None:
        """A rollout that never came to change anything is nobody's but its operator's."""
        if self._told:
            with _harmless(self._emit):
                self._courier.send(_of_report(self._run.session, report, **self._facts()))

    def _raised(self, error: BaseException) -> Report:
        """It was announced, and came to nothing: nothing was changed."""
        command = self._run.command
        if isinstance(error, errors.OpsctlError):
            report = of_error(command, error)
        else:
            interrupted = isinstance(error, KeyboardInterrupt)
            text = "interrupted" if interrupted else f"a bug in opsctl: {type(error).__name__}"
            status = errors.EXIT_INTERRUPTED if interrupted else 1
            report = Report(command=command, verdict="error", exit_code=status, summary=text)
        took = round(time.time() - self._told, 3)
        text = f"{report.summary}; nothing was changed"
        update = {"summary": text, "generation": self._run.origin, "duration_s": took}
        return report.model_copy(update=update)

    def _facts(self) -> dict[str, Any]:
        run = self._run
        return {
            "command": "gate" if run.trial is not None else run.command,
            "why": run.options.why,
            "origin": origin_of(run),
            "goal": self._goal,
        }


@contextlib.contextmanager
def _harmless(emit: Emit) -> Iterator[None]:
    """A bug of ours in the telling is no reason for a rollout to fail either."""
    try:
        yield
    except Exception as error:
        text = f"nobody was told: a bug in opsctl: {type(error).__name__}"
        emit(Event("notices", "warn", text))


def _of_report(session: Session, report: Report, **facts: Any) -> Notice:
    event = _ENDS.get(report.exit_code, "failure")
    reason = report.reasons[0] if report.reasons else None
    cause = "" if event == "success" else report.summary
    if event == "inconclusive" and reason is not None:
        cause = reason.message
    content: dict[str, Any] = {
        "command": report.command,
        "generation": report.generation,
        "verdict": report.verdict,
        "exit_code": report.exit_code,
        "duration_s": report.duration_s,
        "summary": report.summary,
        "code": reason.code if reason else "",
        "cause": cause,
        "remedy": reason.remedy if reason else "",
    }
    return _notice(session, event, **(content | facts))


def _notice(session: Session, event: Happening, **content: Any) -> Notice:
    return Notice(
        event=event,
        host=session.host.name,
        service=session.service.name,
        who=whoami(),
        next=next_command(event, session),
        **({"at": time.time()} | content),
    )


def report_failures(outcomes: Iterable[Outcome], emit: Emit) -> None:
    """One event for each webhook that something did not get to."""
    failed: dict[tuple[str, str], list[str]] = {}
    for outcome in outcomes:
        if outcome.error:
            failed.setdefault((outcome.webhook, outcome.error), []).append(outcome.event)
    for (webhook, error), events in failed.items():
        emit(Event("notices", "warn", f"{webhook}: not told of {', '.join(events)}: {error}"))


def origin_of(run: Run) -> Side:
    recorded = run.facts.get("generation")
    name = run.plan.installed if run.plan is not None else (recorded or {}).get("set")
    return Side(run.origin, _named(name))


def goal_of(run: Run) -> Side:
    """A deploy's by its plan; a rollback's is recorded on the host, a restart has none."""
    if run.plan is not None:
        return Side(run.target, run.plan.patchset.label)
    if run.target is None:
        return origin_of(run)
    recorded: Mapping[str, Any] = {}
    with contextlib.suppress(errors.OpsctlError):
        known = run.session.call("generations", timeout=_LOOK)
        recorded = next((each for each in known if each["number"] == run.target), recorded)
    return Side(run.target, _named(recorded.get("set")))


def _named(patch_set: Mapping[str, Any] | None) -> str | None:
    return f"{patch_set['name']} {patch_set['version']}" if patch_set else None


def next_command(event: Happening, session: Session) -> str:
    """What to type next, complete: it is read on a phone and typed elsewhere."""
    verbs: dict[Happening, str] = {
        "start": "wait",
        "inconclusive": "smoke",
        "rollback": "diagnose",
    }
    several = len(session.host.services) > 1
    service = f" --service {session.service.name}" if several else ""
    return f"opsctl {verbs.get(event, 'status')} {session.host.name}{service}"


def guards_terms(session: Session) -> dict[str, Any] | None:
    """Whom the guard on the host is to tell, as `hostside.notice` takes it; None for nobody.

    A URL that cannot be read now is left out: the courier says so at the rollout's end.
    """
    hooks = []
    for label, webhook in named(session.service.notices or ()):
        if "guard" in webhook.on:
            with contextlib.suppress(LookupError):
                url = webhook.address()
                hooks.append({"url": url, "form": webhook.form, "label": label})
    if not hooks:
        return None
    return {
        "host": session.host.name,
        "next": next_command("guard", session),
        "hooks": hooks,
    }
