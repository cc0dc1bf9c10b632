"""Change many files of a package at one instant: a changed copy of the folder, exchanged whole.

The copy lies beside the package and holds the same files by hardlink, which costs no space and
is only ever read: what changes is written as a new file. renameat2(2) with RENAME_EXCHANGE then
makes the two names change places in one step. Whoever opens a file by the package's path gets
the old tree before that step and the new one after it; what a process imported before stays
imported, so one that was *in the middle* of its imports at that step can still see both, which
is why the step waits for an instant without one (`importers`).

Until the exchange the copy is in a folder that root alone may enter, and all of it is made by
descriptors (`held`): the package may belong to the user that the service runs as.

Where the kernel or the file system refuses (a mount point, no hardlinks, no ctypes), and on
overlayfs, there is no copy, and the caller writes file by file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import platform
import shutil
import time
from typing import Collection, Iterator, Optional

from .errors import HostFault
from .held import PREFIX, Folders, by_descriptor, give, make_folder, open_folder
from .packagefiles import Instant
from .state import sync_folder

# Root's own: what anybody may open, anybody may lock.
LOCKS = "/run/opsctl"
# Seconds that a swap waits for another one in the same environment, which takes some.
PATIENCE = 60.0
_RENAME_EXCHANGE = 2
# For a C library without the wrapper: glibc before 2.28, musl. From the kernel's syscall tables.
_SYSCALL = {"x86_64": 316, "aarch64": 276}


@contextlib.contextmanager
def alone(package_dir: str, unit: str) -> Iterator[None]:
    """Two services may share one environment, and each has a lock of its own.

    Raises:
        HostFault: a swap for another unit goes on for `PATIENCE` seconds (`env_busy`).
    """
    facts = os.stat(os.path.dirname(os.path.realpath(package_dir)))
    os.makedirs(LOCKS, 0o700, exist_ok=True)
    path = os.path.join(LOCKS, "%d-%d.lock" % (facts.st_dev, facts.st_ino))
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _await(descriptor, package_dir)
        holder = {"unit": unit, "pid": os.getpid()}
        with contextlib.suppress(OSError):  # a full disk: it is for a message only
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(holder).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _await(descriptor: int, package_dir: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise _busy(descriptor, package_dir) from None
        time.sleep(0.05)


def _busy(descriptor: int, package_dir: str) -> HostFault:
    who, remedy = "another swap", "see what holds it: fuser -v %s/*.lock" % LOCKS
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        holder = json.loads(os.pread(descriptor, 4096, 0))
        who = "a swap for %s (process %d)" % (holder["unit"], holder["pid"])
        remedy = "wait for it, or look at it: ps -fp %d" % holder["pid"]
    folder = os.path.dirname(package_dir)
    text = "%s is at work in %s, and did not end within %.0f s" % (who, folder, PATIENCE)
    return HostFault("env_busy", text, remedy)


def beside(package_dir: str) -> str:
    """Where the copy is: no importable name, and on the package's own file system."""
    root = os.path.realpath(package_dir)
    return os.path.join(os.path.dirname(root), _hidden(os.path.basename(root)))


def _hidden(name: str) -> str:
    return PREFIX + "next-" + name


def remove(folder: str) -> None:
    """Take away what a swap that was cut off left at `beside`.

    It is names only; a failure leaves a hidden folder that the next swap removes, and is no
    reason to call a swap that was made a failure.
    """
    shutil.rmtree(folder, ignore_errors=True)


