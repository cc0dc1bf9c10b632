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
from .state import State, sync_folder, write_beside

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
    _remove_leftovers(package_dir, wanted)
    ready: Dict[str, str] = {}
    try:
        for path in changed:
            _keep(state, package_dir, path)
            digest = wanted[path]
            if digest is not None:
                ready[path] = _write_beside(package_dir, path, state.get(digest))
        _take_names(package_dir, changed, ready, instant)
    except BaseException:
        for temporary in ready.values():
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise
    for path, digest in wanted.items():
        _drop_bytecode(full_path(package_dir, path))
        if digest is None:
            _tidy(package_dir, path)
    for folder in {os.path.dirname(full_path(package_dir, path)) for path in changed}:
        if os.path.isdir(folder):
            sync_folder(folder)
    return changed


def _take_names(
    package_dir: str, changed: List[str], ready: Dict[str, str], instant: Instant
) -> None:
    if not changed:
        return
    names = [(path, full_path(package_dir, path)) for path in changed]
    with instant():
        for path, full in names:
            if path in ready:
                os.replace(ready[path], full)
                del ready[path]
            else:
                os.unlink(full)
        for _, full in names:
            _drop_bytecode(full)


def _remove_leftovers(package_dir: str, wanted: Wanted) -> None:
    """What a swap that was cut off had written and not yet named."""
    for folder in {os.path.dirname(full_path(package_dir, path)) for path in wanted}:
        for left in glob.glob(os.path.join(glob.escape(folder), ".opsctl-*")):
            with contextlib.suppress(OSError):
                os.unlink(left)


def _keep(state: State, package_dir: str, path: str) -> None:
    """What was edited by hand since the last swap is nowhere else. No reason to fail, though."""
    data = installed.read_bytes(full_path(package_dir, path))
    if data is not None:
        with contextlib.suppress(OSError):
            state.put(data)


def _write_beside(package_dir: str, path: str, data: bytes) -> str:
    """The new file under another name in its folder, which is made where it lacks."""
    full = full_path(package_dir, path)
    # os.stat follows uv's symlinks into its cache for the mode; the replace does not.
    model = full if os.path.exists(full) else os.path.join(package_dir, "__init__.py")
    facts = os.stat(model)
    _make_folder(package_dir, os.path.dirname(full))
    return write_beside(full, data, stat.S_IMODE(facts.st_mode), (facts.st_uid, facts.st_gid))


def _make_folder(package_dir: str, folder: str) -> None:
    """With the package's own mode and owner: root's umask may hide it from a service user."""
    if os.path.isdir(folder):
        return
    _make_folder(package_dir, os.path.dirname(folder))
    facts = os.stat(package_dir)
    os.mkdir(folder)
    os.chmod(folder, stat.S_IMODE(facts.st_mode))
    if (facts.st_uid, facts.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(folder, facts.st_uid, facts.st_gid)


def _tidy(package_dir: str, path: str) -> None:
    """After `path` is gone, or never came: no folder that was made for it."""
    folder = os.path.dirname(full_path(package_dir, path))
    while folder != os.path.normpath(package_dir):
        try:
            cache = os.path.join(folder, "__pycache__")
            if os.path.isdir(cache):
                os.rmdir(cache)
            os.rmdir(folder)
        except FileNotFoundError:
            pass
        except OSError:
            break  # not empty: it was not a set that made this folder
        folder = os.path.dirname(folder)
    sync_folder(folder)


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
