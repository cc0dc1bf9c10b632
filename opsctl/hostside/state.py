"""What opsctl keeps on the host, below /var/lib/opsctl/<service>: files 0600, folders 0700.

::

    generations/<n>.json   what generation n replaced and what it put there, by hash; see `prune`
    current                the number of the generation that the files on disk are
    swap                   {from, to} while a swap is under way; its presence means a mixture
    objects/<sha256>       the content of every file that any of them names
    baselines/<id>.json    what a trusted server answered (`baselines`)
    loads.jsonl            how long each confirmed start took, seconds
    audit.jsonl            what was done, by whom and when (`audit`)
    guard.json, guard.py, guard-report.json, guard-notices.json   see `guard`
    lock                   held with flock by the host program of a deploy; names its holder

Generation 0 is what was found before the first deploy; a reinstall in between is recorded
as another generation with the status "found".
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import re
import stat
import tempfile
import time
from typing import Any, Dict, List, Optional, Sequence

from .errors import HostFault
from .held import PREFIX
from .install import read_bytes, sha256

Record = Dict[str, Any]

_GENERATION = ("number", "predecessor", "status", "set", "files", "version", "package_dir")

# For fullmatch: `$` would let a newline at the end pass.
_SERVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]*")
_RECORD_NAME = re.compile(r"(0|[1-9][0-9]*)\.json")


def write_atomically(
    path: str, data: bytes, mode: int = 0o600, owner: "Optional[tuple[int, int]]" = None
) -> None:
    """Replace `path` whole or not at all, durably.

    A temporary file in the same folder and a rename: never through an existing inode. The mode
    is for what opsctl alone reads; a file of the package gets the package's own.
    """
    temporary = write_beside(path, data, mode, owner)
    try:
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(os.path.dirname(path))


def write_beside(
    path: str, data: bytes, mode: int = 0o600, owner: "Optional[tuple[int, int]]" = None
) -> str:
    """A temporary file in the folder of `path`, on disk whole, to be renamed to it; its name.

    Raises:
        OSError: it names the file, so that a full disk says which; nothing is left.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=PREFIX, dir=os.path.dirname(path))
    try:
        with os.fdopen(descriptor, "wb") as f:
            f.write(data)
            os.fchmod(f.fileno(), mode)
            if owner is not None and owner != (os.geteuid(), os.getegid()):
                os.fchown(f.fileno(), *owner)
            f.flush()
            os.fsync(f.fileno())
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = path
        raise
    return temporary


def sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_private(path: str, mode: int) -> None:
    """Ours alone, with `mode`. What a link points to is not in the folder, and is left alone."""
    with contextlib.suppress(FileNotFoundError):  # who holds the lock may be at work meanwhile
        facts = os.lstat(path)
        if stat.S_ISLNK(facts.st_mode):
            return
        if (facts.st_uid, facts.st_gid) != (os.geteuid(), os.getegid()):
            os.chown(path, os.geteuid(), os.getegid(), follow_symlinks=False)
        if stat.S_IMODE(facts.st_mode) != mode:
            os.chmod(path, mode)


class State:
    """The folder of one service. Reading never creates anything."""

    def __init__(self, state_dir: str, service: str) -> None:
        if not _SERVICE.fullmatch(service):
            raise HostFault("bad_service_name", "not a service name: %r" % service)
        self.root = os.path.join(state_dir, service)

    def path(self, *parts: str) -> str:
        return os.path.join(self.root, *parts)

    def prepare(self) -> None:
        """Make the folder, and take from others what an older opsctl or a backup left them."""
        for folder in (self.root, self.path("generations"), self.path("objects")):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        # Top down: once a folder is ours alone, nobody puts a link in the way of what is below.
        for folder, _, names in os.walk(os.path.realpath(self.root)):
            _make_private(folder, 0o700)
            for name in names:
                _make_private(os.path.join(folder, name), 0o600)

    # -- generations -------------------------------------------------------------------

    def numbers(self) -> List[int]:
        try:
            names = os.listdir(self.path("generations"))
        except FileNotFoundError:
            return []
        matches = [_RECORD_NAME.fullmatch(name) for name in names]
        return sorted(int(match.group(1)) for match in matches if match)

    def generation(self, number: int) -> Record:
        data = read_bytes(self.path("generations", "%d.json" % number))
        if data is None:
            known = ", ".join(map(str, self.numbers())) or "none"
            raise HostFault(
                "generation_missing",
                "there is no generation %d; recorded: %s" % (number, known),
                "choose one of those",
            )
        return _record(data, self.path("generations", "%d.json" % number), _GENERATION)

    def current(self) -> Optional[Record]:
        data = read_bytes(self.path("current"))
        if data is None:
            # Generation 0 alone: the first deploy was cut off before it named it current.
            if any(self.numbers()):
                raise _damaged(self.path("current"), "it is missing, and generations are recorded")
            return None
        try:
            number = int(data)
        except ValueError:
            raise _damaged(self.path("current"), "it names no generation") from None
        if number not in self.numbers():
            raise _damaged(self.path("current"), "there is no generation %d" % number)
        return self.generation(number)

    def set_current(self, number: int) -> None:
        write_atomically(self.path("current"), b"%d\n" % number)

    def save(self, record: Record) -> None:
        data = json.dumps(record, indent=1, sort_keys=True).encode() + b"\n"
        write_atomically(self.path("generations", "%d.json" % record["number"]), data)

    def swap_under_way(self) -> Optional[Record]:
        data = read_bytes(self.path("swap"))
        if data is None:
            return None
        return _record(data, self.path("swap"), ("from", "to"))

    # -- contents ----------------------------------------------------------------------

    def put(self, data: bytes) -> str:
        digest = sha256(data)
        path = self.path("objects", digest)
        if read_bytes(path) != data:  # absent, or damaged since
            write_atomically(path, data)
        else:
            with contextlib.suppress(OSError):  # read-only since; it is there all the same
                os.utime(path)  # named now: `prune` goes by its age
        return digest

    def get(self, digest: str) -> bytes:
        data = read_bytes(self.path("objects", digest))
        if data is None or sha256(data) != digest:
            raise HostFault(
                "object_damaged",
                "the stored content %s is %s" % (digest, "missing" if data is None else "damaged"),
                "reinstall the distribution to return to the wheel's own files",
            )
        return data

    def has(self, digest: str) -> bool:
        return os.path.exists(self.path("objects", digest))

    # -- load times --------------------------------------------------------------------

    def record_load(self, seconds: float, generation: Optional[int]) -> None:
        entry = {"seconds": round(seconds, 3), "generation": generation, "time": time.time()}
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with open(os.open(self.path("loads.jsonl"), flags, 0o600), "a", encoding="utf-8") as f:
            f.write(json.dumps(entry) + "\n")

    def loads(self, last: int = 10) -> List[float]:
        data = read_bytes(self.path("loads.jsonl")) or b""
        seconds = []
        for line in data.decode("utf-8", "replace").splitlines()[-last:]:
            try:
                figure = float(json.loads(line)["seconds"])
            except (ValueError, KeyError, TypeError):
                continue  # a torn line of a crash costs one figure, no more
            if math.isfinite(figure):
                seconds.append(figure)
        return seconds


