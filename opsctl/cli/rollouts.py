"""deploy, plan, restart, rollback, confirm and wait."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from opsctl.cli import completion
from opsctl.cli import options as opt
from opsctl.cli.context import Command, ask, chosen_options, on_host, somebody_there
from opsctl.text import duration

if TYPE_CHECKING:
    from opsctl.report import Report
    from opsctl.rollout.plan import Plan


def register(app: typer.Typer) -> None:
    """Add this module's commands to `app`."""
    for function in (deploy, plan, restart, rollback, confirm, wait):
        app.command()(on_host(function))


def deploy(
    command: Command,
    session: Any,
    patch_set: opt.PatchSetOption = None,
    patches: opt.PatchesOption = None,
    budget: opt.BudgetOption = None,
    stall: opt.StallOption = None,
    why: opt.WhyOption = "",
    lock_wait: opt.LockWaitOption = None,
    on_inconclusive: Annotated[
        Literal["keep", "restore"],
        typer.Option("--on-inconclusive", help="What to do when health stays unproved."),
    ] = "keep",
    adopt: opt.AdoptOption = False,
    with_unit: opt.WithUnitOption = False,
    smoke: opt.SmokeOption = "quick",
    yes: opt.YesOption = False,
) -> Report:
    """Put a patch set on a host, restart, prove it, or return what was there.

    \b
    Examples:
      opsctl deploy ct200
      opsctl deploy ct200 --yes --json --why 'ddtree 1.1' --lock-wait 20m
      opsctl deploy ct200 --smoke standard --on-inconclusive restore
    """
    from opsctl.rollout import commands, locking
    from opsctl.rollout.examining import Wanted

    chosen = chosen_options(
        budget, stall, why, lock_wait, on_inconclusive=on_inconclusive, wanted=Wanted(smoke)
    )
    folder = command.patches(patches)
    chosen = locking.settle(session, chosen)
    made = commands.plan(session, folder, patch_set, adopt=adopt, with_unit=with_unit)
    if not command.json:
        describe(made, session.host.name, session.service.name, sys.stderr)
    if not commands.nothing_to_do(made):
        ask("Apply?", yes=yes)
    return commands.deploy(session, command.shelf(), made, chosen)


def plan(
    command: Command,
    session: Any,
    patch_set: opt.PatchSetOption = None,
    patches: opt.PatchesOption = None,
    adopt: opt.AdoptOption = False,
    with_unit: opt.WithUnitOption = False,
    stat: Annotated[bool, typer.Option("--stat", help="The files only, without the diff.")] = False,
) -> Report:
    """Show what deploy would do, as a diff, changing nothing.

    \b
    Examples:
      opsctl plan ct200
      opsctl plan ct200 --stat --with-unit
    """
    from opsctl.rollout import commands

    folder = command.patches(patches)
    made = commands.plan(session, folder, patch_set, adopt=adopt, with_unit=with_unit)
    if not command.json:
        describe(made, session.host.name, session.service.name, sys.stdout)
        sys.stdout.write("" if stat else made.diff + "".join(c.diff for c in made.unit))
    return commands.plan_report(session, made)


def describe(made: Plan, host: str, service: str, stream: TextIO) -> None:
    """The head of a plan, as a person checks it before saying yes."""
    target = made.patchset.target
    had = made.installed
    before = f"{had['name']} {had['version']}" if had else "none"
    lines = [
        f"{host}  {service}  {target.distribution} {target.version}  "
        f"patch set {before} -> {made.patchset.label}"
    ]
    names = ", ".join(made.new_patches)
    if made.new_patches:
        count = f"{len(made.new_patches)} of {len(made.patchset.patches)}"
        lines.append(f"  {count} patches new: {names}")
    if made.adopted:
        lines.append(f"  adopted as found, changed by hand: {', '.join(made.adopted)}")
    lines += [f"  {c.path} (+{c.added} -{c.removed})" for c in made.changes]
    lines += [f"  {c.path}" for c in made.unit_changes]
    if made.unit and not made.with_unit:
        lines.append("  the unit is not as the inventory has it (--with-unit brings it in line)")
    if not made.noop:
        loads = " ".join(duration(s) for s in made.facts["loads"][-3:])
        lines.append("  restart needed" + (f"; last loads took {loads}" if loads else ""))
    with contextlib.suppress(OSError, ValueError):  # unread, it is no reason to stop
        stream.write("\n".join(lines) + "\n")


def restart(
    command: Command,
    session: Any,
    budget: opt.BudgetOption = None,
    stall: opt.StallOption = None,
    why: opt.WhyOption = "",
    lock_wait: opt.LockWaitOption = None,
    plain: Annotated[
        bool,
        typer.Option("--plain", help="Without speculation, until opsctl starts it again."),
    ] = False,
    smoke: opt.SmokeOption = "quick",
    yes: opt.YesOption = False,
) -> Report:
    """Restart the unit, wait for the load under its budget, and prove it.

    \b
    Examples:
      opsctl restart ct200 --why 'new drafter weights'
      opsctl restart ct200 --plain
    """
    from opsctl.rollout import commands
    from opsctl.rollout.examining import Wanted

    chosen = chosen_options(budget, stall, why, lock_wait, plain=plain, wanted=Wanted(smoke))
    how = " without speculation" if plain else ""
    ask(f"Restart {session.service.unit} on {session.host.name}{how}?", yes=yes)
    return commands.restart(session, command.shelf(), chosen)


def rollback(
    command: Command,
    session: Any,
    generation: Annotated[
        int | None,
        typer.Argument(
            metavar="GENERATION",
            help="Which; else the recorded predecessor.",
            show_default=False,
            autocompletion=completion.complete_generations,
        ),
    ] = None,
    budget: opt.BudgetOption = None,
    stall: opt.StallOption = None,
    why: opt.WhyOption = "",
    lock_wait: opt.LockWaitOption = None,
    yes: opt.YesOption = False,
) -> Report:
    """Return to a recorded generation and prove that it serves.

    \b
    Examples:
      opsctl rollback ct200
      opsctl rollback ct200 3 --why 'accept length fell'
    """
    from opsctl.rollout import commands, locking

    chosen = chosen_options(budget, stall, why, lock_wait, generation=generation)
    question: str | None = "Roll back?"
    if not yes and somebody_there():
        chosen = locking.settle(session, chosen, guard=False)
        question = commands.rollback_question(session, generation)
    if question is not None:
        ask(question, yes=yes)
    return commands.rollback(session, command.shelf(), chosen)


def confirm(
    command: Command,
    session: Any,
    budget: opt.BudgetOption = None,
    stall: opt.StallOption = None,
    why: opt.WhyOption = "",
    lock_wait: opt.LockWaitOption = None,
) -> Report:
    """Prove and keep what a rollout left whose client was lost, before the guard ends it.

    \b
    Examples:
      opsctl confirm ct200
    """
    from opsctl.rollout import confirming

    return confirming.confirm(session, chosen_options(budget, stall, why, lock_wait))


def wait(
    command: Command,
    session: Any,
    budget: opt.BudgetOption = None,
    stall: opt.StallOption = None,
) -> Report:
    """Follow the present start until it is ready, changing nothing.

    \b
    Examples:
      opsctl wait ct200
      opsctl wait ct200 --budget 20m --stall 5m
    """
    from opsctl.rollout import observe

    return observe.wait(session, chosen_options(budget, stall))
