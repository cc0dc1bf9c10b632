"""The top level: global options, and where each command's module is."""

from __future__ import annotations

from typing import Annotated

import typer

from opsctl.cli import (
    diagnose,
    gate,
    host,
    lab,
    lock,
    metrics,
    patches,
    records,
    rollouts,
    smoke,
    unit,
)
from opsctl.cli import options as opt

app = typer.Typer(
    name="opsctl",
    help="Roll versioned patch sets onto a live SGLang host, prove them, and roll back.",
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


rollouts.register(app)
smoke.register(app)
gate.register(app)
host.register(app)
metrics.register(app)
records.register(app)
diagnose.register(app)
app.add_typer(lock.app, name="lock")
app.add_typer(patches.app, name="patches")
app.add_typer(unit.app, name="unit")
app.add_typer(lab.app, name="lab")
