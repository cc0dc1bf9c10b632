"""The options that commands share, each declared once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from opsctl.cli import completion

HostArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="HOST",
        help="A host of the inventory.",
        show_default=False,
        autocompletion=completion.complete_hosts,
    ),
]
HostOption = Annotated[
    str | None,
    typer.Option(
        "--host",
        help="The same, as an option.",
        show_default=False,
        autocompletion=completion.complete_hosts,
    ),
]
ServiceOption = Annotated[
    str | None,
    typer.Option(
        "--service",
        "-s",
        help="Which of the host's services.",
        show_default=False,
        autocompletion=completion.complete_services,
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON report on stdout (docs/json.md).")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed without a tty.")]
BudgetOption = Annotated[
    str | None,
    typer.Option("--budget", help="How long the load may take, such as 15m.", show_default=False),
]
StallOption = Annotated[
    str | None,
    typer.Option("--stall", help="How long without any progress, such as 5m.", show_default=False),
]
WhyOption = Annotated[
    str, typer.Option("--why", help="The reason, for the lock and the record.", show_default=False)
]
LockWaitOption = Annotated[
    str | None,
    typer.Option(
        "--lock-wait",
        help="How long to wait while another rollout or the guard is at work, such as 20m.",
        show_default=False,
    ),
]
AdoptOption = Annotated[
    bool,
    typer.Option("--adopt", help="Record files changed by hand as they are, to be rolled back to."),
]
SmokeOption = Annotated[
    Literal["quick", "standard", "deep"],
    typer.Option("--smoke", help="How thoroughly to prove it (docs/smoke.md)."),
]
PatchSetOption = Annotated[
    str | None,
    typer.Option(
        "--patch-set",
        help="Another set than the inventory's.",
        show_default=False,
        autocompletion=completion.complete_patch_sets,
    ),
]
WithUnitOption = Annotated[
    bool,
    typer.Option("--with-unit", help="Bring the host's unit in line with the inventory, too."),
]
PatchesOption = Annotated[
    Path | None,
    typer.Option(
        "--patches", help="The folder of the patch sets.", show_default=False, file_okay=False
    ),
]
# Before the command or after it: see `with_globals`.
InventoryOption = Annotated[
    Path | None,
    typer.Option(
        "--inventory",
        "-i",
        help="The inventory; else $OPSCTL_INVENTORY, or the nearest inventory.yaml.",
        show_default=False,
    ),
]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


@dataclass(frozen=True, slots=True)
class Globals:
    """The options of every command."""

    inventory: Path | None = None
    debug: bool = False
    quiet: bool = False


_GLOBALS = {"inventory": InventoryOption, "debug": DebugOption, "quiet": QuietOption}
GLOBAL_NAMES = frozenset({*_GLOBALS, "help"})


def with_globals(function: Callable[..., None]) -> Callable[..., None]:
    """The command `function`, which takes the options of every command after its name as well.

    `function` has a parameter `context`, whose `obj` are those given before it. What stands
    after it counts where both say something.
    """
    # Typer reads the signature: a parameter more for each.
    hints = get_type_hints(function, include_extras=True)
    own = [
        parameter.replace(annotation=hints[name])
        for name, parameter in inspect.signature(function).parameters.items()
    ]
    more = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=getattr(Globals(), name),
            annotation=annotation,
        )
        for name, annotation in _GLOBALS.items()
    ]

    @functools.wraps(function)
    def command(*, context: typer.Context, **values: Any) -> None:
        given = {name: values.pop(name) for name in _GLOBALS}
        context.obj = replace(context.obj, **{k: v for k, v in given.items() if v})
        function(context=context, **values)

    command.__annotations__ = {p.name: p.annotation for p in (*own, *more)}
    command.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
    return command
