"""The top level: global options, and where each command's module is."""

from __future__ import annotations

from typing import Annotated

import typer

from opsctl.cli import (
    diagnose,
    gate,
    host,
    init,
    lab,
    lock,
    metrics,
    notices,
    patches,
    playbooks,
    records,
    rollouts,
    smoke,
    triage,
    unit,
)
from opsctl.cli import options as opt
from opsctl.cli import watch as watching
from opsctl.cli.examples import Group

app = typer.Typer(
    name="opsctl",
    help="Roll versioned patch sets onto a live SGLang host, prove them, and roll back.",
    epilog="\b\nExamples:\n  opsctl doctor ct200\n  opsctl plan ct200\n  opsctl deploy ct200",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,  # rich's help alone costs 100 ms of CPU
    pretty_exceptions_enable=False,
)


def _version(value: bool) -> None:
    if value:
        from opsctl import __version__

        typer.echo(f"opsctl {__version__}")
        raise typer.Exit


@app.callback()
def _globals(
    context: typer.Context,
    inventory: opt.InventoryOption = None,
    debug: opt.DebugOption = False,
    quiet: opt.QuietOption = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it and exit.")
    ] = False,
) -> None:
    context.obj = opt.Globals(inventory=inventory, debug=debug, quiet=quiet)


init.register(app)
rollouts.register(app)
smoke.register(app)
gate.register(app)
host.register(app)
metrics.register(app)
watching.register(app)
records.register(app)
diagnose.register(app)
triage.register(app)
app.add_typer(playbooks.runbook, name="runbook", cls=Group)
app.add_typer(playbooks.playbook, name="playbook", cls=Group)
app.add_typer(lock.app, name="lock", cls=Group)
app.add_typer(patches.app, name="patches", cls=Group)
app.add_typer(unit.app, name="unit", cls=Group)
app.add_typer(notices.app, name="notices", cls=Group)
app.add_typer(lab.app, name="lab", cls=Group)
