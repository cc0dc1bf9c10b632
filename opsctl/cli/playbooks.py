"""opsctl playbook and opsctl runbook: list, show, check and run them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli import completion
from opsctl.cli import options as opt
from opsctl.cli.context import Command, ask, chosen_options, on_host, run, somebody_there
from opsctl.cli.examples import Group
from opsctl.cli.smoke import BaselineOption, PromptsOption
from opsctl.cli.terminal import DECLINED
from opsctl.errors import EXIT_OK, OpsctlError, Refused, UsageError

if TYPE_CHECKING:
    from opsctl.playbook import Playbook, Use
    from opsctl.report import Report

playbook = typer.Typer(
    help="What deploy, restart and rollback do, as files: list, show, check, run.",
    no_args_is_help=True,
)
runbook = typer.Typer(
    help="What to do when the service is in trouble: list, show, run.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    """Add this module's commands to `app`."""
    app.add_typer(runbook, name="runbook", cls=Group)
    app.add_typer(playbook, name="playbook", cls=Group)


NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Which; see `list`.", autocompletion=completion.complete_playbooks
    ),
]
RunbookArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Which; see `list`.", autocompletion=completion.complete_runbooks
    ),
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="STEP", help="Begin at this step, by its name.", show_default=False
    ),
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Begin at the step where it ended last, here.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Look, and say what would be done; change nothing.")
]


def _listing(command: Command, found: Mapping[str, Path]) -> Report:
    """Name and one line of each. One that cannot be read is told by its fault."""
    from opsctl.playbook import load
    from opsctl.report import Report

    rows: list[dict[str, str]] = []
    for name, path in found.items():
        try:
            book = load(path)
            text = book.runbook.when if book.runbook else book.summary
        except UsageError as error:
            text = f"not usable: {error.message}"
        rows.append({"name": name, "path": str(path), "summary": text})
    if not command.json:
        width = max((len(row["name"]) for row in rows), default=0)
        sys.stdout.writelines(f"{row['name']:{width}}  {row['summary']}\n" for row in rows)
    return Report(
        command=command.name,
        verdict="pass",
        exit_code=EXIT_OK,
        summary=f"{len(rows)} there",
        data={"found": rows},
    )


@playbook.command("list")
@opt.with_globals
def list_playbooks(context: typer.Context, json: opt.JsonOption = False) -> None:
    """The playbooks, a line each.

    \b
    Examples:
      opsctl playbook list
    """
    command = Command("playbook list", context.obj, json=json)
    run(command, lambda: _listing(command, command.shelf().playbooks()))


@runbook.command("list")
@opt.with_globals
def list_runbooks(context: typer.Context, json: opt.JsonOption = False) -> None:
    """The runbooks, each with when to use it.

    \b
    Examples:
      opsctl runbook list
    """
    command = Command("runbook list", context.obj, json=json)
    run(command, lambda: _listing(command, command.shelf().runbooks()))


@playbook.command("show")
@opt.with_globals
def show_playbook(context: typer.Context, name: NameArgument, json: opt.JsonOption = False) -> None:
    """The steps of one, what each does, and what a failure leads to.

    \b
    Examples:
      opsctl playbook show deploy
    """
    command = Command("playbook show", context.obj, json=json)
    run(command, lambda: _shown(command, name, runbook=False))


@runbook.command("show")
@opt.with_globals
def show_runbook(
    context: typer.Context, name: RunbookArgument, json: opt.JsonOption = False
) -> None:
    """When to use one, what it does step by step, and what it never does.

    \b
    Examples:
      opsctl runbook show crash-loop
    """
    command = Command("runbook show", context.obj, json=json)
    run(command, lambda: _shown(command, name, runbook=True))


def _shown(command: Command, name: str, *, runbook: bool) -> Report:
    from opsctl.report import Report

    book = command.shelf().load(name, runbook=runbook)
    if not command.json:
        sys.stdout.write("\n".join(_text(book)) + "\n")
    return Report(
        command=command.name,
        verdict="pass",
        exit_code=EXIT_OK,
        summary=f"{len(book.steps)} steps",
        data={"playbook": book.model_dump(by_alias=True, mode="json")},
    )


