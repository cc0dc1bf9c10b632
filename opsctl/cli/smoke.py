"""smoke, and the baselines that its further levels compare with."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli import completion
from opsctl.cli import options as opt
from opsctl.cli.context import Command, ask, chosen_options, on_host
from opsctl.cli.examples import Group
from opsctl.cli.terminal import plain
from opsctl.errors import UsageError

if TYPE_CHECKING:
    from opsctl.report import Report
    from opsctl.smoke import Level

group = typer.Typer(
    help="What a trusted server answers, for smoke to compare with.", no_args_is_help=True
)

PromptsOption = Annotated[
    Path | None,
    typer.Option("--prompts", help="A set of prompts of one's own.", show_default=False),
]
BaselineOption = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        help="An id on the host, or a file.",
        show_default=False,
        autocompletion=completion.complete_baselines,
    ),
]
_SIGNS = {"pass": "ok", "fail": "FAIL", "inconclusive": "?", "skipped": "-"}


def register(app: typer.Typer) -> None:
    """Add this module's commands to `app`."""
    app.command()(on_host(smoke))
    app.add_typer(group, name="baseline", cls=Group)


def smoke(
    command: Command,
    session: Any,
    quick: Annotated[bool, typer.Option("--quick", help="Two requests, proved (default).")] = False,
    standard: Annotated[
        bool, typer.Option("--standard", help="Every prompt and the ladder of batch sizes.")
    ] = False,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            help="Every prompt at every batch size, some 10,000 tokens more one at a time, and "
            "the limits: minutes. Needs a baseline captured with --deep.",
        ),
    ] = False,
    prompts: PromptsOption = None,
    baseline: BaselineOption = None,
) -> Report:
    """Send requests through the verify path and judge what comes back.

    \b
    Examples:
      opsctl smoke ct200
      opsctl smoke ct200 --standard --baseline kimi.json
    """
    from opsctl.rollout import observe
    from opsctl.rollout.examining import Wanted

    level = _level(quick, standard, deep)
    if level == "quick" and (prompts or baseline):
        raise UsageError(
            "--prompts and --baseline are for the further levels",
            remedy="add --standard or --deep",
        )
    report = observe.smoke(session, Wanted(level, prompts, baseline))
    if level != "quick" and not command.json:
        checks = report.data["smoke"]["checks"]
        rows = [(c["name"], c["verdict"], c["reason"], c.get("kind", "")) for c in checks]
        sys.stdout.write(check_lines(rows))
    return report


def _level(quick: bool, standard: bool, deep: bool) -> Level:
    if quick + standard + deep > 1:
        raise UsageError("two levels are named", remedy="give one of --quick, --standard, --deep")
    return "deep" if deep else "standard" if standard else "quick"


def check_lines(rows: Sequence[tuple[str, str, str, str]]) -> str:
    """A line a check, of (name, outcome, reason, kind)."""
    width = max((len(name) for name, *_ in rows), default=0)
    return "".join(
        f"{_SIGNS[outcome]:>4}  {name:<{width}}  {plain(' '.join(reason.split()))}"
        f"{f' [{kind}]' if kind else ''}\n"
        for name, outcome, reason, kind in rows
    )


def capture(
    command: Command,
    session: Any,
    trust: Annotated[
        bool, typer.Option("--trust", help="Take a server that speculates at its word.")
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Restart without speculation for it, and back.")
    ] = False,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            help="The prompts of smoke --deep too: some 10,000 tokens one at a time, which at 50 "
            "tokens/s take over three minutes.",
        ),
    ] = False,
    prompts: PromptsOption = None,
    budget: opt.BudgetOption = None,
    stall: opt.StallOption = None,
    lock_wait: opt.LockWaitOption = None,
    yes: opt.YesOption = False,
) -> Report:
    """Record what the server answers now, as what later answers must be.

    \b
    Examples:
      opsctl baseline capture ct200 --restart
    """
    from opsctl.rollout import baselining, capturing

    if not restart:
        return baselining.take(session, prompts, trust=trust, deep=deep)
    if trust:
        raise UsageError("--restart leaves nothing to --trust", remedy="give one of them")
    ask(f"Restart {session.service.unit} on {session.host.name} twice?", yes=yes)
    chosen = chosen_options(budget, stall, "a baseline", lock_wait)
    return capturing.capture(session, command.shelf(), prompts, chosen, deep=deep)


def listing(command: Command, session: Any) -> Report:
    """The baselines on the host, the last one first.

    \b
    Examples:
      opsctl baseline list ct200
    """
    from opsctl.rollout import baselining
    from opsctl.text import clock

    report = baselining.listing(session)
    if not command.json:
        for row in report.data["baselines"]:
            model = f"{row['model']}, {row['quantization'] or row['precision']}, {row['version']}"
            sys.stdout.write(
                f"{row['id']}  {clock(row['created'])}  {row['reference']:<7}  "
                f"{row['prompts']:>3} prompts  {model}\n"
            )
    return report


def export(
    command: Command,
    session: Any,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            help="Its id; else the last one.",
            show_default=False,
            autocompletion=completion.complete_baselines,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file; else stdout.", show_default=False),
    ] = None,
) -> Report | None:
    """Write a baseline as JSON, for another host or a CI job.

    \b
    Examples:
      opsctl baseline export ct200 --output kimi.json
    """
    from opsctl.rollout import baselining

    report, text = baselining.export(session, baseline)
    if output is None:
        if command.json:
            raise UsageError("stdout is the report's", remedy="give --output")
        sys.stdout.write(text + "\n")
        return None
    try:
        output.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot write {output}: {error.strerror}", remedy="give another --output"
        ) from None
    return report


def bring(
    command: Command,
    session: Any,
    file: Annotated[Path, typer.Option("--file", "-f", help="What export wrote.", dir_okay=False)],
) -> Report:
    """Put an exported baseline on the host.

    \b
    Examples:
      opsctl baseline import ct200 --file kimi.json
    """
    from opsctl.rollout import baselining

    if not file.is_file():
        raise UsageError(f"there is no file {file}", remedy="give what baseline export wrote")
    return baselining.bring(session, file)


def remove(
    command: Command,
    session: Any,
    baseline: Annotated[
        str,
        typer.Option("--baseline", help="Its id.", autocompletion=completion.complete_baselines),
    ],
    yes: opt.YesOption = False,
) -> Report:
    """Delete a baseline from the host.

    \b
    Examples:
      opsctl baseline remove ct200 --baseline 1f0c2a9b77de
    """
    from opsctl.rollout import baselining

    ask(f"Delete baseline {baseline}?", yes=yes)
    return baselining.remove(session, baseline)


for _name, _function in (
    ("capture", capture),
    ("list", listing),
    ("export", export),
    ("import", bring),
    ("remove", remove),
):
    group.command(_name)(on_host(_function, f"baseline {_name}"))
