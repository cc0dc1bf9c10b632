"""The settings of a unit's files that decide how SGLang is started, as systemd takes them."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from typing import Dict, List, Optional, Tuple

from . import plain
from .errors import HostFault
from .hidden import SECRET_NAME, hide_in
from .install import read_bytes


class Settings:
    """The settings of some of a unit's files together, as systemd takes them."""

    def __init__(self, properties: Dict[str, str], texts: "List[Tuple[str, str]]") -> None:
        self.text = "\n".join(text for _, text in texts)
        self.commands: List[str] = []
        self.set: Dict[str, str] = {}  # by Environment=
        self.files: List[str] = []  # of EnvironmentFile=, as they are written
        self.settings: Dict[str, str] = {}  # others that an inventory has a place for
        self.specifiers = _specifiers(properties["Id"])
        self.folder = properties.get("WorkingDirectory", "").lstrip("-!") or "/"
        for line in plain.assignments(self.text):
            key, _, value = (part.strip() for part in line.partition("="))
            self._take(key, value)
        read = [_environment_file(path.lstrip("-")) for path in self.files]
        # A file's variables come over those of Environment= (systemd.exec(5)).
        self.variables = {k: v for values in (self.set, *read) for k, v in values.items()}

    def _take(self, key: str, value: str) -> None:
        if key == "ExecStart":
            self.commands = [*self.commands, value] if value else []
        elif key in ("User", "WorkingDirectory", "TimeoutStopSec"):
            self.settings[key] = value
        elif key == "EnvironmentFile":
            self.files = [*self.files, value] if value else []
        elif key == "Environment":
            if not value:
                self.set = {}
            with contextlib.suppress(HostFault):
                for word in plain.split(value):
                    name, _, text = word.value.partition("=")
                    self.set[name] = re.sub(
                        "%(.)", lambda m: self.specifiers.get(m.group(1), m.group()), text
                    )

    @property
    def template(self) -> Optional[str]:
        """The unit template of opsctl that the text was made from."""
        made = re.search(r"^# Rendered by opsctl from (\S+) for the service", self.text, re.M)
        return made.group(1) if made else None

    @property
    def secret_variables(self) -> List[str]:
        return sorted(name for name in self.variables if SECRET_NAME.search(name))

    def environment(self, used: str) -> Dict[str, str]:
        """What the unit sets for the server, secrets left out, and what only fills in `used`."""
        return {
            name: hide_in(value)
            for name, value in self.set.items()
            if not SECRET_NAME.search(name) and not re.search(r"\$\{?%s\b" % name, used)
        }


def _specifiers(unit: str) -> Dict[str, str]:
    stem = unit[: -len(".service")]
    prefix, _, instance = stem.partition("@")
    words = {"%": "%", "n": unit, "N": stem, "p": prefix, "i": instance}
    return dict(words, I=instance.replace("-", "/"), H=os.uname().nodename)


def _environment_file(pattern: str) -> Dict[str, str]:
    """NAME=VALUE lines, as systemd.exec(5) has them."""
    found = {}
    for path in sorted(glob.glob(pattern)):
        for line in plain.assignments(_text(path)):
            name, separator, value = line.strip().partition("=")
            if separator:
                value = value.strip()
                quoted = len(value) > 1 and value[0] in "\"'" and value[-1] == value[0]
                found[name.strip()] = value[1:-1] if quoted else value
    return found


def _text(path: str) -> str:
    try:
        return (read_bytes(path) or b"").decode("utf-8", "replace")
    except OSError:
        return ""
