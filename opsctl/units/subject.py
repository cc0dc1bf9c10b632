"""What a look at a unit is given, and what it finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from opsctl.inventory.models import Service
from opsctl.units.unitfile import Setting, UnitText, seconds

Status = Literal["warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`fail` will hurt: a server down, hidden or killed. `warn` makes a bad day worse."""

    name: str
    status: Status
    message: str  # what is so, and what comes of it
    remedy: str
    where: str = ""  # path:line

    def to_json(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Subject:
    """A unit as it is, or would be, on a host."""

    text: UnitText
    service: Service
    load_s: float  # what a start of it takes, seconds
    owned: frozenset[str] = frozenset()  # the files that are opsctl's own
    properties: Mapping[str, str] = field(default_factory=dict)  # systemctl show; of it as it is
    manager: Mapping[str, str] = field(
        default_factory=dict
    )  # systemd's defaults, as it prints them
    environment_files: Sequence[Mapping[str, Any]] = ()
    model_bytes: int = 0
    memory_bytes: int = 0

    def setting(self, *keys: str, section: str = "Service") -> Setting | None:
        return self.text.last(*keys, section=section)

    def value(self, key: str, default: str = "", section: str = "Service") -> str:
        return self.text.text(key, default, section)

    def where(self, *keys: str, section: str = "Service") -> str:
        found = self.setting(*keys, section=section)
        return "" if found is None else found.where

    def seconds(self, *keys: str, default: str, section: str = "Service") -> float:
        """A span of the unit's, or systemd's default: the manager's own where it is known."""
        found = self.setting(*keys, section=section)
        text = found.value if found is not None else default
        given = seconds(text)
        return given if given is not None else seconds(default) or 0.0

    @property
    def arguments(self) -> list[str]:
        """The words of ExecStart, those of the variables in it left as they are."""
        return [word for line in self.text.all("ExecStart") for word in line.value.split()]

    def option(self, name: str) -> str | None:
        words = self.arguments
        found = None
        for at, word in enumerate(words):
            if word.startswith(f"{name}="):
                found = word.partition("=")[2]
            elif word == name and at + 1 < len(words):
                found = words[at + 1]
        return None if found is None else found.strip("\"'")
