"""opsctl patches: the sets of this checkout, without a host."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli import options as opt
from opsctl.cli.context import Command, run
from opsctl.errors import EXIT_OK, EXIT_REFUSED, UsageError
from opsctl.text import counted

if TYPE_CHECKING:
    from opsctl.patchset import CheckReport, PatchSet
    from opsctl.report import Report

app = typer.Typer(help="List, show and check the patch sets.", no_args_is_help=True)

NameArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", help="A set's name.", show_default=False)
]


def _chosen(folder: Path, name: str | None) -> list[PatchSet]:
    from opsctl import patchset

    found = [s for s in patchset.discover(folder) if name is None or s.name == name]
    if not found:
        raise UsageError(
            f"no patch set{f' is called {name!r}' if name else ''} in {folder}",
            remedy="see docs/patch-sets.md for the layout, or give --patches",
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
        "description": found.description,
        "patches": [patch.name for patch in found.patches],
        "files": list(found.paths),
    }


def _report(name: str, text: str, data: dict[str, Any]) -> Report:
    from opsctl.report import Report

    return Report(command=name, verdict="pass", exit_code=EXIT_OK, summary=text, data=data)


@app.command("list")
def list_(
    context: typer.Context, patches: opt.PatchesOption = None, json: opt.JsonOption = False
) -> None:
    """The sets that there are, by release."""
    command = Command("patches list", context.obj, json=json)

    def work() -> Report:
        found = _chosen(command.patches(patches), None)
        if not command.json:
            for each in found:
                target = f"{each.target.distribution} {each.target.version}"
                sys.stdout.write(f"{each.label:<20} {target:<24} {each.description}\n")
        sets = [_facts(each) for each in found]
        return _report("patches list", counted(len(found), "patch set"), {"sets": sets})

    run(command, work)


@app.command()
def show(
    context: typer.Context,
    name: NameArgument = None,
    patches: opt.PatchesOption = None,
    json: opt.JsonOption = False,
) -> None:
    """A set's patches, files and needs."""
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
def check(
    context: typer.Context,
    name: NameArgument = None,
    patches: opt.PatchesOption = None,
    json: opt.JsonOption = False,
) -> None:
    """Apply a set to the pinned wheel, compile every file, and un-apply it to the byte."""
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
