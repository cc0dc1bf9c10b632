"""triage: what is wrong with a service, and which runbook is for it, on one screen."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli.context import Command, on_host
from opsctl.cli.terminal import console, plain

if TYPE_CHECKING:
    from opsctl.report import Report


def register(app: typer.Typer) -> None:
    """Add this module's command to `app`."""
    app.command()(on_host(triage))


def triage(
    command: Command,
    session: Any,
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle",
            metavar="FILE|FOLDER",
            help="Write it, redacted, to this .tar.gz (or folder) for a bug report.",
            show_default=False,
        ),
    ] = None,
) -> Report | None:
    """Say what is wrong, which runbook is for it, and why; in five seconds, and changing nothing.

    What the host cannot say in time is named as not known. Exit status: 0 nothing is wrong, 11
    something is, 12 it loads or cannot be told, 5 the host is not reached.

    \b
    Examples:
      opsctl triage ct200
      opsctl triage ct200 --bundle incident.tar.gz
    """
    from opsctl.hostside.probe import age
    from opsctl.rollout import triaging

    if bundle is None:
        report = triaging.triage(session, spent=min(age(os.getpid()) or 0.0, 2.0))
    else:
        from opsctl.rollout import triage_bundle

        report = triage_bundle.bundled(session, bundle)
    if not command.json:
        _show(report)
        return report.model_copy(update={"reasons": ()})  # all said
    return report


def _show(report: Report) -> None:
    from rich.text import Text

    from opsctl.triage import page

    out = console(sys.stdout)
    for row in page.rows(report.data, report.summary):
        lines = page.text([row])
        out.print(Text(plain(lines).rstrip("\n"), style="bold" if row.loud else ""))
    if "bundle" in report.data:
        out.print(Text(plain(f"{'bundle':<13}{report.data['bundle']['file']}")))
