"""From options to a session and back to an exit status, the same way for every command."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import typer

from opsctl import errors
from opsctl.cli import options as opt
from opsctl.cli import remedies
from opsctl.cli.options import Globals
from opsctl.cli.terminal import DECLINED, Terminal, show
from opsctl.events import Event

if TYPE_CHECKING:
    from opsctl.inventory import Inventory
    from opsctl.playbook import Shelf
    from opsctl.report import EventRecord, Report
    from opsctl.rollout.run import Options

EXIT_BUG = 1


@dataclass(slots=True)
class Command:
    """One invocation: where its events and its report go."""

    name: str
    globals_: Globals
    json: bool = False
    host: str | None = None
    service: str | None = None
    several: bool = False  # whether the host has other services, so that this one has to be named
    events: list[EventRecord] = field(default_factory=list)
    terminal: Terminal = field(init=False)

    def __post_init__(self) -> None:
        self.terminal = Terminal(sys.stderr, quiet=self.globals_.quiet)

    def emit(self, event: Event) -> None:
        from opsctl.report import record

        # A second-by-second bar is for eyes; the record keeps what happened.
        if event.state != "progress":
            self.events.append(record(event))
        self.terminal(event)

    @contextlib.contextmanager
    def session(self, host: str | None, service: str | None) -> Iterator[Any]:
        """The selected service in conversation, closed at the end."""
        from opsctl.rollout.session import Session

        chosen, which = self.selected(host, service)
        reach, which = _way_in(chosen, which)
        session = Session(host=chosen, service=which, connect=reach, emit=self.emit)
        try:
            yield session
        finally:
            session.close()

    def selected(self, host: str | None, service: str | None) -> tuple[Any, Any]:
        """The host and the service that are meant; a running lab needs no entry."""
        from opsctl import inventory

        book = load_book(inventory.find(self.globals_.inventory))
        name = inventory.wanted(book, host)
        if name is not None and name not in book.hosts:
            book = _with_running_lab(book, name)
        chosen, which = inventory.select(book, host, service)
        self.host, self.service = chosen.name, which.name
        self.several = len(chosen.services) > 1
        return chosen, which

    def templates(self) -> Path:
        """The folder of the unit templates: beside the inventory, or this copy's own."""
        from opsctl import resources

        return resources.locate("unit-templates", beside=self._beside())

    def patches(self, explicit: Path | None = None) -> Path:
        """The folder of the patch sets: named, beside the inventory, or this copy's own."""
        from opsctl import resources

        if explicit is not None:
            if not explicit.is_dir():
                raise errors.UsageError(
                    f"{explicit}: no such folder", remedy="give the folder of the patch sets"
                )
            return explicit
        return resources.locate("patches", beside=self._beside())

    def shelf(self) -> Shelf:
        """The playbooks: those beside the inventory, and this copy's own."""
        from opsctl.playbook import Shelf

        return Shelf.beside(self._beside())

    def _beside(self) -> Path:
        from opsctl import inventory

        return inventory.find(self.globals_.inventory).resolve().parent


def somebody_there() -> bool:
    """Whether a question would be answered."""
    return sys.stdin is not None and sys.stdin.isatty()


def ask(question: str, *, yes: bool, about: str = "") -> None:
    """Go on only if the operator says so.

    `about` is what they would have to know first, for the error where nobody can answer.

    Raises:
        UsageError: nobody is there to ask.
        Refused: the answer is no.
    """
    if yes:
        return
    if not somebody_there():
        text = "this changes the host, and nobody is there to ask"
        raise errors.UsageError(f"{about}; {text}" if about else text, remedy="give --yes")
    if not typer.confirm(question, err=True):
        raise errors.Refused("not applied", code=DECLINED)


def seconds_of(option: str, text: str, example: str = "15m", **bounds: float) -> float:
    """An option's duration in seconds; `bounds` are `parse_duration`'s.

    Raises:
        UsageError: it is none.
    """
    from opsctl.inventory import parse_duration

    try:
        return parse_duration(text, **bounds)
    except ValueError as error:
        raise errors.UsageError(
            f"{option}: {error}", remedy=f"such as {option} {example}"
        ) from None


def chosen_options(
    budget: str | None = None,
    stall: str | None = None,
    why: str = "",
    lock_wait: str | None = None,
    **others: Any,
) -> Options:
    """A rollout's options from the command line's.

    Raises:
        UsageError: one is no duration.
    """
    from opsctl.rollout.run import Options

    given = {"budget": budget, "stall": stall, "lock_wait": lock_wait}
    seconds: dict[str, Any] = {
        name: seconds_of("--" + name.replace("_", "-"), value)
        for name, value in given.items()
        if value is not None
    }
    return Options(why=why, **seconds, **others)


