"""A unit's start without speculative decoding: a drop-in that no reboot outlives.

Its text is the unit's own, read from `systemctl cat`, without the words that turn speculation
on. The file is below /run, and the next start as the files say takes it away.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import List

from .errors import HostFault
from .tools import reload_units, run

# The last of the drop-ins by name, so that it counts.
NAME = "zz-opsctl-plain.conf"
FOLDER = "/run/systemd/system"
_HEAD = "# Written by opsctl: this start is without speculative decoding; the next one is not."
# An option of SGLang's with its value, and the blanks and continued lines around. No quote is part
# of it: the last word of a quoted variable ends at one.
_BLANK = r"(?:[ \t]|\\\n)"
_OPTION = re.compile(
    r"--speculative-[a-z0-9-]+(?:=[^\s\"']+|%s+(?![-\\$])[^\s\"']+)?%s*" % (_BLANK, _BLANK)
)


def path(unit: str) -> str:
    return os.path.join(FOLDER, unit + ".d", NAME)


def apply(unit: str) -> None:
    """Raises HostFault: the unit's own text has no ExecStart, or no speculation to leave out."""
    done = run(["systemctl", "cat", "--no-pager", "--", unit])
    if done.returncode != 0:
        raise HostFault("no_such_unit", done.stderr.strip())
    text = without_speculation(done.stdout)
    os.makedirs(os.path.dirname(path(unit)), mode=0o755, exist_ok=True)
    with open(path(unit), "w", encoding="utf-8") as f:
        f.write(text)
    reload_units()


def clear(unit: str) -> None:
    if not os.path.exists(path(unit)):
        return
    os.unlink(path(unit))
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path(unit)))
    reload_units()


def without_speculation(text: str) -> str:
    """The drop-in, of what `systemctl cat` prints of a unit.

    Raises:
        HostFault: there is no ExecStart, or nothing to leave out.
    """
    commands: List[str] = []
    settings: List[str] = []
    for line in _settings(text):
        key, _, value = line.partition("=")
        if key == "ExecStart":
            commands = [*commands, line] if value.strip() else []  # an empty one resets
        elif key == "Environment":
            settings.append(line)  # all: a later one may take back what an earlier one sets
    if not commands:
        raise HostFault("no_exec_start", "the unit has no ExecStart")
    own = [*settings, *commands]
    kept = [_OPTION.sub("", line) for line in own]
    if kept == own:
        raise HostFault(
            "not_speculative",
            "the unit's arguments have no --speculative- option to leave out",
            "look at what starts it: systemctl cat",
        )
    return "\n".join([_HEAD, "[Service]", "ExecStart=", *kept, ""])


def _settings(text: str) -> List[str]:
    """Each assignment with the lines that continue it; comments and sections left out."""
    found: List[str] = []
    open_ended = False
    for line in text.split("\n"):
        if open_ended:
            if not line.lstrip().startswith(("#", ";")):
                found[-1] += "\n" + line
                open_ended = line.endswith("\\")
        elif line and line[0] not in "#;[":
            found.append(line)
            open_ended = line.endswith("\\")
    return found