def _record(data: bytes, path: str, keys: Sequence[str]) -> Record:
    try:
        record = json.loads(data)
    except ValueError as error:
        raise _damaged(path, str(error)) from None
    if not isinstance(record, dict) or any(key not in record for key in keys):
        raise _damaged(path, "it lacks what opsctl writes")
    return record


def _damaged(path: str, why: str) -> HostFault:
    return HostFault(
        "state_damaged",
        "%s is damaged: %s" % (path, why),
        "bring the file back from a backup; without one, move %s away, reinstall the distribution "
        "(pip install --force-reinstall --no-deps) and deploy again" % os.path.dirname(path),
    )


# The lock's file is written over and never made shorter, so that on a full disk, where somebody
# wants to make room, it can be taken still.
_LOCK_SIZE = 4096


class Lock:
    """One change of a service at a time. The kernel frees it when this program ends."""

    def __init__(self) -> None:
        self._descriptor: Optional[int] = None
        self.root: Optional[str] = None  # the state folder whose lock is held
        self.who = ""  # holds it, as they named themselves

    def held(self, state: State) -> bool:
        return self._descriptor is not None and self.root == state.root

    def take(self, state: State, holder: Record) -> None:
        state.prepare()
        descriptor = os.open(state.path("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        facts = {"since": time.time(), "pid": os.getpid(), "from": client_address()}
        data = json.dumps(dict(holder, **facts)).encode().ljust(_LOCK_SIZE)
        try:
            _lock_exclusively(descriptor, state)
            os.pwrite(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))
        except BaseException:  # a full disk: not to hold what nobody knows of
            os.close(descriptor)
            raise
        self._descriptor, self.root = descriptor, state.root
        self.who = str(holder.get("who") or "")

    def release(self) -> None:
        if self._descriptor is not None:
            os.pwrite(self._descriptor, b" " * _LOCK_SIZE, 0)
            os.close(self._descriptor)
            self._descriptor = self.root = None


def client_address() -> str:
    """Where the client connects from, as sshd says; "" where none does.

    sudo drops the variable, but what started sudo has it still.
    """
    address = os.environ.get("SSH_CONNECTION", "").split(" ")[0]
    process = os.getppid()
    for _ in range(4):
        if address or process <= 1:
            break
        try:
            with open("/proc/%d/environ" % process, "rb") as f:
                variables = f.read().split(b"\0")
            with open("/proc/%d/stat" % process, "rb") as f:
                process = int(f.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
        for variable in variables:
            if variable.startswith(b"SSH_CONNECTION="):
                address = variable.split(b"=", 1)[1].split(b" ")[0].decode("ascii", "replace")
    return address


def _lock_exclusively(descriptor: int, state: State) -> None:
    """Fails at once when a program holds the lock; one that only looks at it is waited for."""
    for _ in range(20):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
        holder = lock_holder(state)
        if holder is not None:
            break
        time.sleep(0.05)
    raise HostFault("lock_held", describe_holder(holder))


def lock_holder(state: State) -> Optional[Record]:
    """Who holds the lock now; None when it is free. What a dead holder wrote does not count."""
    try:
        descriptor = os.open(state.path("lock"), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except OSError:
        text = os.pread(descriptor, 65536, 0)
        try:
            holder = json.loads(text)
        except ValueError:
            holder = None
        if isinstance(holder, dict):
            return _with_age(holder)
        return {"who": "somebody", "why": "unknown", "since": None}
    finally:
        os.close(descriptor)


def _with_age(holder: Record) -> Record:
    """By this host's clock, which may not be its client's."""
    since = holder.get("since")
    if not isinstance(since, (int, float)):
        return holder
    return dict(holder, held_s=round(max(0.0, time.time() - since), 1))


def describe_holder(holder: Optional[Record]) -> str:
    if not holder:
        return "the lock of this service was held a moment ago"
    since = holder.get("since")
    ago = " for %.0f s" % (time.time() - since) if since else ""
    return "%s holds the lock of this service%s: %s" % (
        holder.get("who", "somebody"),
        ago,
        holder.get("why", "no reason given"),
    )
