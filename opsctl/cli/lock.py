"""opsctl lock: who holds a service's lock, hold it, end its holder."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from opsctl.cli import options as opt
from opsctl.cli.context import Command, ask, chosen_options, on_host
from opsctl.cli.examples import Group

if TYPE_CHECKING:
    from opsctl.report import Report

app = typer.Typer(help="The lock of a service: show, take, release.", no_args_is_help=True)


def register(group: typer.Typer) -> None:
    """Add this module's commands to `group`."""
    group.add_typer(app, name="lock", cls=Group)


def show(command: Command, session: Any) -> Report:
    """Who holds the lock, since when and why; and what the guard waits for.

    \b
    Examples:
      opsctl lock show ct200
    """
    from opsctl.rollout import locking

    return locking.show(session)


def take(
    command: Command,
    session: Any,
    command_line: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND",
            help="What to run here meanwhile, after HOST and --; else until Ctrl-C.",
            show_default=False,
        ),
    ] = None,
    why: opt.WhyOption = "",
    lock_wait: opt.LockWaitOption = None,
) -> Report:
    """Hold the lock until Ctrl-C, or while COMMAND runs, and end with its status.

    \b
    Examples:
      opsctl lock take ct200 --why 'moving disks'
      opsctl lock take ct200 --lock-wait 20m -- ./backup.sh
    """
    from opsctl.rollout import locking

    chosen = chosen_options(why=why, lock_wait=lock_wait)
    return locking.take(session, chosen, command_line or (), quiet=command.json)


def release(command: Command, session: Any, yes: opt.YesOption = False) -> Report:
    """End the host program that holds the lock, whoever's it is.

    \b
    Examples:
      opsctl lock release ct200
    """
    from opsctl.rollout import lock_text, locking

    now = session.lock_state()
    if now["holder"] is not None:
        locking.require_releasable(session, now)
        armed = "; its rollout is not over, and the guard then acts" if now["terms"] else ""
        holder = lock_text.describe(now["holder"]) + armed
        ask(f"{holder}. End it?", yes=yes, about=holder)
    return locking.release(session, now)


class _Take(TyperCommand):
    """Without HOST the parser would take the first word after `--` for it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)
        rest = super().parse_args(ctx, args)
        given = words[words.index("--") + 1 :] if "--" in words else []
        if len(ctx.params["command_line"] or ()) < len(given):
            raise typer.BadParameter(
                f"name the host before --: opsctl lock take HOST -- {shlex.join(given)}", ctx=ctx
            )
        return rest


for _function in (show, take, release):
    _name = f"lock {_function.__name__}"
    _class = _Take if _function is take else None
    app.command(_function.__name__, cls=_class)(on_host(_function, _name))
