"""init: an inventory written by looking at a host."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli import options as opt
from opsctl.cli.context import Command, load_book, run
from opsctl.errors import OpsctlError, Refused, UsageError
from opsctl.text import counted

if TYPE_CHECKING:
    from opsctl.discovery import Described
    from opsctl.inventory import Inventory, Ssh
    from opsctl.report import Report

_FILE = "inventory.yaml"
# Every service of the host is looked at, and SGLang's Python is asked.
_PATIENCE = 180.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]*")


def register(app: typer.Typer) -> None:
    """Add this module's command to `app`."""
    app.command()(opt.with_globals(init))


def init(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="[USER@]HOST[:PORT]", help="As ssh takes it; an alias too.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The file, - for stdout; else --inventory, or ./inventory.yaml.",
            show_default=False,
        ),
    ] = None,
    add: Annotated[
        bool, typer.Option("--add", help="Add the host to the file, which there is already.")
    ] = False,
    name: Annotated[
        str | None,
        typer.Option("--name", help="What to call it; else its own name.", show_default=False),
    ] = None,
    ssh_config: Annotated[
        Path | None,
        typer.Option(
            "--ssh-config", help="Another file than ~/.ssh/config, as ssh -F.", show_default=False
        ),
    ] = None,
    json: opt.JsonOption = False,
) -> None:
    """Write an inventory by looking at a host: its units that run SGLang, and how they are set up.

    Nothing is changed on the host, and no file that exists is overwritten. Secrets are not
    copied: the inventory names where they come from.

    \b
    Examples:
      opsctl init root@10.1.2.200
      opsctl init ct201 --add
      opsctl init ct200 --output -
    """
    command = Command("init", context.obj, json=json)
    run(command, lambda: _init(command, target, output, add=add, name=name, config=ssh_config))


def _init(
    command: Command,
    target: str,
    output: Path | None,
    *,
    add: bool,
    name: str | None,
    config: Path | None,
) -> Report | None:
    from opsctl.discovery import add_host, one_host

    path = _file(command, output)
    if path is None and (add or command.json):
        what = "--add needs a file" if add else "stdout is the report's"
        raise UsageError(what, remedy="give --output FILE")
    before = _existing(path, add=add)
    ssh = _ssh(target, config)
    found = _look(command, target, ssh, name, path)
    text = one_host(found, f"Written by `opsctl init {target}` on {time.strftime('%Y-%m-%d')}.")
    if before is not None and add:
        assert path is not None
        text = add_host(before, found.text, found.name, path)
    if path is None:
        sys.stdout.write(text)
        return None
    if before is not None and not add:
        raise _exists(command, found, path)
    _write(path, text, load_book(path) if add else None)
    return _report(found, path, text, added=add)


def _file(command: Command, output: Path | None) -> Path | None:
    """Where to write; None is stdout."""
    from opsctl.inventory import ENVIRONMENT

    if output is not None:
        return None if str(output) == "-" else output
    named = os.environ.get(ENVIRONMENT)
    return command.globals_.inventory or Path(named or _FILE)


def _existing(path: Path | None, *, add: bool) -> str | None:
    """What the file holds, before anything is looked at; None where there is none."""
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if add:
            raise UsageError(
                f"there is no {path} to add to", remedy="leave --add out to make it"
            ) from None
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}", remedy="give another file") from None


def _ssh(target: str, config: Path | None) -> Ssh:
    from pydantic import ValidationError

    from opsctl.inventory import Ssh
    from opsctl.text import first_fault
    from opsctl.transport.sshconfig import parse_hop

    user, address, port = parse_hop(target)
    if config is not None and not config.is_file():
        raise UsageError(f"{config}: no such file", remedy="give --ssh-config FILE")
    try:
        return Ssh(address=address, user=user, port=port, config=config and config.resolve())
    except ValidationError as error:
        raise UsageError(
            f"{target!r} is no host to connect to: {first_fault(error)}",
            remedy="give it as ssh takes it: [USER@]HOST[:PORT]",
        ) from None


