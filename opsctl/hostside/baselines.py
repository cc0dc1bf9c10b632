"""The baselines of a service, below its state folder: baselines/<id>.json, 0600."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Dict, List

from .errors import HostFault
from .install import read_bytes
from .state import State, write_atomically

_ID = re.compile(r"[0-9a-f]{12}")
_NAME = re.compile(r"([0-9a-f]{12})\.json")


def listed(state: State) -> List[str]:
    """Their ids, the one that was written last first."""
    folder = state.path("baselines")
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    found = [match.group(1) for match in map(_NAME.fullmatch, names) if match]
    return sorted(found, key=lambda each: -os.stat(_path(state, each)).st_mtime)


def read(state: State, name: str) -> str:
    """Its JSON.

    Raises:
        HostFault: there is none (`no_such_baseline`).
    """
    data = read_bytes(_path(state, name))
    if data is None:
        raise _unknown(name)
    return data.decode()


def write(state: State, name: str, text: str) -> Dict[str, str]:
    state.prepare()
    os.makedirs(state.path("baselines"), mode=0o700, exist_ok=True)
    path = _path(state, name)
    write_atomically(path, text.encode())
    return {"path": path}


def remove(state: State, name: str) -> None:
    """Raises HostFault: there is none."""
    path = _path(state, name)
    if not os.path.exists(path):
        raise _unknown(name)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _path(state: State, name: str) -> str:
    if not _ID.fullmatch(name):
        raise _unknown(name)
    return state.path("baselines", name + ".json")


def _unknown(name: str) -> HostFault:
    return HostFault("no_such_baseline", "there is no baseline %r" % name, "opsctl baseline list")
