"""What is known of each lab: a folder with its keys, its log and lab.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from opsctl.lab.process import Process

SSH_PORT = 2222


@dataclass(frozen=True, slots=True)
class Lab:
    """One lab as last seen. `created` is Unix time in seconds; `tree` its recipe's digest."""

    name: str
    address: str
    ssh_port: int
    state_dir: Path
    running: bool
    tree: str
    created: float


@dataclass(frozen=True, slots=True)
class Record:
    """lab.json: a lab with the process and the cgroups that hold it."""

    name: str
    address: str
    tree: str
    created: float
    supervisor: Process
    cgroups: tuple[str, ...]

    def save(self) -> None:
        """Write it whole or not at all."""
        content = {name: getattr(self, name) for name in self.__slots__}
        process = self.supervisor
        content["supervisor"] = {name: getattr(process, name) for name in process.__slots__}
        path = folder_of(self.name) / "lab.json"
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        draft.replace(path)

    def lab(self) -> Lab:
        """The public view, with `running` as of now."""
        return Lab(
            name=self.name,
            address=self.address,
            ssh_port=SSH_PORT,
            state_dir=folder_of(self.name),
            running=self.supervisor.alive(),
            tree=self.tree,
            created=self.created,
        )


def labs_folder() -> Path:
    """The folder of all labs of this user on this machine."""
    return platformdirs.user_state_path("opsctl") / "labs"


def folder_of(name: str) -> Path:
    """The folder of the lab `name`, whether or not it exists."""
    return labs_folder() / name


def load(name: str) -> Record | None:
    """The record of the lab `name`, or None where there is none that can be read."""
    try:
        content: dict[str, Any] = json.loads((folder_of(name) / "lab.json").read_text("utf-8"))
        process = Process(**content.pop("supervisor"))
        cgroups = tuple(content.pop("cgroups"))
        return Record(**content, supervisor=process, cgroups=cgroups)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def load_all() -> list[Record]:
    """Every lab's record, by name."""
    folder = labs_folder()
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    return [record for name in names if (record := load(name)) is not None]
