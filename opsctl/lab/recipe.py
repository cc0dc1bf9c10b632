"""What the lab's Debian tree is made of, and the hash that names it."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import dataclass
from pathlib import Path

import platformdirs

PACKAGE = Path(__file__).resolve().parent
# Raise it when tree.py builds something else from the same lists.
VERSION = 1

SGLANG_VERSION = "0.5.12.post1"
TORCH_VERSION = "2.13.0"


# What is done to the tree after its packages: no identity of its own (each lab brings its
# machine id and host key), no background downloads, users to test sudo with, and no caches.
_FINISH = """\
set -eu
rm -f /etc/ssh/ssh_host_* /etc/hostname
: >/etc/machine-id
for timer in apt-daily apt-daily-upgrade dpkg-db-backup e2scrub_all fstrim; do
    ln -sf /dev/null "/etc/systemd/system/$timer.timer"
done
for user in ops nosudo; do useradd --create-home --shell /bin/bash "$user"; done
echo 'ops ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/ops
chmod 0440 /etc/sudoers.d/ops
rm -rf /tmp/* /opt/uv /root/.cache /var/cache/apt/archives/*.deb /var/lib/apt/lists/*
"""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The inputs of a tree. Two machines with equal recipes have equivalent trees."""

    suite: str = "bookworm"
    debian: tuple[str, ...] = (
        "ca-certificates",
        "dbus",
        "iproute2",
        "libnuma1",
        "libpam-systemd",
        "openssh-server",
        "procps",
        "python3",
        "python3-venv",
        "sudo",
        "systemd",
        "systemd-sysv",
    )
    venv: str = "/opt/sglang"
    torch: str = TORCH_VERSION
    requirements: str = ""
    # Without its own requirements, which are CUDA builds of several GB.
    sglang: str = f"sglang=={SGLANG_VERSION}"
    finish: str = _FINISH
    version: int = VERSION

    @property
    def digest(self) -> str:
        """Twelve hex digits over every input and this machine's architecture."""
        inputs = {name: getattr(self, name) for name in self.__slots__}
        text = json.dumps([inputs, platform.machine()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def current() -> Recipe:
    """The recipe of this copy of opsctl."""
    return Recipe(requirements=(PACKAGE / "requirements.txt").read_text(encoding="utf-8"))


def cache_folder() -> Path:
    """Where finished trees lie, each in a folder named by its recipe's digest."""
    return platformdirs.user_cache_path("opsctl") / "lab"
