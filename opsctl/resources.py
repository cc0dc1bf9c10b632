"""Where patch sets, unit templates, playbooks and the inventory are found.

Beside the inventory file in use first (a team's own repository), then what this copy
of opsctl carries: the repository root in a checkout, `opsctl/_data` when installed.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from opsctl.errors import InventoryError

INVENTORY = "inventory.yaml"
INVENTORY_VARIABLE = "OPSCTL_INVENTORY"

_PACKAGE = Path(__file__).resolve().parent


def bundled(name: str) -> Path:
    """The file or folder `name` (such as ``patches``) that came with this opsctl."""
    installed = _PACKAGE / "_data" / name
    return installed if installed.exists() else _PACKAGE.parent / name


def locate(name: str, beside: Path | None = None) -> Path:
    """`name` in the folder `beside`, where it has one, else the bundled one."""
    if beside is not None and (beside / name).exists():
        return beside / name
    return bundled(name)


def find_inventory(explicit: Path | None = None, start: Path | None = None) -> Path:
    """The inventory to use: `explicit`, $OPSCTL_INVENTORY, the nearest inventory.yaml in
    `start` (the working directory) or above it, the user's configuration folder, and at
    last the one that this opsctl came with.

    Raises:
        InventoryError: a file that was named does not exist.
    """
    named = explicit or (Path(value) if (value := os.environ.get(INVENTORY_VARIABLE)) else None)
    if named is not None:
        if not named.is_file():
            raise InventoryError(
                f"{named}: no such inventory file",
                remedy=f"give a file with --inventory or {INVENTORY_VARIABLE}; "
                "opsctl init writes one",
                code="inventory_missing",
            )
        return named
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / INVENTORY).is_file():
            return folder / INVENTORY
    configured = platformdirs.user_config_path("opsctl") / INVENTORY
    return configured if configured.is_file() else bundled(INVENTORY)
