"""Read inventory.yaml; every fault in it is one message with file, line and key."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from opsctl import yamlmodel
from opsctl.errors import InventoryError, UsageError
from opsctl.inventory.models import Host, Inventory, Service
from opsctl.text import close_to, did_you_mean


def load(path: Path, elsewhere: Callable[[str], bool] | None = None) -> Inventory:
    """Parse and check the inventory at `path`. `elsewhere` says of a name that is no entry, as
    `defaults.host` may be, whether it is a host all the same: a lab that runs needs none.

    Raises:
        InventoryError: the file cannot be read, is not YAML, repeats a key, or a value in it
            is not what the key takes. All faults are named, each with its line.
    """
    document = yamlmodel.read(path, _invalid)
    inventory = yamlmodel.model(
        document,
        Inventory,
        _invalid,
        remedy="docs/inventory.md lists every key",
        context={"folder": path.resolve().parent, "elsewhere": elsewhere},
    )
    inventory._path = path
    return inventory


def _invalid(message: str, remedy: str) -> InventoryError:
    return InventoryError(message, remedy=remedy)


def select(
    inventory: Inventory, host: str | None = None, service: str | None = None
) -> tuple[Host, Service]:
    """The host and service meant. Without `host`: $OPSCTL_HOST, defaults.host, or the only
    host there is; without `service`: the only one of that host.

    Raises:
        UsageError: the name is not in the inventory, or the choice is open.
    """
    chosen = _pick("host", wanted(inventory, host), list(inventory.hosts), "--host")
    found = inventory.hosts[chosen]
    return found, found.services[
        _pick(f"service on {chosen}", service, list(found.services), "--service")
    ]


def wanted(inventory: Inventory, host: str | None = None) -> str | None:
    """The name of the host meant, whether or not there is one; None where none is named."""
    return host or os.environ.get("OPSCTL_HOST") or inventory.defaults.host


def _pick(kind: str, name: str | None, known: Sequence[str], option: str) -> str:
    if name is None and len(known) == 1:
        return known[0]
    if name is None:
        raise UsageError(
            f"which {kind}? There are {', '.join(known)}",
            remedy=f"give one of them: {option} {known[0]}",
        )
    if name not in known:
        raise unknown(kind, name, known, option)
    return name


def unknown(
    kind: str, name: str, known: Sequence[str], option: str, labs: Sequence[str] = ()
) -> UsageError:
    """That there is no such host or service; `labs` are the running ones without an entry."""
    there = ", ".join(known)
    if labs:
        there += f", and running without an entry: {', '.join(labs)}"
    return UsageError(
        f"no {kind} is called {name!r} in the inventory; there are {there}"
        f"{did_you_mean(name, [*known, *labs])}",
        remedy=f"give one of them: {option} {(close_to(name, known) or known)[0]}, or "
        + (f"add it: opsctl init {name} --add" if kind == "host" else "add it to the inventory"),
        code="unknown_name",
    )
