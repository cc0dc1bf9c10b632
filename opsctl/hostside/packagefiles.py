"""The files of the patched package on disk: what they are, and how a swap writes them.

Never through an existing inode, which uv may share with its cache and sibling environments by a
hardlink; never outside the package; with the modes and owners that the package has.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import stat
from typing import Callable, ContextManager, Dict, List, Optional

from . import install as installed
from .errors import HostFault
from .held import PREFIX, Folders, by_descriptor
from .state import State, write_beside

# path -> sha256 that the disk must hold, None for no file
Wanted = Dict[str, Optional[str]]
# Entered around what has to happen at one instant.
Instant = Callable[[], ContextManager[object]]
_any: Instant = contextlib.nullcontext


def full_path(package_dir: str, path: str) -> str:
    """`path` below the package.

    Raises:
        HostFault: it is not below it (`path_outside`).
    """
    if "\0" in path:
        raise HostFault("path_outside", "%r is not a path" % path)
    root = os.path.normpath(package_dir)
    full = os.path.normpath(os.path.join(root, path))
    # The file itself may be a symlink into uv's cache, which a replace does not follow; a
    # folder on the way to it that leads elsewhere would be followed.
    folder, real = os.path.realpath(os.path.dirname(full)), os.path.realpath(root)
    below = full.startswith(root + "/") and (folder + "/").startswith(real + "/")
    if os.path.isabs(path) or not below:
        raise HostFault("path_outside", "%r is not a path below the package" % path)
    return full


def check_new(package_dir: str, path: str) -> None:
    """Whether a set may have `path`.

    Raises:
        HostFault: it is not below the package (`path_outside`), or has a name that opsctl keeps
            for its own files there (`path_reserved`).
    """
    full_path(package_dir, path)
    if any(part.startswith(PREFIX) for part in path.split("/")):
        raise HostFault("path_reserved", "%r has a name of opsctl's own" % path, "rename it")


def straight(package_dir: str, path: str) -> bool:
    """Whether no link is on the way to `path`: in a copy it could lead back to the original."""
    folder = os.path.dirname(full_path(package_dir, path))
    below = os.path.relpath(folder, os.path.normpath(package_dir))
    expected = os.path.normpath(os.path.join(os.path.realpath(package_dir), below))
    return os.path.realpath(folder) == expected


def hash_on_disk(package_dir: str, path: str) -> Optional[str]:
    data = installed.read_bytes(full_path(package_dir, path))
    return None if data is None else installed.sha256(data)


def differing(package_dir: str, wanted: Wanted) -> List[str]:
    """The paths whose content on disk is another than `wanted` says."""
    return [p for p, d in wanted.items() if hash_on_disk(package_dir, p) != d]


def verify(package_dir: str, wanted: Wanted) -> None:
    """Raises HostFault (`swap_unverified`) unless the disk holds what is `wanted`."""
    wrong = differing(package_dir, wanted)
    if wrong:
        raise HostFault("swap_unverified", "after the swap these differ: %s" % ", ".join(wrong))


def apply(state: State, package_dir: str, wanted: Wanted, instant: Instant = _any) -> List[str]:
    """Make the files what is `wanted`; the paths that were changed.

    In two parts: everything that can fail or take long, on a full disk say, happens beside the
    files; then, within `instant`, the new files take their names, in about a millisecond.
    """
    changed = sorted(differing(package_dir, wanted))
    with Folders.of(package_dir) as folders:
        _remove_leftovers(folders, wanted)
        ready: Dict[str, str] = {}
        try:
            for path in changed:
                _keep(state, package_dir, path)
                digest = wanted[path]
                if digest is not None:
                    ready[path] = _write_beside(folders, path, state.get(digest))
            _take_names(folders, changed, ready, instant)
        except BaseException:
            for temporary in ready.values():
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            raise
        for path, digest in wanted.items():
            full = _held(folders, path)
            if full is not None:
                _drop_bytecode(full)
            if digest is None:
                _tidy(folders, path)
        for folder in {os.path.dirname(path) for path in changed}:
            descriptor = folders.get(folder)
            if descriptor is not None:
                os.fsync(descriptor)
    return changed


def _held(folders: Folders, path: str, make: bool = False) -> Optional[str]:
    """`path` in its folder as that was first seen; None where there is no such folder."""
    folder, name = os.path.split(path)
    descriptor = folders.get(folder, make)
    return None if descriptor is None else by_descriptor(descriptor, name)


def _take_names(
    folders: Folders, changed: List[str], ready: Dict[str, str], instant: Instant
) -> None:
    if not changed:
        return
    names = [(path, _held(folders, path)) for path in changed]
    with instant():
        for path, full in names:
            if full is None:
                continue  # its folder went since, and it with that
            if path in ready:
                os.replace(ready[path], full)
                del ready[path]
            else:
                with contextlib.suppress(FileNotFoundError):  # somebody else removed it since
                    os.unlink(full)
        for _, full in names:
            if full is not None:
                _drop_bytecode(full)


def _remove_leftovers(folders: Folders, wanted: Wanted) -> None:
    """What a swap that was cut off had written and not yet named."""
    for folder in {os.path.dirname(path) for path in wanted}:
        descriptor = folders.get(folder)
        for name in () if descriptor is None else os.listdir(descriptor):
            # An older version let a set have a file of such a name.
            if name.startswith(PREFIX) and os.path.join(folder, name) not in wanted:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=descriptor)


def _keep(state: State, package_dir: str, path: str) -> None:
    """What was edited by hand since the last swap is nowhere else. No reason to fail, though."""
    data = installed.read_bytes(full_path(package_dir, path))
    if data is not None:
        with contextlib.suppress(OSError):
            state.put(data)


def _write_beside(folders: Folders, path: str, data: bytes) -> str:
    """The new file under another name in its folder, which is made where it lacks."""
    full = _held(folders, path, make=True)
    assert full is not None, "its folder was made"
    # os.stat follows uv's symlinks into its cache for the mode; the replace does not.
    model = full if os.path.exists(full) else by_descriptor(folders.root, "__init__.py")
    facts = os.stat(model)
    # Permissions only: a link may lead to a set-user-ID program.
    mode = stat.S_IMODE(facts.st_mode) & 0o777
    return write_beside(full, data, mode, (facts.st_uid, facts.st_gid))


def _tidy(folders: Folders, path: str) -> None:
    """After `path` is gone, or never came: no folder that was made for it."""
    folder, name = os.path.split(os.path.dirname(path))
    while name:
        holder = folders.get(folder)
        if holder is not None:
            try:
                with contextlib.suppress(FileNotFoundError):
                    os.rmdir(os.path.join(name, "__pycache__"), dir_fd=holder)
                os.rmdir(name, dir_fd=holder)
                os.fsync(holder)
            except FileNotFoundError:
                pass
            except OSError:
                break  # not empty: it was not a set that made this folder
        folder, name = os.path.split(folder)


def _drop_bytecode(full: str) -> None:
    """Same size and same whole-second mtime would run the old code; hash-based ones always."""
    folder, name = os.path.split(full)
    stem = glob.escape(os.path.splitext(name)[0])
    for cached in glob.glob(os.path.join(glob.escape(folder), "__pycache__", stem + ".*.pyc")):
        try:
            os.unlink(cached)
        except OSError as error:
            # Read-only since, and the source is right: no reason to leave the service down.
            if error.errno != errno.EROFS:
                raise