def _text(book: Playbook) -> Iterable[str]:
    yield f"{book.name}: {book.summary}"
    if book.runbook is not None:
        yield f"\nWhen   {book.runbook.when}"
        yield f"Does   {book.runbook.does}"
        yield from (f"Never  {text}" for text in book.runbook.never)
        if book.runbook.incidents:
            yield f"For    {', '.join(book.runbook.incidents)}"
    yield "\nSteps (* changes the service, and is asked for first in a runbook)"
    for number, use in enumerate(book.steps, 1):
        yield from _step_lines(use, f"{number:2}")
    yield "\nOn a failure"
    if not book.on_failure:
        yield "   the service is left as it is then, and the report says so"
    for use in book.on_failure:
        yield from _step_lines(use, " -")


def _step_lines(use: Use, mark: str) -> Iterable[str]:
    star = "*" if use.spec.effect == "changes" else " "
    yield f"{mark} {star}{use.name:12} {use.spec.does}"
    given = [*(f"{key} {value}" for key, value in use.given.items()), *use.held]
    if given:
        yield f"{'':18}({', '.join(given)})"


@playbook.command("check")
@opt.with_globals
def check(
    context: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE…", help="Files; else all that are found.", show_default=False),
    ] = None,
    json: opt.JsonOption = False,
) -> None:
    """Read playbooks and runbooks, and name every fault with its line.

    \b
    Examples:
      opsctl playbook check
      opsctl playbook check playbooks/restart.yaml
    """
    command = Command("playbook check", context.obj, json=json)

    def work() -> Report:
        from opsctl.playbook import load
        from opsctl.report import Report

        shelf = command.shelf()
        found = paths or [*shelf.playbooks().values(), *shelf.runbooks().values()]
        faults: list[OpsctlError] = []
        for path in found:
            try:
                load(path)
            except UsageError as error:
                faults.append(error)
        if faults:
            text = "\n".join(error.message for error in faults)
            raise UsageError(text, remedy=faults[0].remedy, code="playbook_invalid")
        return Report(
            command=command.name,
            verdict="pass",
            exit_code=EXIT_OK,
            summary=f"{len(found)} good",
            data={"paths": [str(path) for path in found]},
        )

    run(command, work)


@playbook.command("steps")
@opt.with_globals
def steps(context: typer.Context, json: opt.JsonOption = False) -> None:
    """Every step and condition that a playbook may name.

    \b
    Examples:
      opsctl playbook steps
    """
    command = Command("playbook steps", context.obj, json=json)

    def work() -> Report:
        from opsctl.playbook import CONDITIONS, SPECS
        from opsctl.report import Report

        if not command.json:
            for name, spec in SPECS.items():
                star = "*" if spec.effect == "changes" else " "
                takes = ", ".join(spec.takes.model_fields)
                with_ = f" (with: {takes})" if takes else ""
                sys.stdout.write(f"{star}{name:12} {spec.does}{with_}\n")
            sys.stdout.write("\nconditions, for when and unless\n")
            sys.stdout.writelines(f" {name:12} {text}\n" for name, text in CONDITIONS.items())
        facts = {
            name: {"does": spec.does, "effect": spec.effect, "takes": list(spec.takes.model_fields)}
            for name, spec in SPECS.items()
        }
        return Report(
            command=command.name,
            verdict="pass",
            exit_code=EXIT_OK,
            summary=f"{len(SPECS)} steps, {len(CONDITIONS)} conditions",
            data={"steps": facts, "conditions": dict(CONDITIONS)},
        )

    run(command, work)


