"""status, doctor and logs: what a host says, changing nothing."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli import options as opt
from opsctl.cli.context import Command, on_host
from opsctl.cli.terminal import finding_lines, plain
from opsctl.errors import UsageError
from opsctl.text import counted, duration

if TYPE_CHECKING:
    from opsctl.journal import Entry
    from opsctl.report import Report


def register(app: typer.Typer) -> None:
    """Add this module's commands to `app`."""
    for function in (status, doctor, logs):
        app.command()(on_host(function))


def status(command: Command, session: Any) -> Report:
    """Unit, version, generation, lock and last loads.

    \b
    Examples:
      opsctl status ct200
      opsctl status ct200 --json
    """
    from opsctl.rollout import observe

    report = observe.status(session)
    if not command.json:
        _table(_status_rows(report.data))
    return report


def doctor(command: Command, session: Any, patches: opt.PatchesOption = None) -> Report:
    """Find everything that would make a deploy fail, each with its remedy.

    \b
    Examples:
      opsctl doctor ct200
    """
    from opsctl.rollout import observe

    report = observe.doctor(session, command.patches(patches))
    if not command.json:
        sys.stdout.write(finding_lines(report.data["findings"]))
    return report


def logs(
    command: Command,
    session: Any,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="The last so many.")] = 100,
    grep: Annotated[
        str | None,
        typer.Option("--grep", "-g", help="Only matching lines (on the host).", show_default=False),
    ] = None,
    every_start: Annotated[
        bool, typer.Option("--all-starts", help="Not only the present start.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
) -> Report | None:
    """The journal of the present start, systemd's own lines about it included.

    \b
    Examples:
      opsctl logs ct200 --follow
      opsctl logs ct200 --all-starts --grep 'Traceback|Error' -n 200
    """
    from opsctl.rollout.reports import plain_report

    if follow and command.json:
        raise UsageError("--follow has no end, so no report", remedy="leave one of them out")
    invocation = None if every_start else session.unit().invocation_id or None
    entries = session.journal(invocation, lines=lines, grep=grep)
    if not command.json:
        _print(entries)
    if follow:
        _follow(session, entries[-1].realtime if entries else 0.0)
        return None
    data = {"invocation": invocation, "entries": [_entry(e) for e in entries]}
    return plain_report(session, "logs", counted(len(entries), "line"), data=data)


def _follow(session: Any, after: float) -> None:
    from opsctl.journal import Entry

    try:
        with session.watch() as watch:
            while True:
                item = watch.get(1.0)
                if item and "entries" in item:
                    entries = [Entry.from_json(entry) for entry in item["entries"]]
                    _print([entry for entry in entries if entry.realtime > after])
    except KeyboardInterrupt:
        return


def _print(entries: list[Entry]) -> None:
    from opsctl.journal import redact  # SGLang logs its arguments, the API key among them

    for entry in entries:
        stamp = time.strftime("%b %d %H:%M:%S", time.localtime(entry.realtime))
        pid = f"[{entry.pid}]" if entry.pid else ""
        for line in redact(entry.message).splitlines() or [""]:
            sys.stdout.write(f"{stamp} {entry.identifier}{pid}: {line}\n")
    sys.stdout.flush()


def _entry(entry: Entry) -> dict[str, object]:
    from opsctl.journal import redact

    return {
        "realtime": entry.realtime,
        "identifier": entry.identifier,
        "pid": entry.pid,
        "priority": entry.priority,
        "message": redact(entry.message),
        "from_manager": entry.from_manager,
    }


def _table(rows: list[tuple[str, str]]) -> None:
    for name, value in rows:
        sys.stdout.write(f"{name:<16} {plain(value)}\n")


def _status_rows(data: dict[str, Any]) -> list[tuple[str, str]]:
    from opsctl.rollout import lock_text

    unit = data["unit"]
    active = unit["active_for_s"]
    since = f" for {duration(active)}" if active and unit["active_state"] == "active" else ""
    patch_set = data["set"]
    lock = data["lock"]
    return [
        ("unit", f"{unit['active_state']} ({unit['sub_state']}){since}, pid {unit['main_pid']}"),
        ("restarts", str(unit["n_restarts"])),
        ("invocation", unit["invocation"]),
        ("version", str(data["version"])),
        ("patch set", f"{patch_set['name']} {patch_set['version']}" if patch_set else "none"),
        *[("trouble", text) for text in data["trouble"]],
        *([("changed by hand", ", ".join(data["adopted"]))] if data["adopted"] else []),
        ("http", data["http"]),
        *([("last incident", data["incident"]["text"])] if data["incident"] else []),
        ("lock", lock_text.describe(lock) if lock else "free"),
        *([("guard", "armed")] if data["guard"]["terms"] else []),
        ("last loads", " ".join(duration(s) for s in data["last_loads_s"]) or "none recorded"),
        *[
            (
                f"generation {record['number']}",
                f"{record['status']}, "
                + (
                    f"{record['set']['name']} {record['set']['version']}"
                    if record["set"]
                    else "no patch set"
                )
                + time.strftime(", %Y-%m-%d %H:%M", time.localtime(record["created"]))
                + (f", {record['who']}" if record["who"] else ""),
            )
            for record in data["generations"][-10:]
        ],
    ]
