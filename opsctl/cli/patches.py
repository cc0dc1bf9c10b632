"""opsctl patches: the sets of this checkout, without a host."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli import completion
from opsctl.cli import options as opt
from opsctl.cli.context import Command, run
from opsctl.cli.examples import Group
from opsctl.errors import EXIT_OK, EXIT_REFUSED, UsageError
from opsctl.text import counted, did_you_mean

if TYPE_CHECKING:
    from opsctl.patchset import CheckReport, PatchSet
    from opsctl.report import Report

app = typer.Typer(help="List, show, check, sign and verify the patch sets.", no_args_is_help=True)


def register(group: typer.Typer) -> None:
    """Add this module's commands to `group`."""
    group.add_typer(app, name="patches", cls=Group)


NameArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="A set's name.",
        show_default=False,
        autocompletion=completion.complete_patch_sets,
    ),
]
SetArgument = Annotated[
    str,
    typer.Argument(
        metavar="SET",
        help="A set's name, or the path of its folder.",
        autocompletion=completion.complete_patch_sets,
    ),
]


def _one(command: Command, patches: Path | None, name: str) -> PatchSet:
    """The one set meant: a signature is for what somebody looked at, never for "all of them"."""
    from opsctl import patchset

    if "/" in name:
        return patchset.load(Path(name))
    found = _chosen(command.patches(patches), name)
    if len(found) > 1:
        raise UsageError(
            f"{name} exists for several releases",
            remedy="give the folder instead: " + " or ".join(str(each.dir) for each in found),
        )
    return found[0]


def _signers(command: Command, given: Path | None) -> Path:
    """The file of allowed signers: `given`, or the one that the whole inventory agrees on.

    Raises:
        UsageError: the inventory names none, or several.
    """
    from opsctl import inventory
    from opsctl.cli.context import load_book

    if given is not None:
        return given.expanduser()
    path = inventory.find(command.globals_.inventory)
    book = load_book(path)
    services = [service for host in book.hosts.values() for service in host.services.values()]
    named = {each.allowed_signers for each in services if each.allowed_signers is not None}
    if len(named) == 1:
        return named.pop()
    listed = ", ".join(sorted(map(str, named)))
    raise UsageError(
        f"{path} names {'several files of allowed signers: ' + listed if named else 'none'}",
        remedy="give --allowed-signers FILE"
        + ("" if named else ", or set defaults.allowed_signers"),
        code="no_allowed_signers",
    )


def _chosen(folder: Path, name: str | None) -> list[PatchSet]:
    from opsctl import patchset

    known = patchset.discover(folder)
    found = [s for s in known if name is None or s.name == name]
    if not found:
        close = did_you_mean(name or "", [each.name for each in known])
        raise UsageError(
            f"no patch set{f' is called {name!r}' if name else ''} in {folder}{close}",
            remedy="opsctl patches list has them; or give another folder with --patches"
            if known
            else "see docs/patch-sets.md for the layout, or give --patches",
            code="no_patch_set",
        )
    return found


def _facts(found: PatchSet) -> dict[str, Any]:
    return {
        "name": found.name,
        "version": found.version,
        "distribution": found.target.distribution,
        "distribution_version": found.target.version,
        "digest": found.digest,
        "signed": _is_signed(found),
        "description": found.description,
        "patches": [patch.name for patch in found.patches],
        "files": list(found.paths),
    }


def _is_signed(found: PatchSet) -> bool:
    """Whether a signature lies beside it; `patches verify` says whose, and if it fits."""
    from opsctl import patchset

    return (found.dir / patchset.SIGNATURE).is_file()


def _report(name: str, text: str, data: dict[str, Any]) -> Report:
    from opsctl.report import Report

    return Report(command=name, verdict="pass", exit_code=EXIT_OK, summary=text, data=data)


@app.command("list")
@opt.with_globals
def list_(
    context: typer.Context, patches: opt.PatchesOption = None, json: opt.JsonOption = False
) -> None:
    """The sets that there are, by release.

    \b
    Examples:
      opsctl patches list
    """
    command = Command("patches list", context.obj, json=json)

    def work() -> Report:
        found = _chosen(command.patches(patches), None)
        if not command.json:
            for each in found:
                target = f"{each.target.distribution} {each.target.version}"
                signed = "signed" if _is_signed(each) else "-"
                sys.stdout.write(f"{each.label:<20} {target:<24} {signed:<7} {each.description}\n")
        sets = [_facts(each) for each in found]
        return _report("patches list", counted(len(found), "patch set"), {"sets": sets})

    run(command, work)


@app.command()
@opt.with_globals
def show(
    context: typer.Context,
    name: NameArgument = None,
    patches: opt.PatchesOption = None,
    json: opt.JsonOption = False,
) -> None:
    """A set's patches, files and needs.

    \b
    Examples:
      opsctl patches show ddtree
    """
    command = Command("patches show", context.obj, json=json)

    def work() -> Report:
        found = _chosen(command.patches(patches), name)
        if not command.json:
            for each in found:
                _print(each)
        text = ", ".join(each.label for each in found)
        return _report("patches show", text, {"sets": [_facts(f) for f in found]})

    run(command, work)


