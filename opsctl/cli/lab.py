"""opsctl lab: a disposable CT200 on this machine."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli import completion
from opsctl.cli import options as opt
from opsctl.cli.context import Command, run
from opsctl.cli.examples import Group
from opsctl.errors import UsageError
from opsctl.text import counted, did_you_mean

if TYPE_CHECKING:
    from opsctl.inventory import Service
    from opsctl.lab import Lab
    from opsctl.report import Report

app = typer.Typer(help="A disposable CT200: up, down, status, ssh, reset.", no_args_is_help=True)


def register(group: typer.Typer) -> None:
    """Add this module's commands to `group`."""
    group.add_typer(app, name="lab", cls=Group)


DEFAULT = "ct200-lab"

NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The lab's name.", autocompletion=completion.complete_labs),
]
AddressOption = Annotated[
    str | None,
    typer.Option("--address", help="Its loopback address; else a free one.", show_default=False),
]
NoStartOption = Annotated[
    bool, typer.Option("--no-start", help="Boot without starting the service.")
]


def _service(command: Command, name: str) -> Service:
    """The service that the lab runs: of the host with that lab, else of the default lab's."""
    from opsctl import inventory

    path = inventory.find(command.globals_.inventory)
    book = inventory.load(path, _may_be_a_lab)
    hosts = [h for h in book.hosts.values() if h.lab is not None]
    host = next((h for h in hosts if h.lab == name), hosts[0] if hosts else None)
    if host is None:
        raise UsageError(
            f"{path} has no lab host, so there is no service for the lab to run",
            remedy="add a host with `lab: NAME`, as opsctl's own inventory.yaml has it",
        )
    return next(iter(host.services.values()))


def _may_be_a_lab(_name: str) -> bool:
    """A default that is no entry is a lab which these commands may be about to make."""
    return True


def _require_known(command: Command, name: str, to: str, otherwise: str) -> None:
    """A reset is of a lab that there is, or that the inventory names: a slip of the pen must not
    make a second one beside the lab that was meant, nor pass for its end.

    Raises:
        UsageError: it is neither.
    """
    from opsctl import inventory, lab

    book = inventory.load(inventory.find(command.globals_.inventory), _may_be_a_lab)
    named = {host.lab for host in book.hosts.values() if host.lab is not None}
    known = sorted({DEFAULT, *named, *(each.name for each in lab.all_labs())})
    if name not in known:
        raise UsageError(
            f"there is no lab {name!r} to {to}; there are {', '.join(known)}"
            f"{did_you_mean(name, known)}",
            remedy=f"give one of these, or {otherwise}",
            code="unknown_name",
        )


def _facts(lab: Lab) -> dict[str, Any]:
    return {
        "name": lab.name,
        "address": lab.address,
        "ssh_port": lab.ssh_port,
        "running": lab.running,
        "state_dir": str(lab.state_dir),
        "tree": lab.tree,
        "created": lab.created,
    }


def _report(name: str, text: str, labs: list[Lab]) -> Report:
    from opsctl.report import Report

    data = {"labs": [_facts(lab) for lab in labs]}
    return Report(command=f"lab {name}", verdict="pass", exit_code=0, summary=text, data=data)


def _up_or_reset(
    command: Command, name: str, *, address: str | None, start: bool, reset: bool
) -> Report:
    from opsctl import inventory, lab, resources

    service = _service(command, name)
    if reset:
        _require_known(command, name, "reset", f"make a new one: opsctl lab up {name}")
    book = inventory.find(command.globals_.inventory)
    templates = resources.locate("unit-templates", beside=book.resolve().parent)
    function = lab.reset if reset else lab.up
    made = function(
        name, service, emit=command.emit, address=address, start=start, templates=templates
    )
    where = f"root@{made.address} port {made.ssh_port}"
    return _report("reset" if reset else "up", f"{made.name} is up: {where}", [made])


@app.command()
@opt.with_globals
def up(
    context: typer.Context,
    name: NameArgument = DEFAULT,
    address: AddressOption = None,
    no_start: NoStartOption = False,
    json: opt.JsonOption = False,
) -> None:
    """Boot a lab, made first where it is not cached. Needs root.

    \b
    Examples:
      opsctl lab up
      opsctl lab up second --no-start
    """
    command = Command("lab up", context.obj, json=json)
    run(
        command,
        lambda: _up_or_reset(command, name, address=address, start=not no_start, reset=False),
    )


@app.command()
@opt.with_globals
def reset(
    context: typer.Context,
    name: NameArgument = DEFAULT,
    no_start: NoStartOption = False,
    json: opt.JsonOption = False,
) -> None:
    """A pristine lab: down, then up, at the same address. It must exist, or be the inventory's.

    \b
    Examples:
      opsctl lab reset
    """
    command = Command("lab reset", context.obj, json=json)
    run(command, lambda: _up_or_reset(command, name, address=None, start=not no_start, reset=True))


@app.command()
@opt.with_globals
def down(
    context: typer.Context, name: NameArgument = DEFAULT, json: opt.JsonOption = False
) -> None:
    """Power a lab off and leave nothing of it.

    \b
    Examples:
      opsctl lab down
    """
    command = Command("lab down", context.obj, json=json)

    def work() -> Report:
        from opsctl import lab

        ended = lab.down(name)
        if not ended:
            _require_known(command, name, "power off", "see what runs: opsctl lab status")
        return _report("down", f"{name} is down" if ended else f"there was no lab {name}", [])

    run(command, work)


@app.command()
@opt.with_globals
def status(context: typer.Context, json: opt.JsonOption = False) -> None:
    """The labs of this machine.

    \b
    Examples:
      opsctl lab status
    """
    command = Command("lab status", context.obj, json=json)

    def work() -> Report:
        from opsctl import lab

        labs = lab.all_labs()
        if not command.json:
            for each in labs:
                state = "running" if each.running else "dead"
                sys.stdout.write(f"{each.name:<16} {state:<8} {each.address}:{each.ssh_port}\n")
        return _report("status", counted(len(labs), "lab"), labs)

    run(command, work)


@app.command(context_settings={"ignore_unknown_options": True})
def ssh(
    context: typer.Context,
    name: NameArgument = DEFAULT,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="Run it there.", show_default=False),
    ] = None,
) -> None:
    """Log in to a lab as root, or run a command there.

    \b
    Examples:
      opsctl lab ssh
      opsctl lab ssh ct200-lab -- uptime
    """
    command = Command("lab ssh", context.obj)

    def work() -> None:
        from opsctl import lab

        argv = lab.ssh_argv(name, *(arguments or ()))
        sys.stdout.flush()
        os.execvp(argv[0], argv)  # noqa: S606 - the terminal is ssh's from here on

    run(command, work)
