"""The top level: global options; the commands are `lazy`'s."""

from __future__ import annotations

from typing import Annotated

import typer

from opsctl.cli import lazy
from opsctl.cli import options as opt

app = typer.Typer(
    name="opsctl",
    cls=lazy.Group,
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
