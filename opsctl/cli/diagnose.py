"""diagnose: what a journal says, of a host, a file or a pipe."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opsctl.cli import completion
from opsctl.cli import options as opt
from opsctl.cli.context import Command, run
from opsctl.cli.terminal import plain
from opsctl.errors import UsageError
from opsctl.text import did_you_mean

if TYPE_CHECKING:
    from opsctl.report import DiagnosisReport, Report


def register(app: typer.Typer) -> None:
    """Add this module's command to `app`."""
    app.command()(opt.with_globals(diagnose))


def diagnose(
    context: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="HOST|FILE|-",
            help="A host of the inventory, a file with a journal, or - for stdin.",
            show_default=False,
            autocompletion=completion.complete_hosts,
        ),
    ] = None,
    host_option: opt.HostOption = None,
    service: opt.ServiceOption = None,
    json: opt.JsonOption = False,
) -> None:
    """Say what a journal tells: kind, severity, phase, the lines that decide, and the remedy.

    Without an argument it reads what is piped in, else the journal of the default host's present
    start. A host's name goes before a file's: name such a file with its folder, ./NAME.

    \b
    Examples:
      opsctl diagnose ct200
      opsctl diagnose incident.log
      journalctl -u UNIT -o json --all | opsctl diagnose -
    """
    command = Command("diagnose", context.obj, json=json)

    def work() -> Report:
        report = _diagnosed(command, source, host_option, service)
        if command.json:
            return report
        sys.stdout.write(_text(report))
        return report.model_copy(update={"reasons": ()})  # all said

    run(command, work)


def _diagnosed(
    command: Command, source: str | None, host: str | None, service: str | None
) -> DiagnosisReport:
    from opsctl.rollout import diagnosing

    if source is not None and host is not None:
        raise UsageError(f"two sources are named: {source} and {host}", remedy="name one of them")
    if source == "-" or (source is None and host is None and _piped()):
        return diagnosing.of_stream(sys.stdin.buffer, "stdin")
    if source is not None and not _is_host(command, source):
        try:
            with Path(source).open("rb") as file:
                return diagnosing.of_stream(file, source)
        except OSError as error:
            raise _neither(command, source, error) from None
    with command.session(source or host, service) as session:
        return diagnosing.of_host(session)


def _piped() -> bool:
    """Whether stdin is a pipe or a file, rather than a terminal or what cron and CI leave."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):  # closed, or no file at all
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _is_host(command: Command, name: str) -> bool:
    if os.sep in name:
        return False
    return name in _hosts(command) or (not Path(name).exists() and _is_lab(name))


def _hosts(command: Command) -> list[str]:
    """Of the inventory; none where there is no inventory, since a file needs none."""
    from opsctl import inventory

    try:
        return list(inventory.load(inventory.find(command.globals_.inventory)).hosts)
    except UsageError:
        if command.globals_.inventory is not None:
            raise
        return []


def _is_lab(name: str) -> bool:
    from opsctl import lab

    found = lab.status(name)
    return found is not None and found.running


def _neither(command: Command, name: str, error: OSError) -> UsageError:
    hosts = _hosts(command)
    known = ", ".join(hosts) or "none"
    if isinstance(error, FileNotFoundError):
        return UsageError(
            f"{name} is no host of the inventory ({known}) and no file{did_you_mean(name, hosts)}",
            remedy="name a host, a file with a journal, or - for stdin",
            code="no_such_source",
        )
    return UsageError(f"{name}: {error.strerror}", remedy="give a file that can be read")


def _text(report: DiagnosisReport) -> str:
    """The diagnosis for a person; lines are counted from 1, as editors do."""
    rows = [("kind", report.kind), ("severity", report.severity), ("phase", report.phase)]
    rows += [("confidence", report.confidence), ("action", report.action)]
    decisive = zip(report.decisive, report.lines, strict=True)
    rows += [(f"line {number + 1}", text) for number, text in decisive]
    rows += [("also", ", ".join(report.also)), ("remedy", report.remedy)]
    if not report.kind:
        return ""
    return "".join(f"{name:<12} {plain(value)}\n" for name, value in rows if value)