def run_playbook(
    command: Command,
    session: Any,
    name: NameArgument,
    begin: FromOption = None,
    resume: ResumeOption = False,
    dry_run: DryRunOption = False,
    patch_set: opt.PatchSetOption = None,
    patches: opt.PatchesOption = None,
    generation: Annotated[
        int | None,
        typer.Option("--generation", help="Which to return to.", show_default=False),
    ] = None,
    budget: opt.BudgetOption = None,
    stall: opt.StallOption = None,
    why: opt.WhyOption = "",
    lock_wait: opt.LockWaitOption = None,
    smoke: opt.SmokeOption = "quick",
    prompts: PromptsOption = None,
    baseline: BaselineOption = None,
    yes: opt.YesOption = False,
) -> Report:
    """Run a playbook of one's own, or one of opsctl's from a step on.

    \b
    Examples:
      opsctl playbook run restart ct200 --dry-run
      opsctl playbook run restart ct200 --from start --yes
    """
    from opsctl.rollout.examining import Wanted

    wanted = Wanted(smoke, prompts, baseline)
    chosen = chosen_options(budget, stall, why, lock_wait, generation=generation, wanted=wanted)
    book = command.shelf().load(name)
    if book.has("soak"):
        raise UsageError(
            f"{name} measures a load under a policy, which has its own command",
            remedy=f"opsctl gate {session.host.name}",
        )
    made = None
    if book.has("stage"):
        from opsctl.cli.rollouts import describe
        from opsctl.rollout import commands

        made = commands.plan(session, command.patches(patches), patch_set)
        if not command.json:
            describe(made, session.host.name, session.service.name, sys.stderr)
    if not dry_run and any(use.spec.effect == "changes" for use in book.steps):
        ask(f"Run {name} on {session.host.name}?", yes=yes, about=book.summary)
    return _run(session, book, chosen, plan=made, begin=begin, resume=resume, dry=dry_run)


def run_runbook(
    command: Command,
    session: Any,
    name: RunbookArgument,
    begin: FromOption = None,
    resume: ResumeOption = False,
    dry_run: DryRunOption = False,
    budget: opt.BudgetOption = None,
    stall: opt.StallOption = None,
    why: opt.WhyOption = "",
    lock_wait: opt.LockWaitOption = None,
    prompts: PromptsOption = None,
    baseline: BaselineOption = None,
    yes: opt.YesOption = False,
) -> Report:
    """Follow a runbook: it looks by itself, and asks before each step that changes something.

    \b
    Examples:
      opsctl runbook run hung ct200 --dry-run
      opsctl runbook run hung ct200
    """
    from opsctl.rollout.examining import Wanted

    book = command.shelf().load(name, runbook=True)
    wanted = Wanted("quick", prompts, baseline)
    chosen = chosen_options(budget, stall, why or f"runbook {name}", lock_wait, wanted=wanted)
    if not yes and not dry_run and not somebody_there():
        ask("", yes=False, about=f"{name}: {book.summary}")
    asker = _asker(session.service.unit, yes=yes)
    return _run(session, book, chosen, ask=asker, begin=begin, resume=resume, dry=dry_run)


def _run(session: Any, book: Playbook, options: Any, *, resume: bool, **more: Any) -> Report:
    from opsctl.rollout import books

    if resume:
        if more["begin"] is not None:
            raise UsageError("--from and --resume both say where to begin", remedy="give one")
        more["begin"] = books.resumed(session, book)
    return books.run(session, book, options, **more)


def _asker(unit: str, *, yes: bool) -> Callable[[Use], None]:
    """Asks before each change; `a` is yes for all the rest."""
    every = yes

    def wanted(use: Use) -> None:
        nonlocal every
        if every:
            return
        question = f"{use.name} ({unit}): {use.spec.does}. Do it? [y]es, [a]ll the rest, [N]o"
        try:
            said = typer.prompt(question, default="n", show_default=False, err=True)
        except typer.Abort:  # Ctrl-C or the end of input: the rollout's own way with it
            raise KeyboardInterrupt from None
        answer = said.strip().lower()
        every = answer in {"a", "all"}
        if not every and answer not in {"y", "yes"}:
            raise Refused(f"{use.name} was declined", code=DECLINED)

    return wanted


playbook.command("run")(on_host(run_playbook, "playbook run", ahead=1))
runbook.command("run")(on_host(run_runbook, "runbook run", ahead=1))
