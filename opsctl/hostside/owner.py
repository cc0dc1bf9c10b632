"""As whom the environment's Python runs when root asks it something: as its owner.

To start a Python is to run what its environment has it run: site-packages with their .pth files
and sitecustomize, which -I does not stop, and the interpreter itself. Where those are another
user's, that is not for root to do.
"""

from __future__ import annotations

import glob
import os
import pwd
import stat
import sys
from typing import Iterator, List, Optional, Tuple

# uid, gid and further groups
User = Tuple[int, int, List[int]]

_NOGROUP = 65534
# Not subprocess's `user`, which is younger than Python 3.8, nor its preexec_fn, which is not for
# a program with threads. `-S`: this one is root still.
_BECOME = (
    "import os, sys; uid, gid, *groups = map(int, sys.argv[1].split(',')); "
    "os.setgroups(groups); os.setgid(gid); os.setuid(uid); os.execv(sys.argv[2], sys.argv[2:])"
)


def owner(python: str) -> Optional[User]:
    """The user other than root who decides what `python` runs; None where root alone does.

    One who cannot get there, as a folder above is root's own and closed, is nobody: an archive
    that was unpacked in root's home may bear any number.
    """
    for path in _parts(python):
        try:
            facts = os.lstat(path)
        except OSError:
            continue
        if facts.st_uid != 0:
            user = _user(facts)
            if _reaches(user, path):
                return user
    return None


def argv_as(user: Optional[User], argv: List[str]) -> List[str]:
    """What runs `argv` as `user`; as ourselves where that is None."""
    if user is None:
        return argv
    uid, gid, groups = user
    numbers = ",".join(map(str, (uid, gid, *groups)))
    return [sys.executable, "-I", "-S", "-c", _BECOME, numbers, *argv]


def _parts(python: str) -> Iterator[str]:
    """What decides: the packages, `python` itself, what it is a link to, and all above them."""
    real = os.path.realpath(python)
    for binary in (python, real):
        prefix = glob.escape(os.path.dirname(os.path.dirname(binary)))
        yield from sorted(glob.glob(prefix + "/lib*/python3*/site-packages"))
        yield from sorted(glob.glob(prefix + "/lib*/python3*"))
        yield os.path.join(os.path.dirname(os.path.dirname(binary)), "pyvenv.cfg")
        yield binary
        yield from _above(binary)


def _above(path: str) -> Iterator[str]:
    """The folders above `path`, up to the root."""
    while path != os.path.dirname(path):
        path = os.path.dirname(path)
        yield path


def _user(facts: os.stat_result) -> User:
    try:
        entry = pwd.getpwuid(facts.st_uid)
    except KeyError:  # not in the user database: a number that files bear
        return facts.st_uid, facts.st_gid or _NOGROUP, []
    return facts.st_uid, entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid)


def _reaches(user: User, path: str) -> bool:
    """Whether no folder of root's above `path` is closed to `user`."""
    _, gid, groups = user
    for folder in _above(path):
        facts = os.stat(folder)
        open_to = stat.S_IXGRP if facts.st_gid in (gid, *groups) else stat.S_IXOTH
        if facts.st_uid == 0 and not facts.st_mode & open_to:
            return False
    return True
