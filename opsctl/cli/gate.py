"""gate: deploy a set, hold it against a policy, and keep it or return what was there."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli import completion
from opsctl.cli import options as opt
from opsctl.cli.context import Command, ask, chosen_options, on_host, seconds_of
from opsctl.cli.rollouts import describe
from opsctl.cli.smoke import BaselineOption, PromptsOption, check_lines
from opsctl.errors import OpsctlError, UsageError

if TYPE_CHECKING:
    from opsctl.gate.model import GateResult
    from opsctl.gate.policy import Policy
    from opsctl.report import Report


def register(app: typer.Typer) -> None:
    """Add this module's command to `app`."""
    app.command()(on_host(gate))


def _show_policy(value: bool) -> None:
    if value:
        from opsctl.gate.policy import text_of

        sys.stdout.write(text_of(None))
        raise typer.Exit


def gate(
    command: Command,
    session: Any,
    patch_set: Annotated[
        str | None,
        typer.Option(
            "--set",
            metavar="NAME[@VERSION]",
            help="Else the inventory's.",
            show_default=False,
            autocompletion=completion.complete_set_versions,
        ),
    ] = None,
    patches: opt.PatchesOption = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            help="What it must show; else the default.",
            show_default=False,
            autocompletion=completion.complete_policies,
        ),
    ] = None,
    show_policy: Annotated[
        bool,
        typer.Option(
            "--show-policy",
            callback=_show_policy,
            is_eager=True,
            help="Print the default policy, to start from, and exit.",
        ),
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
    """Deploy a set, hold it against a policy under load, and keep it or roll back.

    \b
    Examples:
      opsctl gate ct200 --yes --junit gate.xml --html gate.html
      opsctl gate ct200 --set ddtree@1.1.0 --policy policy.yaml --soak 10m
      opsctl gate --show-policy
    """
    from opsctl.baseline.prompts import read as read_prompts
    from opsctl.gate import policy as policies
    from opsctl.rollout import gating, locking
    from opsctl.rollout.examining import Wanted

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
    files = _Files(junit, html, github=github)
    files.begin(command)
    if prompts is not None:
        read_prompts(prompts)  # a mistake in them must not end a rollout that has begun
    try:
        chosen = locking.settle(session, chosen)
        made = gating.plan(session, folder, patch_set)
        if not command.json:
            describe(made, session.host.name, session.service.name, sys.stderr)
        ask(f"Gate {made.patchset.label} on {session.host.name}, restarting it?", yes=yes)
        gated = gating.gate(session, command.shelf(), made, chosen_policy, chosen)
    except (OpsctlError, KeyboardInterrupt) as error:  # before anything was changed
        files.write(gating.unbegun(session, patch_set, chosen_policy, error), command)
        raise
    files.write(gated.result, command)
    if not command.json:
        rows = [(c.name, c.outcome, c.reason, c.kind) for c in gated.result.checks]
        sys.stdout.write(check_lines(rows))
    return gated.report


def _with_soak(policy: Policy, soak: str | None) -> Policy:
    if soak is None:
        return policy
    seconds = seconds_of("--soak", soak, "10m")
    return policy.model_copy(update={"soak": policy.soak.model_copy(update={"seconds": seconds})})


@dataclass(frozen=True, slots=True)
class _Files:
    """What is written beside the report. The host is in its end state by then, so that a file that
    cannot be written is said, and changes nothing of the exit status."""

    junit: Path | None
    html: Path | None
    github: bool
    token: str = field(default_factory=partial(secrets.token_hex, 16))

    def begin(self, command: Command) -> None:
        """What a server says may begin with `::`; until our own commands GitHub takes none.

        Raises:
            UsageError: a file will not be written: told now, not after an hour.
        """
        for path in (self.junit, self.html):
            if path is not None and (path.is_dir() or not os.access(path.parent, os.W_OK)):
                raise UsageError(
                    f"cannot write {path}",
                    remedy="name a file in a folder that is there and that you can write to",
                )
        if self.github:
            self._say(command, f"::stop-commands::{self.token}")

    def write(self, result: GateResult, command: Command) -> None:
        from opsctl.events import Event
        from opsctl.gate import github

        if self.github:
            mine = github.commands(result)
            self._say(command, f"::{self.token}::", *mine, f"::stop-commands::{self.token}")
        for path, job in self._jobs(result):
            try:
                job(path)
            except OSError as error:
                text = f"cannot write {path}: {error.strerror or error}"
                command.emit(Event("gate", "warn", text))

    def _say(self, command: Command, *lines: str) -> None:
        # With --json stdout has one object; GitHub reads both streams.
        stream = sys.stderr if command.json else sys.stdout
        sys.stderr.flush()
        stream.write("".join(f"{line}\n" for line in lines))
        stream.flush()

    def _jobs(self, result: GateResult) -> Iterator[tuple[Path, Callable[[Path], object]]]:
        from opsctl.gate import github
        from opsctl.gate.junit import junit
        from opsctl.gate.page import page

        if self.junit is not None:
            yield self.junit, lambda path: path.write_text(junit(result), encoding="utf-8")
        if self.html is not None:
            yield self.html, lambda path: path.write_text(page(result), encoding="utf-8")
        files = {
            "GITHUB_STEP_SUMMARY": github.write_summary,
            "GITHUB_OUTPUT": github.write_outputs,
        }
        for name, write in files.items() if self.github else ():
            if given := os.environ.get(name):
                yield Path(given), partial(write, result)