def _print(found: PatchSet) -> None:
    write = sys.stdout.write
    write(f"{found.label} for {found.target.distribution} {found.target.version}\n")
    write(f"  {found.description}\n  digest {found.digest}\n")
    for patch in found.patches:
        write(f"  {patch.name}: {', '.join(patch.paths)}\n")
    for path in found.new_files:
        write(f"  new file: {path}\n")
    for need in found.needs.arguments:
        choices = need if isinstance(need, tuple) else (need,)
        write(f"  needs of the unit: {' or '.join(choices)}\n")


@app.command()
@opt.with_globals
def check(
    context: typer.Context,
    name: NameArgument = None,
    patches: opt.PatchesOption = None,
    json: opt.JsonOption = False,
) -> None:
    """Apply a set to the pinned wheel, compile every file, and un-apply it to the byte.

    \b
    Examples:
      opsctl patches check ddtree
    """
    command = Command("patches check", context.obj, json=json)

    def work() -> Report:
        from opsctl import patchset
        from opsctl.report import Reason, Report

        reports = []
        for each in _chosen(command.patches(patches), name):
            wheel = patchset.fetch(each, emit=command.emit)
            reports.append(patchset.check(each, wheel))
        if not command.json:
            for found in reports:
                _print_check(found)
        faults = [item for found in reports for item in found.failures]
        return Report(
            command="patches check",
            verdict="fail" if faults else "pass",
            exit_code=EXIT_REFUSED if faults else EXIT_OK,
            summary=counted(len(faults), "fault")
            if faults
            else ", ".join(f"{r.name} {r.version} is fit to deploy" for r in reports),
            reasons=tuple(
                Reason(code=f"patch_{i.name}", message=i.message, remedy=i.remedy) for i in faults
            ),
            data={
                "sets": [
                    {
                        "name": found.name,
                        "version": found.version,
                        "ok": found.ok,
                        "items": [
                            {"name": i.name, "verdict": i.verdict, "message": i.message}
                            for i in found.items
                        ],
                    }
                    for found in reports
                ]
            },
        )

    run(command, work)


def _print_check(found: CheckReport) -> None:
    for item in found.items:
        sys.stdout.write(f"{item.verdict:<5} {item.name:<12} {item.message}\n")


@app.command()
@opt.with_globals
def sign(
    context: typer.Context,
    name: SetArgument,
    key: Annotated[
        Path,
        typer.Option("--key", help="An SSH private key, or the .pub of one in the agent."),
    ],
    identity: Annotated[
        str | None,
        typer.Option(
            "--identity",
            help="Who signs, for the line to put into a file of allowed signers.",
            show_default="user@machine",
        ),
    ] = None,
    patches: opt.PatchesOption = None,
    json: opt.JsonOption = False,
) -> None:
    """Sign every byte of a set with an SSH key, into its patchset.sig.

    \b
    Examples:
      opsctl patches sign ddtree --key ~/.ssh/id_ed25519
    """
    command = Command("patches sign", context.obj, json=json)

    def work() -> Report:
        from opsctl import patchset
        from opsctl.rollout.session import whoami

        found = _one(command, patches, name)
        signed = patchset.sign(found, key.expanduser(), identity or whoami())
        if not command.json:
            sys.stdout.write(f"allowed signers: {signed.line}\n")
        data = {
            "sets": [_facts(found)],
            "signature": str(signed.path),
            "key": signed.key,
            "allowed_signers_line": signed.line,
        }
        return _report("patches sign", f"signed {found.label} with {signed.key}", data)

    run(command, work)


@app.command()
@opt.with_globals
def verify(
    context: typer.Context,
    name: SetArgument,
    allowed_signers: Annotated[
        Path | None,
        typer.Option(
            "--allowed-signers",
            help="Who may sign, as ssh-keygen(1) has it; else the inventory's.",
            show_default=False,
        ),
    ] = None,
    patches: opt.PatchesOption = None,
    json: opt.JsonOption = False,
) -> None:
    """Say who signed a set as it is; exit 3 when nobody allowed did.

    \b
    Examples:
      opsctl patches verify ddtree --allowed-signers allowed_signers
    """
    command = Command("patches verify", context.obj, json=json)

    def work() -> Report:
        from opsctl import patchset

        found = _one(command, patches, name)
        signers = _signers(command, allowed_signers)
        signer = patchset.verify(found, signers)
        data = {
            "sets": [_facts(found)],
            "principal": signer.principal,
            "key": signer.key,
            "allowed_signers": str(signers),
        }
        text = f"{found.label} is signed by {signer.principal} ({signer.key}), whom {signers} names"
        return _report("patches verify", text, data)

    run(command, work)
