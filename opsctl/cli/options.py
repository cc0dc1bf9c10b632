"""The options that commands share, each declared once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

HostArgument = Annotated[
    str | None,
    typer.Argument(metavar="HOST", help="A host of the inventory.", show_default=False),
]
HostOption = Annotated[
    str | None, typer.Option("--host", help="The same, as an option.", show_default=False)
]
ServiceOption = Annotated[
    str | None,
    typer.Option("--service", "-s", help="Which of the host's services.", show_default=False),
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
PatchSetOption = Annotated[
    str | None,
    typer.Option("--patch-set", help="Another set than the inventory's.", show_default=False),
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


@dataclass(frozen=True, slots=True)
class Globals:
    """Options before the command."""

    inventory: Path | None = None
    debug: bool = False
    quiet: bool = False
