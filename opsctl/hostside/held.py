"""Folders held open, so that their owner cannot lead us elsewhere while we work in them.

An environment may belong to another user, and whoever owns a folder may put a link in its place
between two steps of root's. A path is followed anew at each step; a descriptor is of the folder
that was opened, wherever its name leads by then. So is a path below /proc/self/fd/N.
"""

from __future__ import annotations

import os
import stat
from types import TracebackType
from typing import Dict, Optional, Type

from .errors import HostFault

# What opsctl itself puts into a package's folders, or beside them, begins so.
PREFIX = ".opsctl-"


def by_descriptor(descriptor: int, name: str = "") -> str:
    """A path to `name` in the folder that `descriptor` holds open."""
    return os.path.join("/proc/self/fd/%d" % descriptor, name)


def open_folder(name: str, within: Optional[int] = None) -> int:
    """A descriptor of the folder `name`. Raises OSError, for a link too."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, dir_fd=within)


def make_folder(name: str, within: int) -> int:
    """A new folder that is ours alone, opened.

    Raises:
        HostFault: somebody put another in its place (`folder_replaced`).
    """
    os.mkdir(name, 0o700, dir_fd=within)
    descriptor = open_folder(name, within)
    if os.fstat(descriptor).st_uid != os.geteuid() or os.listdir(descriptor):
        os.close(descriptor)
        raise HostFault("folder_replaced", "somebody replaced the new folder %s" % name)
    return descriptor


def give(descriptor: int, facts: os.stat_result) -> None:
    """Owner and mode of `facts` for what is open."""
    if (facts.st_uid, facts.st_gid) != (os.geteuid(), os.getegid()):
        os.fchown(descriptor, facts.st_uid, facts.st_gid)
    # After the owner, which takes set-group-ID away.
    os.fchmod(descriptor, stat.S_IMODE(facts.st_mode))


class Folders:
    """The folders of one package, each held open from its first use to the end of the block.

    `root` is a descriptor of the package's own, which is closed at the end too. Folders are
    named by their path below it, "" for itself.
    """

    def __init__(self, root: int) -> None:
        self._held: Dict[str, int] = {"": root}

    @property
    def root(self) -> int:
        return self._held[""]

    @classmethod
    def of(cls, package_dir: str) -> Folders:
        """The package may be a link itself."""
        return cls(os.open(package_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def __enter__(self) -> Folders:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)

    def get(self, folder: str, make: bool = False) -> Optional[int]:
        """A descriptor of `folder`, made with the package's mode and owner if `make`; else None
        where there is none.

        A link on the way that stays within the package is one of the package's. What turns into
        one meanwhile is not followed.
        """
        root = os.path.realpath(by_descriptor(self.root))
        real = os.path.realpath(os.path.join(root, folder))
        if not (real + "/").startswith(root + "/"):
            raise HostFault("path_outside", "%r is not a path below the package" % folder)
        below = os.path.relpath(real, root)
        return self._descend("" if below == "." else below, make)

    def _descend(self, below: str, make: bool) -> Optional[int]:
        if below in self._held:
            return self._held[below]
        parent, name = os.path.split(below)
        within = self._descend(parent, make)
        if within is None:
            return None
        try:
            self._held[below] = open_folder(name, within)
        except (FileNotFoundError, NotADirectoryError):
            if not make:
                return None
            self._held[below] = make_folder(name, within)
            # Root's umask may hide it from a service user.
            give(self._held[below], os.fstat(self.root))
        return self._held[below]
