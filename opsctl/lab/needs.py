"""Can this machine hold a lab? If not: what is missing, and the command that mends it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from opsctl.errors import LabUnavailable

# Program -> the Debian and Ubuntu package that carries it.
PROGRAMS = {
    "systemd-nspawn": "systemd-container",
    "debootstrap": "debootstrap",
    "unshare": "util-linux",
    "mount": "mount",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


@dataclass(frozen=True, slots=True)
class Machine:
    """What `missing` judges; `this_machine` fills it in, and a test writes its own."""

    platform: str
    uid: int
    which: Callable[[str], str | None]
    filesystems: str
    has_keyring: bool


def _which(program: str) -> str | None:
    # An ordinary user's PATH lacks the folders of debootstrap and others.
    return shutil.which(program, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")


def _filesystems() -> str:
    listing = Path("/proc/filesystems")
    if not listing.exists():
        return ""
    if "overlay" not in listing.read_text(encoding="utf-8") and _which("modprobe"):
        # Often a module that nothing has asked for yet.
        subprocess.run(["modprobe", "overlay"], capture_output=True, check=False)
    return listing.read_text(encoding="utf-8")


def this_machine() -> Machine:
    """The facts of the machine that opsctl runs on."""
    return Machine(
        platform=sys.platform,
        uid=os.geteuid(),
        which=_which,
        filesystems=_filesystems(),
        has_keyring=_KEYRING.exists(),
    )


def missing(machine: Machine) -> LabUnavailable | None:
    """The error that says why `machine` cannot hold a lab, or None when it can."""
    if not machine.platform.startswith("linux"):
        return LabUnavailable(
            f"a lab is a Linux container, and this machine runs {machine.platform}",
            remedy="run the lab on a Linux machine, or in a Linux virtual machine",
        )
    packages = {package for program, package in PROGRAMS.items() if not machine.which(program)}
    if not machine.has_keyring:
        packages.add("debian-archive-keyring")
    if packages:
        wanted = " ".join(sorted(packages))
        return LabUnavailable(
            f"a lab needs programs that this machine lacks, from the packages: {wanted}",
            remedy=f"sudo apt-get install {wanted}",
        )
    if machine.uid != 0:
        return LabUnavailable(
            "a lab needs root: it mounts file systems and boots a container",
            remedy="sudo opsctl lab up (and sudo for whatever uses the lab afterwards)",
        )
    if "overlay" not in machine.filesystems.split():
        return LabUnavailable(
            "this kernel has no overlayfs, on which a lab's disposable disk rests",
            remedy="sudo modprobe overlay",
        )
    return None


def require() -> None:
    """Return only where a lab can be made.

    Raises:
        LabUnavailable: what is missing, with the command that mends it.
    """
    problem = missing(this_machine())
    if problem is not None:
        raise problem
