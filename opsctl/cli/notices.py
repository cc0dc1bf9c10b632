"""notices: try the webhooks of a service before a rollout needs them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli.context import Command, on_host
from opsctl.cli.examples import Group
from opsctl.cli.terminal import plain

if TYPE_CHECKING:
    from opsctl.report import Report

app = typer.Typer(help="Who is told of a rollout, by webhook.", no_args_is_help=True)


def register(group: typer.Typer) -> None:
    """Add this module's commands to `group`."""
    group.add_typer(app, name="notices", cls=Group)


def send_test(
    command: Command,
    session: Any,
    from_host: Annotated[
        bool, typer.Option("--from-host", help="From the host too, as its guard would send.")
    ] = False,
) -> Report:
    """Send a test to every webhook of a service, and say what came of it.

    \b
    Examples:
      opsctl notices test ct200 --from-host
    """
    from opsctl.rollout import notifying

    report = notifying.send_test(session, from_host=from_host)
    if not command.json:
        for row in report.data["notices"]:
            sign = "FAIL" if row["error"] else "ok"
            said = row["error"] or "accepted"
            sys.stdout.write(f"{sign:>4}  {row['webhook']}  from {row['from']}: {plain(said)}\n")
    return report


app.command("test")(on_host(send_test, "notices test"))
