"""A disposable CT200 on this machine: real SSH, real systemd, real SGLang, on the CPU.

What is named here is imported at its first use: a shell that completes a lab's name needs
`opsctl.lab.state` alone, and has no time for more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opsctl.lab.state import Lab

if TYPE_CHECKING:
    from opsctl.lab.labs import adapt, all_labs, connection, down, reset, ssh_argv, status, up

__all__ = [
    "Lab",
    "adapt",
    "all_labs",
    "connection",
    "down",
    "reset",
    "ssh_argv",
    "status",
    "up",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from opsctl.lab import labs

    return getattr(labs, name)
