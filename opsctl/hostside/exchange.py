"""Change many files of a package at one instant: a changed copy of the folder, exchanged whole.

The copy lies beside the package and holds the same files by hardlink, which costs no space and
is only ever read: what changes is written as a new file. renameat2(2) with RENAME_EXCHANGE then
makes the two names change places in one step. Whoever opens a file by the package's path gets
the old tree before that step and the new one after it; what a process imported before stays
imported, so one that was *in the middle* of its imports at that step can still see both, which
is why the step waits for an instant without one (`importers`).

Where the kernel or the file system refuses (a mount point, no hardlinks, no ctypes), and on
overlayfs, there is no copy, and the caller writes file by file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import shutil
import stat
from typing import Collection, Iterator, Optional

from .packagefiles import Instant
from .state import sync_folder

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
# For a C library without the wrapper: glibc before 2.28, musl. From the kernel's syscall tables.
_SYSCALL = {"x86_64": 316, "aarch64": 276}


def beside(package_dir: str) -> str:
    """Where the copy is: no importable name, and on the package's own file system."""
    root = os.path.realpath(package_dir)
    return os.path.join(os.path.dirname(root), ".opsctl-next-" + os.path.basename(root))


@contextlib.contextmanager
def alone(package_dir: str) -> Iterator[None]:
    """Two services may share one environment, and each has a lock of its own."""
    descriptor = os.open(os.path.dirname(os.path.realpath(package_dir)), os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remove(tree: str) -> None:
    """Take the copy away, of which a swap that was cut off may have left a part.

    It is names only; a failure leaves a hidden folder that the next swap removes, and is no
    reason to call a swap that was made a failure.
    """
    shutil.rmtree(tree, ignore_errors=True)


def copy(package_dir: str) -> Optional[str]:
    """A copy of the package by hardlinks; None where there cannot be one."""
    tree = beside(package_dir)
    remove(tree)
    # There each link would copy a whole file up from the lower layer (7 s for SGLang), for an
    # exchange that is refused then.
    if _file_system(os.path.realpath(package_dir)) == "overlay":
        return None
    try:
        _copy_folder(os.path.realpath(package_dir), tree)
    except OSError:
        remove(tree)
        return None
    except BaseException:
        remove(tree)
        raise
    return tree


def _file_system(folder: str) -> Optional[str]:
    """The type of the file system that holds `folder`, from proc_pid_mountinfo(5)."""
    number = os.stat(folder).st_dev
    device = "%d:%d" % (os.major(number), os.minor(number))
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as f:
            for line in f:
                mount, _, source = line.partition(" - ")
                if mount.split()[2] == device:
                    return source.split()[0]
    except (OSError, IndexError):
        pass
    return None


def _copy_folder(source: str, target: str) -> None:
    facts = os.stat(source)
    os.mkdir(target, 0o700)
    with os.scandir(source) as entries:
        for entry in entries:
            there = os.path.join(target, entry.name)
            if entry.is_dir(follow_symlinks=False):
                _copy_folder(entry.path, there)
            else:
                os.link(entry.path, there, follow_symlinks=False)
    # Access lists and labels; where the file system has none there are none to copy.
    with contextlib.suppress(OSError):
        for name in os.listxattr(source):
            os.setxattr(target, name, os.getxattr(source, name))
    if (facts.st_uid, facts.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(target, facts.st_uid, facts.st_gid)
    # Not the mtime: by it Python knows that a folder which it has listed is another now.
    os.chmod(target, stat.S_IMODE(facts.st_mode))


def exchange(tree: str, package_dir: str, instant: Instant) -> bool:
    """Let the two change places, durably; `instant` is entered around the step.

    False where this is refused: then nothing changed.
    """
    for folder, _, _ in os.walk(tree):
        sync_folder(folder)
    root = os.path.realpath(package_dir)
    try:
        with instant():
            _rename_exchange(tree, root)
    except OSError:
        return False
    sync_folder(os.path.dirname(root))
    return True


def _rename_exchange(one: str, other: str) -> None:
    try:
        import ctypes
    except ImportError:  # a Python that was built without libffi
        raise OSError(errno.ENOSYS, "no ctypes") from None
    library = ctypes.CDLL(None, use_errno=True)
    names = (os.fsencode(one), os.fsencode(other))
    arguments = (_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)
    if hasattr(library, "renameat2"):
        done = library.renameat2(*arguments)
    elif platform.machine() in _SYSCALL:
        done = library.syscall(_SYSCALL[platform.machine()], *arguments)
    else:
        raise OSError(errno.ENOSYS, "renameat2 is not known here")
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), one, None, other)


def carry_over(tree: str, package_dir: str, but: Collection[str]) -> None:
    """After the exchange: what somebody put into the old tree since the copy was made.

    `but` are the paths that the swap itself is about; bytecode makes itself again.
    """
    root = os.path.realpath(package_dir)
    for folder, _, names in os.walk(tree):
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), tree)
            if path in but or path.endswith(".pyc") or _same(tree, root, path):
                continue
            with contextlib.suppress(OSError):
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                os.replace(os.path.join(tree, path), os.path.join(root, path))


def _same(one: str, other: str, path: str) -> bool:
    try:
        return os.path.samestat(
            os.lstat(os.path.join(one, path)), os.lstat(os.path.join(other, path))
        )
    except OSError:
        return False
