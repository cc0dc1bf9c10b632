"""watch: one or several hosts, live; or one look at them."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli import completion
from opsctl.cli import options as opt
from opsctl.cli.context import Command, run
from opsctl.errors import EXIT_UNREACHABLE, UsageError

if TYPE_CHECKING:
    from opsctl.report import Report
    from opsctl.watch.board import Board

# How long --once waits for every host, seconds: two tries of a host that is down.
_SETTLE = 20.0


def register(app: typer.Typer) -> None:
    """Add this module's command to `app`."""
    app.command()(opt.with_globals(watch))


def watch(
    *,
    context: typer.Context,
    hosts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="HOST",
            help="Hosts of the inventory.",
            show_default=False,
            autocompletion=completion.complete_hosts,
        ),
    ] = None,
    service: opt.ServiceOption = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print one frame as text, and leave.")
    ] = False,
    rate: Annotated[
        int | None,
        typer.Option(
            "--max-bytes",
            min=100,
            help="Most bytes a second to the terminal (1500).",
            show_default=False,
        ),
    ] = None,
    json: opt.JsonOption = False,
) -> None:
    """One or several hosts, live: state, load, acceptance, throughput and the journal.

    \b
    Examples:
      opsctl watch ct200 ct201
      opsctl watch ct200 --once
    """
    command = Command("watch", context.obj, json=json)
    run(command, lambda: _watch(command, hosts or [], service, once=once, rate=rate))


def _watch(
    command: Command, hosts: list[str], service: str | None, *, once: bool, rate: int | None
) -> Report | None:
    if not once and (command.json or not (sys.stdout.isatty() and sys.stdin.isatty())):
        what = "a screen is no JSON" if command.json else "a screen needs a terminal"
        raise UsageError(
            what,
            remedy="give --once for one look, or use `opsctl status --json`",
            code="no_terminal",
        )
    from opsctl.watch.board import Board

    began = time.time()
    with contextlib.ExitStack() as stack:
        names: list[str | None] = [*dict.fromkeys(hosts)] or [None]
        sessions = [stack.enter_context(command.session(name, service)) for name in names]
        if len(sessions) > 1:
            command.host = command.service = None
        board = stack.enter_context(Board(sessions))
        if once:
            board.settle(_SETTLE)
            return _once(command, board, began)
        _live(board, rate)
    return None


def _live(board: Board, rate: int | None) -> None:
    from opsctl.watch import lines
    from opsctl.watch.draw import glyphs

    with contextlib.suppress(ImportError):  # a Python without curses
        from opsctl.watch import screen

        if screen.usable(sys.stdout.fileno()):
            # https://no-color.org: set, and not empty.
            screen.show(board, rate=rate or screen.RATE, colour=not os.environ.get("NO_COLOR"))
            return
    lines.follow(board, sys.stdout, glyphs(sys.stdout.encoding))


def _once(command: Command, board: Board, began: float) -> Report:
    from opsctl.report import Reason, Report
    from opsctl.watch import words
    from opsctl.watch.summary import summary

    now = time.monotonic()
    if not command.json:
        _print(board, now)
    silent = [model for model in board.models if model.unit is None]
    told = "; ".join(f"{model.name}: {words.one_line(model, now)}" for model in board.models)
    return Report(
        command=command.name,
        host=command.host,
        service=command.service,
        verdict="error" if silent else "pass",
        exit_code=EXIT_UNREACHABLE if silent else 0,
        summary=told,
        reasons=tuple(
            Reason(
                code="unreachable",
                message=words.one_line(model, now),
                remedy=model.lost.remedy if model.lost is not None else "",
            )
            for model in silent
        ),
        started_at=began,
        duration_s=round(time.time() - began, 3),
        data={"hosts": [summary(model, now) for model in board.models]},
    )


def _print(board: Board, now: float) -> None:
    from opsctl.watch.draw import glyphs
    from opsctl.watch.frame import View, report, text_of

    width, height = shutil.get_terminal_size()
    view: Any = View(width, height, time.time(), signs=glyphs(sys.stdout.encoding))
    for model in board.models:
        model.judge(now)
        for line in report(model, view, now):
            sys.stdout.write(text_of(line) + "\n")
        sys.stdout.write("\n")
