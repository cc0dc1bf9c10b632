"""The lab's supervisor: one process that holds a container, and with it everything it needs.

Run as a script under ``unshare --mount`` with the path of a JSON file (`Container`), by
whichever Python runs opsctl, so it uses the standard library only. It exists because
systemd-nspawn alone leaves three things to its caller:

- *Mounts.* The overlay and its tmpfs are made in this process's own mount namespace and end
  with it, however it ends. Several labs share one read-only tree this way; nspawn itself
  locks a directory that it boots.
- *Reboots.* With ``--keep-unit`` nspawn exits with 133 when the container asks for a reboot.
  The overlay outlives that, so a rebooted lab finds its disk as it left it.
- *A cgroup of its own* where PID 1 is not systemd. nspawn gives every payload the same name
  below its caller's cgroup, and two labs in one cgroup would end each other's processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

REBOOT_STATUS = 133  # EXIT_FORCE_RESTART of systemd-nspawn
_PR_SET_PDEATHSIG = 1


def cgroup_folders(pid: str = "self") -> list[Path]:
    """The folders of `pid`'s cgroup in the hierarchies that systemd uses (v2, hybrid or v1)."""
    roots: dict[str, Path] = {}
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        left, _, right = line.partition(" - ")
        mount_point, fields = Path(left.split()[4]), right.split()
        if fields[0] == "cgroup2":
            roots.setdefault("", mount_point)
        elif fields[0] == "cgroup" and "name=systemd" in fields[2].split(","):
            roots.setdefault("name=systemd", mount_point)
    folders = []
    for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in roots:
            folders.append(roots[controllers] / path.lstrip("/"))
    return folders


def join_cgroup(name: str) -> list[tuple[Path, Path]]:
    """Move this process into a new cgroup `name`; returns (made, where it was) pairs."""
    moved = []
    for home in cgroup_folders():
        made = home / name
        made.mkdir(exist_ok=True)
        (made / "cgroup.procs").write_text("0", encoding="utf-8")
        moved.append((made, home))
    return moved


def remove_cgroup(folder: Path) -> None:
    """Remove `folder` and the cgroups below it; one that still holds a process is left."""
    for path, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            Path(path).rmdir()


def _mount(kind: str, target: Path, options: str) -> None:
    subprocess.run(["mount", "-t", kind, "-o", options, "opsctl-lab", str(target)], check=True)


def prepare_root(spec: dict[str, Any]) -> Path:
    """The folder to boot: an overlay over the shared tree, or the tree itself to build it."""
    tree = Path(spec["tree"])
    # nspawn keeps its locks and sockets here. Its own copy vanishes with the namespace, and
    # nspawn refuses to tidy up there where /run is not a tmpfs.
    runtime = Path("/run/systemd/nspawn")
    runtime.mkdir(parents=True, exist_ok=True)
    _mount("tmpfs", runtime, "mode=0755,size=16m")
    if not spec.get("overlay"):
        return tree
    area = Path(spec["overlay"])
    area.mkdir(exist_ok=True)
    _mount("tmpfs", area, f"mode=0755,size={spec['size']}")
    upper, work, root = area / "upper", area / "work", area / "root"
    for folder in (upper, work, root):
        folder.mkdir()
    _mount("overlay", root, f"lowerdir={tree},upperdir={upper},workdir={work}")
    if spec.get("seed"):
        shutil.copytree(spec["seed"], root, symlinks=True, dirs_exist_ok=True)
    return root


def _die_with_parent() -> None:
    # Should this supervisor be killed outright, nspawn gets the same signal as on `lab down`.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))


def run(spec: dict[str, Any]) -> int:
    """Boot until the container powers off; returns nspawn's exit status."""
    os.chdir("/")
    os.umask(0o022)  # the overlay's folders are the container's own, whatever the umask here
    moved = join_cgroup(spec["cgroup"]) if spec.get("cgroup") else []
    # Held as long as the tree is in use; `tree.prune` asks for it exclusively.
    lock = os.open(spec["tree"], os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    ending = False
    child: subprocess.Popen[bytes] | None = None

    def end(signum: int, frame: object) -> None:
        nonlocal ending
        ending = True
        if child is not None:
            child.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    try:
        root = prepare_root(spec)
        argv = ["systemd-nspawn", f"--directory={root}", *spec["nspawn"]]
        status = REBOOT_STATUS
        while status == REBOOT_STATUS and not ending:
            child = subprocess.Popen(argv, preexec_fn=_die_with_parent)  # noqa: PLW1509
            status = child.wait()
        return status
    finally:
        for made, home in moved:
            with contextlib.suppress(OSError):
                (home / "cgroup.procs").write_text("0", encoding="utf-8")
            remove_cgroup(made)


if __name__ == "__main__":
    sys.exit(run(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
