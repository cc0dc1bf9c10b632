"""A disposable CT200 on this machine: real SSH, real systemd, real SGLang, on the CPU."""

from opsctl.lab.labs import adapt, all_labs, connection, down, reset, ssh_argv, status, up
from opsctl.lab.state import Lab

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