def on_host(
    function: Callable[..., Report | None], name: str = "", ahead: int = 0
) -> Callable[..., None]:
    """A command about one service: adds HOST, --host, --service, --json and the options of every
    command to its parameters.

    `function` is called with the `Command`, the session (which connects at its first use) and
    its own parameters; its report is printed, and its exit status is the process's. `name` is
    for a command of a group, such as `lock show`; the first `ahead` of its own parameters stand
    before HOST.
    """
    # `Report` is for type checkers only where a command module saves its import.
    hints = get_type_hints(function, localns={"Report": object}, include_extras=True)
    remedies.ON_HOST.add(name or function.__name__)
    if ahead:
        remedies.NAMED.add(name)
    own = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in list(inspect.signature(function).parameters.values())[2:]
    ]
    keyword = inspect.Parameter.KEYWORD_ONLY
    shared = [
        inspect.Parameter("context", keyword, annotation=typer.Context),
        *own[:ahead],
        inspect.Parameter("host", keyword, default=None, annotation=opt.HostArgument),
        *own[ahead:],
        inspect.Parameter("host_option", keyword, default=None, annotation=opt.HostOption),
        inspect.Parameter("service", keyword, default=None, annotation=opt.ServiceOption),
        inspect.Parameter("json", keyword, default=False, annotation=opt.JsonOption),
    ]

    def command_function(
        *,
        context: typer.Context,
        host: str | None,
        host_option: str | None,
        service: str | None,
        json: bool,
        **own_values: Any,
    ) -> None:
        command = Command(name or function.__name__, context.obj, json=json)

        def work() -> Report | None:
            if host and host_option and host != host_option:
                raise errors.UsageError(
                    f"two hosts are named: {host} and {host_option}", remedy="name one of them"
                )
            with command.session(host or host_option, service) as session:
                return function(command, session, **own_values)

        run(command, work)

    command_function.__name__ = function.__name__
    command_function.__doc__ = function.__doc__
    command_function.__annotations__ = {p.name: p.annotation for p in shared}
    command_function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=keyword) for p in shared]
    )
    return opt.with_globals(command_function)


def load_book(path: Path) -> Inventory:
    """The inventory at `path`, whose default may be a running lab without an entry.

    Raises:
        InventoryError: there are faults in it.
    """
    from opsctl import inventory

    return inventory.load(path, _is_running_lab)


def _is_running_lab(name: str) -> bool:
    from opsctl import lab

    found = lab.status(name)
    return found is not None and found.running


def _with_running_lab(book: Any, name: str) -> Any:
    """A running lab needs no entry: it is a host like the inventory's own lab.

    Raises:
        UsageError: no lab of that name runs, or the inventory has no lab to take it after.
    """
    from opsctl import inventory, lab

    running = [each.name for each in lab.all_labs() if each.running and each.name not in book.hosts]
    if name not in running:
        raise inventory.unknown("host", name, list(book.hosts), "--host", running)
    model = next((host for host in book.hosts.values() if host.lab is not None), None)
    if model is None:
        raise errors.UsageError(
            f"the lab {name} runs, but {book.path} has no lab, after which its service is known",
            remedy=f"add a host with `lab: {name}`, as opsctl's own inventory.yaml has one",
            code="unknown_name",
        )
    content = book.model_dump()
    content["hosts"][name] = model.model_dump() | {"lab": name}
    # The default may be another lab without an entry.
    extended = type(book).model_validate(content, context={"elsewhere": _is_running_lab})
    extended._path = book.path
    return extended


def _way_in(host: Any, service: Any) -> tuple[Any, Any]:
    from opsctl.transport import connect

    if host.lab is None:
        return functools.partial(connect, host.ssh, host.python), service
    from opsctl import lab

    ssh = lab.connection(host.lab)
    running = lab.status(host.lab)
    assert running is not None
    adapted = lab.adapt(service, running)
    return functools.partial(connect, ssh, host.python), adapted


def run(command: Command, work: Callable[[], Report | None]) -> None:
    """Do `work`, print its report, and leave with its exit status.

    No traceback reaches a user unless --debug asks for it.
    """
    from opsctl.report import Reason, Report, of_error

    try:
        report = work()
    except errors.OpsctlError as error:
        report = of_error(command.name, error, host=command.host, service=command.service)
        if command.globals_.debug:
            traceback.print_exc()
            sys.stderr.write(getattr(error, "remote_traceback", ""))
    except (KeyboardInterrupt, typer.Abort):  # Abort: Ctrl-C at a question
        report = Report(
            command=command.name,
            host=command.host,
            service=command.service,
            verdict="error",
            exit_code=errors.EXIT_INTERRUPTED,
            # A rollout that had changed something gives a report of its own.
            summary="interrupted" + ("; nothing was changed on the host" if command.host else ""),
        )
    except typer.Exit:
        raise
    except BrokenPipeError:  # `opsctl logs | head`
        _silence()
        raise typer.Exit from None
    except Exception as error:
        if command.globals_.debug:
            traceback.print_exc()
        message = f"a bug in opsctl: {type(error).__name__}: {error}"
        remedy = "run again with --debug and report the traceback"
        report = Report(
            command=command.name,
            host=command.host,
            service=command.service,
            verdict="error",
            exit_code=EXIT_BUG,
            summary=message,
            reasons=(Reason(code="bug", message=message, remedy=remedy),),
        )
    command.terminal.close()
    if report is not None:
        if command.host is not None and not _declined(report):
            service = (command.service or "") if command.several else ""
            report = remedies.of_report(report, command.host, service)
        _print(command, report)
        raise typer.Exit(report.exit_code)


def _declined(report: Report) -> bool:
    return any(reason.code == DECLINED for reason in report.reasons)


def _print(command: Command, report: Report) -> None:
    """The report, to whoever still reads: the exit status must get out in any case."""
    try:
        if command.json:
            report = report.model_copy(update={"events": tuple(command.events)})
            sys.stdout.write(json.dumps(report.dump(), ensure_ascii=False) + "\n")
        else:
            show(report, sys.stdout, sys.stderr, said=command.terminal.failure)
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError, SystemExit):  # rich makes the last of the first
        _silence()


def _silence() -> None:
    """Nobody reads any more. At its end Python would flush what is left and exit with 120."""
    sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
