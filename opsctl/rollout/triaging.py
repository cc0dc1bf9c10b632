"""`opsctl triage`: everything about a service in one wave of questions, and the likely cause.

All is asked at once over one connection, and each question has a bound: a part that hangs is
named as missing and holds no other up.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opsctl.errors import OpsctlError, Unreachable
from opsctl.hostside import bounded
from opsctl.hostside.errors import HostFault
from opsctl.journal import Diagnosis, Entry, redact
from opsctl.report import Reason, Report
from opsctl.rollout import diagnosing
from opsctl.rollout.drift import changed_files, changed_unit_files, reinstalled_files
from opsctl.rollout.reports import EXITS
from opsctl.rollout.serving import READY_TEXT
from opsctl.rollout.session import Session, StartJournal
from opsctl.sglang import ServerError, arguments
from opsctl.triage import Facts, Judgement, Start, judge
from opsctl.triage.causes import Cause
from opsctl.triage.differences import differences
from opsctl.triage.facts import Http
from opsctl.triage.starts import starts
from opsctl.units.properties import Unit

# Seconds since the process began: until the connection stands, and until the last answer counts.
# With the judgement and the page that stays below 5.
CONNECT, ANSWERS = 3.6, 4.3
# … and what each gets all the same where this machine or the way is slow: a host that is there
# must not be called unreachable for that.
_LEAST_CONNECT, _LEAST_ANSWERS = 3.0, 2.0
# So much earlier the server must have answered, and the looks on the host be over: what hangs
# there is then named by the host, with the rest of what it found.
_MARGIN, _HOST_MARGIN = 0.3, 0.8
# Of the unit's journal, whole and, before these, of what may tell.
_LINES, _RECENT = 1500, 400
# … and of how many starts it is looked for whether they came up, however long ago.
_STARTS = 6
_LOG = 200

Answers = Mapping[str, Any]
Asked = Callable[[], Any]


def triage(session: Session, spent: float = 0.0) -> Report:
    """What is wrong, with the runbook for it; nothing is changed. `spent` seconds of its time
    are over.

    Raises:
        Unreachable: there is no connection in time.
    """
    began = time.time()
    answers, missing = collect(session, spent)
    facts = facts_of(session, answers, missing)
    return report_of(session, facts, answers, judge(facts), began)


def collect(
    session: Session, spent: float = 0.0, patience: float = 0.0
) -> tuple[Answers, dict[str, str]]:
    """What the host and the server say, and why the rest is not there; see `triage`. With
    `patience` the answers may take so many seconds, which a bundle has."""
    deadline = time.monotonic() + ANSWERS - spent
    _connect(session, max(_LEAST_CONNECT, CONNECT - spent, patience))
    left = max(_LEAST_ANSWERS, deadline - time.monotonic(), patience)
    bound = max(left - _HOST_MARGIN, patience)
    ask = functools.partial(session.call, timeout=left)
    unit = session.service.unit
    looks: dict[str, Asked] = {
        "unit": lambda: session.remote.call("unit_state", timeout=left, unit=unit),
        "inspect": lambda: ask("inspect", gpu=False),
        "machine": lambda: ask("machine", weights=weights(session), bound=bound),
        "orphans": lambda: ask("find_orphans", bound=bound),
        "journal": lambda: session.read("", _LINES, timeout=left).entries,
        "recent": lambda: session.journal(None, lines=_RECENT),
        "announced": lambda: session.journal(None, lines=_STARTS, grep=READY_TEXT),
        "generations": lambda: ask("generations", damaged=True),
        "audit": lambda: ask("audit_log", last=_LOG),
        "http": lambda: _http(session, left - _MARGIN),
        "health": lambda: _health(session, left - _MARGIN),
        "rules": _warm,
    }
    return gather(looks, left)


def gather(looks: Mapping[str, Asked], seconds: float) -> tuple[Answers, dict[str, str]]:
    """`bounded.gather` of questions to a host or a server."""
    return bounded.gather({n: functools.partial(_said, look) for n, look in looks.items()}, seconds)


def _connect(session: Session, seconds: float) -> None:
    """In a thread that can be left: a connection may hang where no timeout reaches."""
    session.tells_of_guard = False  # the page does
    failed: list[OpsctlError] = []

    def connect() -> None:
        try:
            _ = session.remote
        except OpsctlError as error:
            failed.append(error)

    _, missing = bounded.gather({"connection": connect}, seconds)
    if failed:
        raise failed[0]
    if missing:
        raise Unreachable(
            f"{session.host.name}: no connection within {seconds:.1f} s",
            remedy="is the host up? ping it, try `ssh` by hand, look at its console",
            code="no_connection",
        )


def _said(look: Asked) -> Any:
    try:
        return look()
    except (OpsctlError, ServerError) as error:
        raise HostFault("unanswered", error.message) from None


def _warm() -> None:
    """The rules take a while to load, in which the host is at work anyhow."""
    from opsctl.journal import diagnose

    diagnose([])


def _http(session: Session, seconds: float) -> dict[str, Any]:
    """Whether the port answers."""
    with session.client() as client:
        client.timeout = seconds
        try:
            models = client.models()
        except ServerError as error:
            http: Http = "refused" if error.cause == "refused" else "silent"
            return {"http": http, "text": error.message}
        return {"http": "answers", "text": f"serving {', '.join(models)}"}


def _unheard(answers: Answers, missing: Mapping[str, str]) -> Mapping[str, Any]:
    """A server that is silent still when the time is over, while the host itself answers."""
    why = missing.get("http", "")
    if "unit" not in answers or not why.startswith("no answer"):
        return {}
    return {"http": "silent", "text": why}


def _health(session: Session, seconds: float) -> bool | None:
    """Whether it computes, by /health; None where that gives no answer in time."""
    with session.client() as client:
        client.timeout = seconds
        began = time.monotonic()
        healthy = client.healthy()
        in_time = time.monotonic() - began < seconds
        return healthy if healthy or in_time else None


def weights(session: Session) -> dict[str, str]:
    """The folders of the target's and of the drafter's weights, by the inventory."""
    found = {"target": session.service.model.path}
    draft = arguments.value(session.service.launch.args, arguments.DRAFT)
    if draft is not None and draft.startswith("/"):
        found["drafter"] = draft
    return found


def facts_of(session: Session, answers: Answers, missing: Mapping[str, str]) -> Facts:
    """The answers as what rules can ask."""
    service = session.service
    host: Mapping[str, Any] = answers.get("inspect") or {}
    machine: Mapping[str, Any] = answers.get("machine") or {}
    shown = answers.get("unit") or host.get("unit")
    unit = Unit.from_show(shown) if shown else None
    http: Mapping[str, Any] = answers.get("http") or _unheard(answers, missing)
    orphans: Mapping[str, Any] = answers.get("orphans") or {}
    generation = host.get("generation")
    found = _starts(answers, unit, diagnosing.patched_by(host))
    absent = {**missing, **(machine.get("missing") or {}), **(orphans.get("missing") or {})}
    if not found:
        absent.setdefault("journal", "it has no line of this unit")
    elif "journal" in absent and "recent" in answers:
        absent["journal"] += f"; only the last {_RECENT} lines were read"
    for part in ("recent", "announced", "health"):
        absent.pop(part, None)
    return Facts(
        host=session.host.name,
        now=float(machine.get("time") or (unit.time if unit else 0.0) or time.time()),
        unit=unit,
        starts=found,
        http=http.get("http", "unasked"),
        http_text=str(http.get("text", "")),
        healthy=answers.get("health"),
        machine=machine,
        orphans=orphans.get("orphans") or (),
        generation=generation,
        generations=[g for g in answers.get("generations") or () if "fault" not in g],
        audit=answers.get("audit") or (),
        loads=host.get("loads") or (),
        lock=host.get("lock"),
        guard=(host.get("guard") or {}).get("terms"),
        swap=host.get("swap"),
        state_fault=host.get("state_fault"),
        drift=changed_files(host) if host else (),
        reinstalled=reinstalled_files(host) if host else (),
        unit_drift=changed_unit_files(host) if host else (),
        version=str((host.get("install") or {}).get("version") or ""),
        weights=weights(session),
        budget=service.load.budget,
        stall=service.load.stall,
        floor=service.smoke.min_accept_len if service.smoke.speculative else None,
        missing=absent,
    )


def _starts(answers: Answers, unit: Unit | None, patched: Sequence[str]) -> list[Start]:
    entries: Sequence[Entry] = answers.get("journal") or answers.get("recent") or ()
    known = {entry.cursor for entry in entries}
    earlier = [entry for entry in answers.get("announced") or () if entry.cursor not in known]
    entries = sorted([*earlier, *entries], key=lambda entry: entry.realtime)

    def diagnose(of_start: Sequence[Entry], invocation: str) -> Diagnosis:
        journal = StartJournal(list(of_start), invocation)
        look = unit or Unit.from_show({"ActiveState": "inactive"})
        return diagnosing.of_start(journal, look, patched)

    return starts(entries, diagnose)


def report_of(
    session: Session, facts: Facts, answers: Answers, judgement: Judgement, began: float
) -> Report:
    """The report: `data` is what the page shows, and what --json gives."""
    cause = judgement.cause
    reasons: tuple[Reason, ...] = ()
    text = "nothing is wrong: it runs, answers, and nothing of the machine is amiss"
    if cause is not None:
        text = f"{cause.name}: {cause.text}"
        remedy = "; ".join(filter(None, (_command(cause, facts.host), cause.remedy)))
        reasons = (Reason(code=cause.name, message=redact(cause.text), remedy=remedy),)
    took = round(time.time() - began, 3)
    return Report(
        command="triage",
        host=session.host.name,
        service=session.service.name,
        verdict=judgement.verdict,
        exit_code=EXITS[judgement.verdict],
        summary=redact(text),
        reasons=reasons,
        generation=(facts.generation or {}).get("number"),
        started_at=began,
        duration_s=took,
        data=_redacted(data_of(facts, judgement)),
    )


def _redacted(value: Any) -> Any:
    """Whatever the host says may quote a secret."""
    if isinstance(value, Mapping):
        return {key: _redacted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(item) for item in value]
    return redact(value) if isinstance(value, str) else value


def data_of(facts: Facts, judgement: Judgement) -> dict[str, Any]:
    """The report's `data`: what the page shows."""
    unit, present, worked = facts.unit, facts.present, facts.last_worked
    incident = facts.incident
    return {
        "cause": _cause(judgement.cause, facts.host),
        "also": [_cause(each, facts.host) for each in judgement.also],
        "unit": None
        if unit is None
        else {
            "name": unit.name,
            "state": unit.state,
            "exists": unit.exists,
            "invocation": unit.invocation_id,
            "n_restarts": unit.n_restarts,
            "main_pid": unit.main_pid,
            "active_for_s": unit.active_for,
            "phase": present.phase if present else "",
        },
        "http": {"state": facts.http, "text": facts.http_text, "healthy": facts.healthy},
        "diagnosis": None
        if incident is None
        else {"invocation": incident[0].invocation, **incident[1].to_json()},
        "starts": [_start(start) for start in facts.starts],
        "deploys": [_deploy(each) for each in facts.generations[-3:]],
        "acceptance": {
            "accept_len": present.accept_len if present else None,
            "decode_lines": present.decode_lines if present else 0,
            "floor": facts.floor,
        },
        "machine": facts.machine,
        "orphans": list(facts.orphans),
        "lock": facts.lock,
        "guard": facts.guard,
        "swap": facts.swap,
        "drift": [*facts.drift, *facts.unit_drift],
        "last_worked": worked.began if worked else None,
        "differences": differences(facts),
        "missing": dict(facts.missing),
    }


def _command(cause: Cause, host: str) -> str:
    return f"opsctl runbook run {cause.runbook} {host}" if cause.runbook else cause.command


def _cause(cause: Cause | None, host: str) -> dict[str, Any] | None:
    if cause is None:
        return None
    found: dict[str, Any] = cause.to_json()
    found["command"] = _command(cause, host)
    return found


def _start(start: Start) -> dict[str, Any]:
    return {
        "invocation": start.invocation,
        "began": start.began,
        "ended": start.ended,
        "ready_at": start.ready_at,
        "kind": start.diagnosis.kind,
        "incident": start.diagnosis.incident,
        "summary": start.diagnosis.summary,
    }


def _deploy(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: record.get(key) for key in ("number", "status", "set", "created", "who", "why")}
