"""opsctl unit: the unit's own files rendered, compared with the host's, installed, looked over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opsctl import errors
from opsctl import patchset as ps
from opsctl.errors import OpsctlError, Refused
from opsctl.events import Event
from opsctl.hostside import unitfiles
from opsctl.inventory import Service
from opsctl.playbook import Shelf
from opsctl.report import Reason, Report
from opsctl.rollout import engine, locking, unitplan
from opsctl.rollout.plan import require_install, require_state
from opsctl.rollout.reports import plain_report
from opsctl.rollout.run import Options, Run
from opsctl.rollout.session import Session
from opsctl.rollout.steps import stage_unit
from opsctl.rollout.unitplan import UnitInstall
from opsctl.text import counted
from opsctl.units import secrets
from opsctl.units.lint import lint as look_over
from opsctl.units.properties import Unit
from opsctl.units.subject import Finding, Subject
from opsctl.units.template import render_files
from opsctl.units.unitfile import UnitText


def rendered(service: Service, templates: Path) -> list[dict[str, str]]:
    """The files as they would be installed, {path, mode, text} each; of secrets the names.

    Raises:
        UsageError: the template is missing or faulty, or a value cannot be in a unit file.
    """
    found = [
        {"path": path, "mode": "0644", "text": text}
        for path, text in render_files(service, templates).items()
    ]
    if service.launch.secrets:
        path = unitfiles.beside(service.unit, unitfiles.SECRETS)
        found.append({"path": path, "mode": "0600", "text": secrets.shown(service)})
    return found


def diff(session: Session, templates: Path) -> Report:
    """The host's files and the command line that counts there, against the inventory's."""
    facts = session.inspect()
    require_state(facts)
    changes = unitplan.compare(session.service, facts, templates, needed=False)
    unit = Unit.from_show(facts["unit"])
    wanted = _command(session.service, templates)
    same_command = not unit.exists or unit.plain or list(unit.argv) == wanted
    reasons = []
    if changes:
        text = f"not as the inventory has it: {', '.join(change.path for change in changes)}"
        remedy = f"opsctl unit install {session.host.name} brings it in line"
        reasons.append(Reason(code="unit_differs", message=text, remedy=remedy))
    if unit.need_daemon_reload:
        text = "systemd has not read the files that are there"
        reasons.append(Reason(code="daemon_reload", message=text, remedy="systemctl daemon-reload"))
    if not same_command and not changes:
        text = "the files are the inventory's, and another drop-in has another ExecStart"
        remedy = f"opsctl unit lint {session.host.name} names it"
        reasons.append(Reason(code="exec_start_differs", message=text, remedy=remedy))
    summary = f"{session.service.unit} is as the inventory has it"
    if reasons:
        summary = f"{session.service.unit}: " + "; ".join(reason.message for reason in reasons)
    return plain_report(
        session,
        "unit diff",
        summary,
        data={
            "files": [change.to_json() for change in changes],
            "exec_start": {"same": same_command, "host": list(unit.argv), "inventory": wanted},
            "plain": unit.plain,
            "daemon_reload": unit.need_daemon_reload,
        },
    ).model_copy(update=_outcome(reasons))


def _outcome(reasons: list[Reason]) -> dict[str, Any]:
    if not reasons:
        return {}
    return {"verdict": "fail", "exit_code": errors.EXIT_REFUSED, "reasons": tuple(reasons)}


def _command(service: Service, templates: Path) -> list[str]:
    """The words of ExecStart as systemd shows those that it has read."""
    files = render_files(service, templates)
    path = f"{unitfiles.FOLDER}/{service.unit}"
    change = unitplan.UnitChange(path, None, files[path].encode())
    words = unitplan.arguments([change]) or []
    return " ".join(word.replace("%%", "%") for word in words).split()


def plan_install(session: Session, patches: Path, templates: Path) -> UnitInstall:
    """What an install would change.

    Raises:
        Refused: the host's records are damaged, a swap was cut off, a rollout was lost, files
            were changed by hand, or the set in place needs other arguments.
        UsageError: the template or a secret's reference is at fault.
    """
    facts = session.inspect()
    require_state(facts)
    require_install(facts)
    if facts["swap"]:
        raise Refused(
            "a swap was cut off, and the files may be a mixture",
            remedy=f"opsctl rollback {session.host.name} finishes it",
            code="preflight_swap",
        )
    terms = facts["guard"]["terms"]
    if terms is not None and not facts["lock"]:
        raise locking.guard_pending(session, terms, Unit.from_show(facts["unit"]))
    made = unitplan.install(session.service, facts, templates, session.host.name)
    _require_needs(session, patches, made)
    return made


def _require_needs(session: Session, patches: Path, made: UnitInstall) -> None:
    """The command line must be one that the set in place can do with, where that set is known."""
    argv, recorded = unitplan.arguments(made.changes), made.target["set"]
    if argv is None or recorded is None:
        return
    version = made.facts["install"]["version"]
    try:
        found = ps.find(patches, recorded["name"], session.service.distribution, version)
    except OpsctlError:
        return
    unmet = found.needs.unmet(argv) if found.digest == recorded["digest"] else []
    if unmet:
        raise Refused(
            f"{found.label}, which is in place, needs of the command line: {', '.join(unmet)}",
            remedy="add them to launch.args in the inventory",
            code="preflight_arguments",
        )


def install(
    session: Session, shelf: Shelf, made: UnitInstall, options: Options, *, restart: bool
) -> Report:
    """Put the unit's files in place as a generation; with `restart` as a deploy does it: guarded,
    proven, and undone when it does not serve. Without, the next start goes by them."""
    if not made.changes:
        text = "nothing to do: the unit is as the inventory has it"
        number = (made.facts["generation"] or {}).get("number")
        data = {"unit": made.to_json(), "noop": True}
        return plain_report(session, "unit install", text, generation=number, data=data)
    run = Run("deploy", session, options, unit_install=made)
    if not restart:
        return _install_live(run)
    report = engine.execute(run, shelf.load("deploy"))
    update: dict[str, Any] = {
        "command": "unit install",
        "data": {**report.data, "unit": made.to_json(), "restarted": True},
    }
    if report.exit_code in {errors.EXIT_OK, errors.EXIT_INCONCLUSIVE}:
        files = counted(len(made.changes), "file")
        update["summary"] = f"installed {files} as generation {run.target}: {report.summary}"
    return report.model_copy(update=update)


def _install_live(run: Run) -> Report:
    """No guard: the change is one operation of the host's own, marked as a swap while it lasts,
    and a guard that undid it would stop a service that runs."""
    session, made = run.session, run.unit_install
    assert made is not None
    generation = made.facts["generation"]
    why = run.options.why or "opsctl unit install"
    session.lock(why, run.options.lock_wait)
    now = session.call("lock_state")
    found = session.inspect()["generation"]
    if (found or {}).get("number") != (generation or {}).get("number") or now["terms"]:
        raise Refused(
            "another rollout of this service ended since this one was planned",
            remedy="look at `opsctl status` and run the command again",
            code="changed_since_plan",
        )
    session.emit(Event("stage", "ok", stage_unit(run)))
    try:
        done = session.call("swap", number=run.target, live=True, why=why, timeout=120)
    except Refused as error:
        verdict = {"why": error.message}
        session.call("conclude", number=run.target, status="abandoned", verdict=verdict)
        raise
    session.emit(Event("swap", "ok", f"{len(done['changed'])} changed, systemd has read them"))
    text = "it takes effect at the next start"
    unproved = {"verdict": "inconclusive", "reasons": [text]}
    session.call("conclude", number=run.target, status="unconfirmed", verdict=unproved)
    files = counted(len(made.changes), "file")
    host = session.host.name
    return plain_report(
        session,
        "unit install",
        f"installed {files} as generation {run.target}; {text} (opsctl restart {host}, or back: "
        f"opsctl rollback {host})",
        generation=run.target,
        data={"unit": made.to_json(), "restarted": False},
    )


def lint(session: Session, templates: Path) -> Report:
    """What is known to go wrong, in the unit as the inventory has it and as the host has it."""
    service = session.service
    facts = session.inspect()
    files = render_files(service, templates)
    model = service.model.path
    found = session.call("lint_facts", files=files, model=model, timeout=180)
    there = [(path, text) for path, text in found["files"]]
    foreign = [pair for pair in there if pair[0].endswith(".conf") and pair[0] not in files]
    wanted = [pair for pair in files.items() if pair[0].endswith((".conf", service.unit))]
    # As systemd reads drop-ins: by their names, wherever they lie.
    later = sorted([*wanted[1:], *foreign], key=lambda pair: Path(pair[0]).name)
    subjects = {
        "inventory": _subject(service, facts, found, [wanted[0], *later], frozenset(files)),
        "host": _subject(service, facts, found, there, frozenset(files), installed=True),
    }
    verify = {"inventory": found["verify"]["wanted"], "host": found["verify"]["installed"]}
    found_of: dict[Finding, list[str]] = {}
    for name, subject in subjects.items():
        for finding in look_over(subject, verify[name]) if subject is not None else ():
            found_of.setdefault(finding, []).append(name)
    rows = [
        {"of": names[0] if len(names) == 1 else "both", **finding.to_json()}
        for finding, names in found_of.items()
    ]
    rows.sort(key=lambda row: (row["status"] != "fail", row["name"]))
    return _lint_report(session, rows, exists=subjects["host"] is not None)


def _subject(
    service: Service,
    facts: Mapping[str, Any],
    found: Mapping[str, Any],
    files: list[tuple[str, str]],
    owned: frozenset[str],
    *,
    installed: bool = False,
) -> Subject | None:
    if not files:
        return None
    return Subject(
        text=UnitText.of(files),
        service=service,
        load_s=max([*facts["loads"], 0.0]) or service.load.budget,
        owned=owned,
        properties=found["properties"] if installed else {},
        manager=found["manager"],
        environment_files=found["environment_files"],
        model_bytes=found["model_bytes"],
        memory_bytes=found["memory_bytes"],
    )


def _lint_report(session: Session, rows: list[dict[str, str]], *, exists: bool) -> Report:
    fails = [row for row in rows if row["status"] == "fail"]
    warns = len(rows) - len(fails)
    text = "nothing is known to go wrong with it"
    if rows:
        text = f"{counted(len(fails), 'fault')} and {counted(warns, 'warning')}"
    absent = "" if exists else "; the host has no such unit"
    report = plain_report(
        session,
        "unit lint",
        f"{session.service.unit}: {text}{absent}",
        data={"findings": rows, "installed": exists},
    )
    reasons = [Reason(code=row["name"], message=_told(row), remedy=row["remedy"]) for row in fails]
    return report.model_copy(update=_outcome(reasons))


def _told(row: Mapping[str, str]) -> str:
    of = {"inventory": "as rendered", "host": "as installed"}.get(row["of"], "")
    where = ", ".join(part for part in (row["where"], of) if part)
    return f"{row['message']} ({where})" if where else row["message"]
