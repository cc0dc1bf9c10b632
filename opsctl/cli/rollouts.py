"""deploy, plan, restart, rollback, wait and smoke."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from opsctl.cli import options as opt
from opsctl.cli.context import Command, run
from opsctl.errors import UsageError

if TYPE_CHECKING:
    from opsctl.report import Report
    from opsctl.rollout.plan import Plan
    from opsctl.rollout.run import Options


def register(app: typer.Typer) -> None:
    """Add this module's commands to `app`."""
    for function in (deploy, plan, restart, rollback, wait, smoke):
        app.command()(function)


def _options(
    budget: str | None,
    stall: str | None,
    why: str,
    *,
    on_inconclusive: Literal["keep", "restore"] = "keep",
    generation: int | None = None,
) -> Options:
    from opsctl.inventory import parse_duration
    from opsctl.rollout.run import Options

    seconds: dict[str, float | None] = {}
    for name, value in (("--budget", budget), ("--stall", stall)):
        try:
            seconds[name] = None if value is None else parse_duration(value)
        except ValueError as error:
            raise UsageError(f"{name}: {error}", remedy=f"such as {name} 15m") from None
    return Options(
        budget=seconds["--budget"],
        stall=seconds["--stall"],
        why=why,
        on_inconclusive=on_inconclusive,
        generation=generation,
    )


def _confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("this changes the host, and nobody is there to ask", remedy="give --yes")
    if not typer.confirm(question, err=True):
        raise UsageError("nothing was changed, as you said", code="declined")


def deploy(
    context: typer.Context,
    host: opt.HostArgument = None,
    host_option: opt.HostOption = None,
    service: opt.ServiceOption = None,
    patch_set: opt.PatchSetOption = None,
    patches: opt.PatchesOption = None,
    budget: opt.BudgetOption = None,
    stall: opt.StallOption = None,
    why: opt.WhyOption = "",
    on_inconclusive: Annotated[
        Literal["keep", "restore"],
        typer.Option("--on-inconclusive", help="What to do when health stays unproved."),
    ] = "keep",
    yes: opt.YesOption = False,
    json: opt.JsonOption = False,
) -> None:
    """Put a patch set on a host, restart, prove it, or return what was there."""
    command = Command("deploy", context.obj, json=json)

    def work() -> Report:
        from opsctl.rollout import commands

        chosen = _options(budget, stall, why, on_inconclusive=on_inconclusive)
        folder = command.patches(patches)
        with command.session(host or host_option, service) as session:
            made = commands.plan(session, folder, patch_set)
            if not command.json:
                _describe(made, session.host.name, session.service.name)
            if not commands.nothing_to_do(made):
                _confirm("Apply?", yes=yes)
            return commands.deploy(session, folder, made, chosen)

    run(command, work)


def plan(
    context: typer.Context,
    host: opt.HostArgument = None,
    host_option: opt.HostOption = None,
    service: opt.ServiceOption = None,
    patch_set: opt.PatchSetOption = None,
    patches: opt.PatchesOption = None,
    json: opt.JsonOption = False,
) -> None:
    """Show what deploy would do, as a diff, changing nothing."""
    command = Command("plan", context.obj, json=json)

    def work() -> Report:
        from opsctl.report import Report
        from opsctl.rollout import commands

        folder = command.patches(patches)
        with command.session(host or host_option, service) as session:
            made = commands.plan(session, folder, patch_set)
            if not command.json:
                _describe(made, session.host.name, session.service.name)
                sys.stdout.write(made.diff)
            count = len(made.changes)
            text = f"deploy would change {count} file{'' if count == 1 else 's'} and restart"
            return Report(
                command="plan",
                host=session.host.name,
                service=session.service.name,
                verdict="pass",
                exit_code=0,
                summary="nothing to do: the host has this set" if made.noop else text,
                data={"plan": made.to_json()},
            )

    run(command, work)


def _describe(made: Plan, host: str, service: str) -> None:
    """The head of a plan, as a person checks it before saying yes."""
    from opsctl.cli.terminal import duration

    target = made.patchset.target
    had = made.installed
    before = f"{had['name']} {had['version']}" if had else "none"
    lines = [
        f"{host}  {service}  {target.distribution} {target.version}  "
        f"patch set {before} -> {made.patchset.label}"
    ]
    names = ", ".join(made.new_patches)
    if made.new_patches:
        lines.append(f"  {len(made.new_patches)} of {len(made.patchset.patches)} patches: {names}")
    lines += [f"  {c.path} (+{c.added} -{c.removed})" for c in made.changes]
    if not made.noop:
        loads = " ".join(duration(s) for s in made.facts["loads"][-3:])
        lines.append("  restart needed" + (f"; last loads took {loads}" if loads else ""))
    sys.stderr.write("\n".join(lines) + "\n")


def restart(
    context: typer.Context,
    host: opt.HostArgument = None,
    host_option: opt.HostOption = None,
    service: opt.ServiceOption = None,
    budget: opt.BudgetOption = None,
    stall: opt.StallOption = None,
    why: opt.WhyOption = "",
    yes: opt.YesOption = False,
    json: opt.JsonOption = False,
) -> None:
    """Restart the unit, wait for the load under its budget, and prove it."""
    command = Command("restart", context.obj, json=json)

    def work() -> Report:
        from opsctl.rollout import commands

        chosen = _options(budget, stall, why)
        folder = command.patches()
        with command.session(host or host_option, service) as session:
            _confirm(f"Restart {session.service.unit} on {session.host.name}?", yes=yes)
            return commands.restart(session, folder, chosen)

    run(command, work)


def rollback(
    context: typer.Context,
    host: opt.HostArgument = None,
    generation: Annotated[
        int | None,
        typer.Argument(help="Which; else the recorded predecessor.", show_default=False),
    ] = None,
    host_option: opt.HostOption = None,
    service: opt.ServiceOption = None,
    budget: opt.BudgetOption = None,
    stall: opt.StallOption = None,
    why: opt.WhyOption = "",
    yes: opt.YesOption = False,
    json: opt.JsonOption = False,
) -> None:
    """Return to a recorded generation and prove that it serves."""
    command = Command("rollback", context.obj, json=json)

    def work() -> Report:
        from opsctl.rollout import commands

        chosen = _options(budget, stall, why, generation=generation)
        folder = command.patches()
        with command.session(host or host_option, service) as session:
            _confirm(f"Roll back {session.service.name} on {session.host.name}?", yes=yes)
            return commands.rollback(session, folder, chosen)

    run(command, work)


def wait(
    context: typer.Context,
    host: opt.HostArgument = None,
    host_option: opt.HostOption = None,
    service: opt.ServiceOption = None,
    budget: opt.BudgetOption = None,
    stall: opt.StallOption = None,
    json: opt.JsonOption = False,
) -> None:
    """Follow the present start until it is ready, changing nothing."""
    command = Command("wait", context.obj, json=json)

    def work() -> Report:
        from opsctl.rollout import commands

        chosen = _options(budget, stall, "")
        with command.session(host or host_option, service) as session:
            return commands.wait(session, chosen)

    run(command, work)


def smoke(
    context: typer.Context,
    host: opt.HostArgument = None,
    host_option: opt.HostOption = None,
    service: opt.ServiceOption = None,
    json: opt.JsonOption = False,
) -> None:
    """Send the smoke requests through the verify path and judge what comes back."""
    command = Command("smoke", context.obj, json=json)

    def work() -> Report:
        from opsctl.rollout import commands

        with command.session(host or host_option, service) as session:
            return commands.smoke(session)

    run(command, work)