def _look(
    command: Command, target: str, ssh: Ssh, name: str | None, path: Path | None
) -> Described:
    from opsctl.discovery import describe
    from opsctl.events import Event
    from opsctl.sglang.releases import READY
    from opsctl.transport import connect

    with connect(ssh) as remote:
        command.emit(Event("init", "info", f"looking at {remote.where}"))
        facts = remote.call("discover", timeout=_PATIENCE, ready=READY, state_dir="/var/lib/opsctl")
    called = name or _called(ssh.address, str(facts["host"]["hostname"]))
    if not _NAME.fullmatch(called):
        raise UsageError(f"{called!r} cannot be a host's name", remedy="give another --name")
    found = describe(facts, called, ssh, _sets(path))
    command.host = found.name
    for unit, why in found.left_out.items():
        command.emit(Event("init", "warn", f"{unit} is left out: {why}"))
    if not found.services:
        raise _nothing(target, facts, found)
    return found


def _called(address: str, hostname: str) -> str:
    """The name in the SSH configuration, or for bare numbers that of the host itself."""
    number = re.fullmatch(r"[0-9.]+|[0-9a-fA-F:]*:[0-9a-fA-F:.]*", address)
    short = hostname.partition(".")[0]
    return short if number and _NAME.fullmatch(short) else address


def _sets(path: Path | None) -> list[tuple[str, str, str, str]]:
    """The patch sets that an inventory there would find."""
    from opsctl import patchset, resources

    beside = path.resolve().parent if path else Path.cwd()
    with contextlib.suppress(OpsctlError):
        return [
            (each.name, each.version, each.target.distribution, each.target.version)
            for each in patchset.discover(resources.locate("patches", beside=beside))
        ]
    return []


def _nothing(target: str, facts: Any, found: Described) -> Refused:
    """No unit runs SGLang: what was looked at, and what came nearest."""
    near = [
        f"process {each['pid']} {each['where']}: {each['command']}" for each in facts["processes"]
    ]
    near += [f"{unit}: {why}" for unit, why in found.left_out.items()]
    text = (
        f"no unit of {target} runs SGLang as far as can be told: "
        f"{counted(facts['looked_at'], 'service')} were looked at"
    )
    remedy = "opsctl needs a system unit whose ExecStart runs sglang.launch_server or sglang serve"
    if near:
        text = "\n  ".join([f"{text}; the nearest are", *near])
    else:
        text += ", and no process runs it"
    return Refused(text, remedy=remedy, code="no_service_found")


def _write(path: Path, text: str, old: Inventory | None) -> None:
    """Whole or not at all, and only what loads."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")  # relative paths in it are from there
    try:
        draft.write_text(text, encoding="utf-8")
        _check(load_book(draft), old)
        if old is not None:
            draft.chmod(path.stat().st_mode & 0o777)
        draft.replace(path)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}", remedy="give another --output"
        ) from None
    finally:
        draft.unlink(missing_ok=True)


def _check(book: Inventory, old: Inventory | None) -> None:
    """Of all other hosts it must say what it said."""
    if old is None:
        return
    kept = {name: book.hosts.get(name) for name in old.hosts}
    if kept != old.hosts or book.defaults != old.defaults:
        raise UsageError(
            "the entry cannot be added without changing another",
            remedy="put it in by hand: give --output - for its text",
            code="not_a_block",
        )


def _exists(command: Command, found: Described, path: Path) -> Refused:
    if not command.json:
        sys.stdout.write(found.text)
    return Refused(
        f"{path} exists and was left as it is; above is the entry that it would need",
        remedy="run it again with --add, or with --output FILE for a file of its own",
        code="inventory_exists",
    )


def _report(found: Described, path: Path, text: str, *, added: bool) -> Report:
    from opsctl.report import Report

    what = ", ".join(found.services)
    did = f"added {found.name} to {path}" if added else f"wrote {path}"
    first = f" --service {next(iter(found.services))}" if len(found.services) > 1 else ""
    return Report(
        command="init",
        host=found.name,
        verdict="pass",
        exit_code=0,
        summary=f"{did}: {what} on {found.name}; next: opsctl doctor {found.name}{first}",
        data={
            "file": str(path),
            "text": text,
            "services": [{"name": n, "unit": u} for n, u in found.services.items()],
            "left_out": [{"what": u, "why": w} for u, w in found.left_out.items()],
        },
    )