class Tree:
    """A copy of a package by hardlinks; after the exchange, what was the package before.

    `path` leads to it, wherever it is moved.
    """

    def __init__(self, package_dir: str) -> None:
        folder, self._name = os.path.split(os.path.realpath(package_dir))
        with contextlib.ExitStack() as stack:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            self._site = os.open(folder, flags)
            stack.callback(os.close, self._site)
            self._own = make_folder(_hidden(self._name), self._site)
            stack.callback(os.close, self._own)
            self._stack = stack.pop_all()
        self.path = by_descriptor(self._own, self._name)

    def fill(self) -> None:
        _copy_folder(self._name, self._site, self._own)

    def exchange(self, instant: Instant) -> bool:
        """Let the two change places, durably; `instant` is entered around the step.

        False where this is refused: then nothing changed.
        """
        for folder, _, _ in os.walk(self.path):
            sync_folder(folder)
        try:
            with instant():
                _rename_exchange(self._name, self._own, self._site)
        except OSError:
            return False
        os.fsync(self._site)
        return True

    def carry_over(self, but: Collection[str]) -> None:
        """After the exchange: what somebody put into the old tree since the copy was made.

        `but` are the paths that the swap itself is about; bytecode makes itself again.
        """
        with Folders(open_folder(self._name, self._site)) as folders:
            for folder, _, names, old in os.fwalk(self._name, dir_fd=self._own):
                below = os.path.relpath(folder, self._name)
                for name in names:
                    path = os.path.normpath(os.path.join(below, name))
                    if path in but or path.endswith(".pyc"):
                        continue
                    with contextlib.suppress(OSError):
                        new = folders.get(os.path.dirname(path), make=True)
                        if not _same(name, old, new):
                            os.replace(name, name, src_dir_fd=old, dst_dir_fd=new)

    def remove(self) -> None:
        remove(by_descriptor(self._site, _hidden(self._name)))
        self._stack.close()


def copy(package_dir: str) -> Optional[Tree]:
    """A copy of the package; None where there cannot be one."""
    # There each link would copy a whole file up from the lower layer (7 s for SGLang), for an
    # exchange that is refused then.
    if _file_system(os.path.realpath(package_dir)) == "overlay":
        return None
    try:
        tree = Tree(package_dir)
    except OSError:
        return None
    try:
        tree.fill()
    except OSError:
        tree.remove()
        return None
    except BaseException:
        tree.remove()
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


def _copy_folder(name: str, source: int, target: int) -> None:
    """The folder `name` of `source`, in `target`; both are descriptors."""
    with contextlib.ExitStack() as stack:
        old = open_folder(name, source)
        stack.callback(os.close, old)
        new = make_folder(name, target)
        stack.callback(os.close, new)
        with os.scandir(old) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    _copy_folder(entry.name, old, new)
                else:
                    os.link(
                        entry.name,
                        entry.name,
                        src_dir_fd=old,
                        dst_dir_fd=new,
                        follow_symlinks=False,
                    )
        # Access lists and labels; where the file system has none there are none to copy.
        with contextlib.suppress(OSError):
            for attribute in os.listxattr(old):
                os.setxattr(new, attribute, os.getxattr(old, attribute))
        # Not the mtime: by it Python knows that a folder which it has listed is another now.
        give(new, os.fstat(old))


def _rename_exchange(name: str, one: int, other: int) -> None:
    """Exchange what two folders, which are descriptors, have under `name`."""
    try:
        import ctypes
    except ImportError:  # a Python that was built without libffi
        raise OSError(errno.ENOSYS, "no ctypes") from None
    library = ctypes.CDLL(None, use_errno=True)
    arguments = (one, os.fsencode(name), other, os.fsencode(name), _RENAME_EXCHANGE)
    if hasattr(library, "renameat2"):
        done = library.renameat2(*arguments)
    elif platform.machine() in _SYSCALL:
        done = library.syscall(_SYSCALL[platform.machine()], *arguments)
    else:
        raise OSError(errno.ENOSYS, "renameat2 is not known here")
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


def _same(name: str, one: int, other: Optional[int]) -> bool:
    try:
        return os.path.samestat(
            os.stat(name, dir_fd=one, follow_symlinks=False),
            os.stat(name, dir_fd=other, follow_symlinks=False),
        )
    except OSError:
        return False
