"""The commands, each made when it is called: to import and to make all of them takes longer than
Typer itself, and every command, every TAB and the list of them would pay for it."""

from __future__ import annotations

import functools
from collections import UserDict
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

# Name, the module here whose `register` adds it, and what the list says of it, which is its own
# first sentence; a test holds the two together.
_LIST: Final = """\
init      init      Write an inventory by looking at a host: its units that run SGLang, and how they are set up.
deploy    rollouts  Put a patch set on a host, restart, prove it, or return what was there.
plan      rollouts  Show what deploy would do, as a diff, changing nothing.
restart   rollouts  Restart the unit, wait for the load under its budget, and prove it.
rollback  rollouts  Return to a recorded generation and prove that it serves.
confirm   rollouts  Prove and keep what a rollout left whose client was lost, before the guard ends it.
wait      rollouts  Follow the present start until it is ready, changing nothing.
smoke     smoke     Send requests through the verify path and judge what comes back.
gate      gate      Deploy a set, hold it against a policy under load, and keep it or roll back.
status    host      Unit, version, generation, lock and last loads.
doctor    host      Find everything that would make a deploy fail, each with its remedy.
logs      host      The journal of the present start, systemd's own lines about it included.
metrics   metrics   Acceptance, CUDA-graph share and throughput of the present start, or of another span.
watch     watch     One or several hosts, live: state, load, acceptance, throughput and the journal.
history   records   Every generation: when, which set, who, from where, why, and how it ended.
verify    records   Compare the host with its records and the wheel's RECORD, changing nothing.
audit     records   The host's log of what was done to the service, by whom and when.
diagnose  diagnose  Say what a journal tells: kind, severity, phase, the lines that decide, and the remedy.
triage    triage    Say what is wrong, which runbook is for it, and why; in five seconds, and changing nothing.
baseline  smoke     What a trusted server answers, for smoke to compare with.
runbook   playbooks What to do when the service is in trouble: list, show, run.
playbook  playbooks What deploy, restart and rollback do, as files: list, show, check, run.
lock      lock      The lock of a service: show, take, release.
patches   patches   List, show, check, sign and verify the patch sets.
unit      unit      The unit's own files: render, diff, install, lint.
notices   notices   Who is told of a rollout, by webhook.
lab       lab       A disposable CT200: up, down, status, ssh, reset.
"""  # noqa: E501
COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    name: (module, said)
    for name, module, said in (row.split(None, 2) for row in _LIST.splitlines())
}


class Group(TyperGroup):
    """The group of `COMMANDS`."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.commands = _Commands()

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of them, without any of their modules."""
        said = [TyperCommand(name, help=text) for name, (_, text) in COMMANDS.items()]
        TyperGroup(commands=said).format_commands(ctx, formatter)


class _Commands(UserDict[str, Any]):
    def __init__(self) -> None:
        super().__init__(dict.fromkeys(COMMANDS))

    def __getitem__(self, name: str) -> Any:
        module, _ = COMMANDS[name]
        return _made(module)[name]


@functools.cache
def _made(module: str) -> Mapping[str, Any]:
    """The commands of one module, by name."""
    app = typer.Typer(rich_markup_mode=None)
    import_module(f"opsctl.cli.{module}").register(app)
    return typer.main.get_group(app).commands
