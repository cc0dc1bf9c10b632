"""gate: deploy a set, hold it against a policy, and keep it or return what was there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli import options as opt
from opsctl.cli.context import Command, ask, chosen_options, on_host
from opsctl.cli.smoke import BaselineOption, PromptsOption, check_lines
from opsctl.errors import UsageError

if TYPE_CHECKING:
    from opsctl.report import Report


def register(app: typer.Typer) -> None:
    """Add this module's command to `app`."""
    app.command()(on_host(gate))


def gate(
    command: Command,
    session: Any,
    patch_set: Annotated[
        str | None,
        typer.Option(
            "--set", metavar="NAME[@VERSION]", help="Else the inventory's.", show_default=False
        ),
    ] = None,
    patches: opt.PatchesOption = None,
    policy: Annotated[
        Path | None,
        typer.Option("--policy", help="What it must show; else the default.", show_default=False),
    ] = None,
    show_policy: Annotated[
        bool, typer.Option("--show-policy", help="Print the policy, and do nothing.")
    ] = False,
    soak: Annotated[
        str | None,
        typer.Option("--soak", help="Another time under load, such as 10m.", show_default=False),
    ] = None,
    prompts: PromptsOption = None,
    baseline: BaselineOption = None,
    budget: opt.BudgetOption = None,
    stall: opt.StallOption = None,
    why: opt.WhyOption = "",
    lock_wait: opt.LockWaitOption = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", help="Write JUnit XML.", show_default=False)
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write one HTML page.", show_default=False)
    ] = None,
    github: Annotated[
        bool, typer.Option("--github", help="Annotations, step summary and outputs.")
    ] = False,
    yes: opt.YesOption = False,
) -> Report | None:
    """Deploy a set, hold it against a policy under load, and keep it or roll back."""
    from opsctl.gate import policy as policies
    from opsctl.rollout import gating, locking
    from opsctl.rollout.examining import Wanted

    if show_policy:
        sys.stdout.write(policies.text_of(policy))
        return None
    chosen_policy = _with_soak(policies.read(policy), soak)
    wanted = Wanted(chosen_policy.level, prompts, baseline)
    chosen = chosen_options(
        budget,
        stall,
        why,
        lock_wait,
        on_inconclusive=chosen_policy.on_inconclusive,
        wanted=wanted,
    )
    folder = command.patches(patches)
    chosen = locking.settle(session, chosen)
    made = gating.plan(session, folder, patch_set)
    ask(f"Gate {made.patchset.label} on {session.host.name}, restarting it?", yes=yes)
    gated = gating.gate(session, folder, made, chosen_policy, chosen)
    _write(gated.result, junit, html, github=github)
    if not command.json:
        rows = [(c.name, c.outcome, c.reason, c.kind) for c in gated.result.checks]
        sys.stdout.write(check_lines(rows))
    return gated.report


def _with_soak(policy: Any, soak: str | None) -> Any:
    from opsctl.inventory import parse_duration

    if soak is None:
        return policy
    try:
        seconds = parse_duration(soak)
    except ValueError as error:
        raise UsageError(f"--soak: {error}", remedy="such as --soak 10m") from None
    return policy.model_copy(update={"soak": policy.soak.model_copy(update={"seconds": seconds})})


def _write(result: Any, junit: Path | None, html: Path | None, *, github: bool) -> None:
    """The files that were asked for. The host is in its end state by now, whatever comes."""
