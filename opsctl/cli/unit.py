"""opsctl unit: render, diff, install and lint the unit's own files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli import options as opt
from opsctl.cli.context import Command, ask, chosen_options, on_host, run
from opsctl.cli.examples import Group
from opsctl.cli.terminal import plain

if TYPE_CHECKING:
    from opsctl.report import Report

app = typer.Typer(help="The unit's own files: render, diff, install, lint.", no_args_is_help=True)


def register(group: typer.Typer) -> None:
    """Add this module's commands to `group`."""
    group.add_typer(app, name="unit", cls=Group)


@app.command()
@opt.with_globals
def render(
    context: typer.Context,
    host: opt.HostArgument = None,
    host_option: opt.HostOption = None,
    service: opt.ServiceOption = None,
    json: opt.JsonOption = False,
) -> None:
    """Print the files as they would be installed; needs no connection.

    \b
    Examples:
      opsctl unit render ct200
    """
    command = Command("unit render", context.obj, json=json)

    def work() -> Report:
        from opsctl import lab
        from opsctl.report import Report
        from opsctl.rollout import unit_commands

        chosen, which = command.selected(host or host_option, service)
        running = lab.status(chosen.lab) if chosen.lab is not None else None
        if running is not None:
            which = lab.adapt(which, running)
        files = unit_commands.rendered(which, command.templates())
        if not json:
            for file in files:
                sys.stdout.write(f"# {file['path']} ({file['mode']})\n{file['text']}\n")
        names = ", ".join(file["path"] for file in files)
        return Report(
            command="unit render",
            host=chosen.name,
            service=which.name,
            verdict="pass",
            exit_code=0,
            summary=f"{which.unit} of {chosen.name}: {names}",
            data={"files": files},
        )

    run(command, work)


def diff(command: Command, session: Any) -> Report:
    """Compare the host's files, and the command line that counts there, with the inventory's.

    \b
    Examples:
      opsctl unit diff ct200
    """
    from opsctl.rollout import unit_commands

    report = unit_commands.diff(session, command.templates())
    if not command.json:
        sys.stdout.write("".join(plain(file["diff"]) for file in report.data["files"]))
        start = report.data["exec_start"]
        if not start["same"]:
            sys.stdout.write(_words("-", start["host"]) + _words("+", start["inventory"]))
    return report


def _words(sign: str, words: list[str]) -> str:
    from opsctl.journal import redact

    return f"{sign}ExecStart={plain(redact(' '.join(words)))}\n"


def install(
    command: Command,
    session: Any,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart/--no-restart",
            help="Restart and prove it, or roll back; else it takes effect at the next start.",
        ),
    ] = False,
    patches: opt.PatchesOption = None,
    budget: opt.BudgetOption = None,
    stall: opt.StallOption = None,
    why: opt.WhyOption = "",
    lock_wait: opt.LockWaitOption = None,
    yes: opt.YesOption = False,
) -> Report:
    """Write the unit's files alone, as a generation that a rollback can return from.

    \b
    Examples:
      opsctl unit install ct200 --restart
    """
    from opsctl.rollout import locking, unit_commands

    chosen = locking.settle(session, chosen_options(budget, stall, why, lock_wait))
    folder = command.patches(patches)
    made = unit_commands.plan_install(session, folder, command.templates())
    if made.changes:
        if not command.json:
            sys.stderr.write("".join(plain(change.diff) for change in made.changes))
        ask("Install and restart?" if restart else "Install, without a restart?", yes=yes)
    return unit_commands.install(session, command.shelf(), made, chosen, restart=restart)


def lint(command: Command, session: Any) -> Report:
    """Look for what is known to go wrong, in the unit as rendered and as installed.

    \b
    Examples:
      opsctl unit lint ct200
    """
    from opsctl.rollout import unit_commands

    report = unit_commands.lint(session, command.templates())
    if not command.json:
        # Those that fail are the report's reasons.
        for row in (row for row in report.data["findings"] if row["status"] != "fail"):
            where = f"\n      {row['where']}" if row["where"] else ""
            text = f"{row['status']:<5} {row['of']:<9} {row['name']}: {row['message']}{where}\n"
            sys.stdout.write(plain(f"{text}      remedy: {row['remedy']}\n"))
    return report


for _function in (diff, install, lint):
    app.command(_function.__name__)(on_host(_function, f"unit {_function.__name__}"))
