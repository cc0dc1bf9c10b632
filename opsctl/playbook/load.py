"""Find playbooks and read them; every fault is one message with file, line and key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from opsctl import resources, yamlmodel
from opsctl.errors import UsageError
from opsctl.playbook.model import Playbook
from opsctl.text import did_you_mean

RUNBOOKS = "runbooks"
# Characters of a file; opsctl's own have 2,000 at the most. A folder of them is read for a list.
_MOST: Final = 1 << 15
_REMEDY = "`opsctl playbook steps` lists the steps, their arguments and the conditions"


def load(path: Path) -> Playbook:
    """Read one playbook.

    Raises:
        UsageError: it cannot be read, is no playbook, names a step, an argument or a condition
            that there is not, or has its steps in an order that cannot work. All faults of its
            form are named, each with its line.
    """
    document = yamlmodel.read(path, _invalid, _MOST)
    playbook = yamlmodel.model(document, Playbook, _invalid, remedy=_REMEDY)
    if playbook.name != path.stem:
        line = document.lines.get(("name",), 1)
        raise _invalid(
            f"{path}:{line}: name: it is {playbook.name!r} in a file called {path.name}",
            "give both the same name",
        )
    return playbook


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where playbooks are looked for: a team's own folder first, then what comes with opsctl."""

    roots: tuple[Path, ...]

    @classmethod
    def beside(cls, folder: Path | None) -> Shelf:
        """With the folder `playbooks` in `folder`, where there is one."""
        found = (resources.locate("playbooks", folder), resources.bundled("playbooks"))
        return cls(tuple(dict.fromkeys(found)))

    def playbooks(self) -> dict[str, Path]:
        """By name, those that are no runbooks."""
        return self._named("")

    def runbooks(self) -> dict[str, Path]:
        return self._named(RUNBOOKS)

    def load(self, name: str, *, runbook: bool = False) -> Playbook:
        """The playbook, or runbook, of that name.

        Raises:
            UsageError: there is none, which proposes the nearest; else as `load`.
        """
        known = self.runbooks() if runbook else self.playbooks()
        kind = "runbook" if runbook else "playbook"
        if name not in known:
            other = self.playbooks() if runbook else self.runbooks()
            else_ = "playbook" if runbook else "runbook"
            elsewhere = f", or opsctl {else_} show {name}" if name in other else ""
            raise UsageError(
                f"no {kind} is called {name!r}{did_you_mean(name, known)}; "
                f"there are {', '.join(known)}",
                remedy=f"opsctl {kind} list{elsewhere}; looked for in "
                + ", ".join(map(str, self.roots)),
                code="unknown_name",
            )
        playbook = load(known[name])
        if (playbook.runbook is not None) != runbook:
            raise _invalid(
                f"{known[name]}: runbook: {'has to be' if runbook else 'may not be'} in a {kind}",
                f"a runbook says when it is for, and lies in playbooks/{RUNBOOKS}/",
            )
        return playbook

    def _named(self, below: str) -> dict[str, Path]:
        paths = [path for root in reversed(self.roots) for path in (root / below).glob("*.yaml")]
        return dict(sorted({path.stem: path for path in paths if path.is_file()}.items()))


def _invalid(message: str, remedy: str) -> UsageError:
    return UsageError(message, remedy=remedy, code="playbook_invalid")
