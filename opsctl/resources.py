"""Where patch sets, unit templates, playbooks and the inventory are found.

Beside the inventory file in use first (a team's own repository), then what this copy
of opsctl carries: the repository root in a checkout, `opsctl/_data` when installed.
"""

from __future__ import annotations

from pathlib import Path

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
