"""metrics: acceptance, CUDA graphs and throughput of a span, beside the generation before."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from opsctl.cli import completion
from opsctl.cli.context import Command, on_host, seconds_of
from opsctl.cli.figures import live, show
from opsctl.errors import UsageError

if TYPE_CHECKING:
    from opsctl.report import Report
    from opsctl.rollout.metering import Meter, Previous, Reading

# Between two looks of --follow, seconds.
_EVERY = 2.0
_LONGEST_SPAN = 31 * 86400.0


def register(app: typer.Typer) -> None:
    """Add this module's command to `app`."""
    app.command()(on_host(metrics))


def metrics(
    command: Command,
    session: Any,
    since: Annotated[
        int | None,
        typer.Option(
            "--since",
            metavar="GENERATION",
            help="From its start on.",
            show_default=False,
            autocompletion=completion.complete_generations,
        ),
    ] = None,
    last: Annotated[
        str | None,
        typer.Option("--last", help="The last so long, such as 10m.", show_default=False),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    prometheus: Annotated[
        Path | None,
        typer.Option(
            "--prometheus",
            help="Write a file for node_exporter's textfile collector; - is stdout.",
            show_default=False,
            dir_okay=False,
        ),
    ] = None,
) -> Report:
    """Acceptance, CUDA-graph share and throughput of the present start, or of another span.

    \b
    Examples:
      opsctl metrics ct200
      opsctl metrics ct200 --last 10m --prometheus sglang.prom
      opsctl metrics ct200 --follow
    """
    from opsctl.rollout.metering import Meter, Scope, report_of

    to_stdout = prometheus is not None and str(prometheus) == "-"
    if to_stdout and (follow or command.json):
        raise UsageError(
            "--prometheus - has stdout to itself", remedy="give a file, or leave the other out"
        )
    meter = Meter(session, Scope(since, _seconds(since, last)))
    reading, previous = meter.read(), meter.previous()
    _tell(command, reading, previous)
    report = report_of(session, reading, previous, lifetime=meter.lifetime)
    if prometheus is not None:
        _write(prometheus, session, reading, report)
    if follow:
        _follow(command, session, meter, previous, prometheus)
    if to_stdout:
        _end(command, report)
    if not command.json:
        show(reading, previous, report.data["sources"])
    return report


def _seconds(since: int | None, last: str | None) -> float | None:
    if last is None:
        return None
    if since is not None:
        raise UsageError("--since and --last name two spans", remedy="give one of them")
    return seconds_of("--last", last, "10m", longest=_LONGEST_SPAN)


def _tell(command: Command, reading: Reading, previous: Previous) -> None:
    """On stderr, what is missing and why."""
    from opsctl.events import Event

    for fault in reading.endpoints.faults:
        command.emit(Event("metrics", "warn", fault))
    if previous.note:
        command.emit(Event("metrics", "info", f"nothing to compare with: {previous.note}"))


def _write(path: Path, session: Any, reading: Reading, report: Report) -> None:
    from opsctl.acceptance import exposition, reconcile, write_exposition

    text = exposition(
        reading.measured,
        reconcile(reading.measured, reading.endpoints, lifetime=True),
        labels={"host": session.host.name, "service": session.service.name},
        now=reading.unit.time,
        up=reading.unit.active,
        generation=report.generation,
    )
    if str(path) == "-":
        sys.stdout.write(text)
        return
    try:
        write_exposition(path, text)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}",
            remedy="give a file in a folder that exists and that you can write to",
        ) from None


def _end(command: Command, report: Report) -> None:
    """stdout is the file's: the verdict goes to stderr and into the exit status."""
    from opsctl.cli.terminal import complain

    sys.stdout.flush()
    if report.exit_code:
        complain(report.summary, report.reasons[0].remedy, sys.stderr)
    command.terminal.close()
    raise typer.Exit(report.exit_code)


def _follow(
    command: Command, session: Any, meter: Meter, previous: Previous, prometheus: Path | None
) -> NoReturn:
    """A new look every `_EVERY` seconds: a table that redraws itself, or a line of JSON."""
    from opsctl.rollout.metering import report_of

    with live(sys.stderr, quiet=command.json) as draw:
        while True:
            reading = meter.read()
            report = report_of(session, reading, previous, lifetime=meter.lifetime)
            if prometheus is not None:
                _write(prometheus, session, reading, report)
            if command.json:
                sys.stdout.write(json.dumps(report.dump(), ensure_ascii=False) + "\n")
                sys.stdout.flush()
            else:
                draw(reading, previous, report)
            time.sleep(_EVERY)
