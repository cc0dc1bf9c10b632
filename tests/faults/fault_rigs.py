"""What a host is given for the while of a case: a small disk of its own, a clock to be set."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator

from light_lab import STATE, LightLab

# Every Python of the host that is started from then on, opsctl's programs among them, adds an
# offset to the time of day. The lab shares the kernel's clock with this machine, so it cannot be
# set for real; journald's stamps stay, and so disagree, which makes it no easier.
_OFFSET = "/etc/clock-offset"
_CUSTOM = "/etc/python3.11/sitecustomize.py"
_FAKED = f"""
import time
def _time(real=time.time):
    with open("{_OFFSET}") as f:
        return real() + float(f.read())
time.time = _time
"""


@contextlib.contextmanager
def rigged(light: LightLab, disk: str | None, *, clock: bool) -> Iterator[None]:
    """Both, as the fault needs them."""
    with contextlib.ExitStack() as stack:
        if disk is not None:
            stack.enter_context(own_disk(light, disk))
        if clock:
            stack.enter_context(own_clock(light))
        yield


@contextlib.contextmanager
def own_clock(light: LightLab) -> Iterator[None]:
    """A time of day that `set_clock` sets."""
    set_clock(light, 0)
    text = base64.b64encode(_FAKED.encode()).decode()
    light.inside(f"cp {_CUSTOM} {_CUSTOM}.before && echo {text} | base64 -d >> {_CUSTOM}")
    if light.inside("python3 -c 'import time; print(time.time.__name__)'") != "_time\n":
        raise RuntimeError("the clock cannot be set")
    try:
        yield
    finally:
        light.inside(f"mv {_CUSTOM}.before {_CUSTOM}")


def set_clock(light: LightLab, seconds: float) -> None:
    """So many off the real time."""
    light.inside(f"echo {seconds} > {_OFFSET}.new && mv {_OFFSET}.new {_OFFSET}")


@contextlib.contextmanager
def own_disk(light: LightLab, folder: str) -> Iterator[None]:
    """`folder` on a small file system of its own for the while."""
    name = mount_name(folder)
    light.inside(
        f"mkdir -p {name} {folder} && mount -t tmpfs -o size=80m,mode=0755 tmpfs {name} && "
        f"cp -a {folder}/. {name}/ && mount --bind {name} {folder}"
    )
    try:
        yield
    finally:
        free_disk(light, folder)
        light.inside(
            f"umount -l {folder}; find {folder} -mindepth 1 -delete; cp -a {name}/. {folder}/ && "
            f"umount -l {name}"
        )


def mount_name(folder: str) -> str:
    return "/mnt/state" if folder == STATE else "/mnt/site"


def free_disk(light: LightLab, folder: str) -> None:
    name = mount_name(folder)
    top = f"findmnt -n -o OPTIONS {folder} | tail -1 | grep -q ^ro"
    light.inside(f"rm -f {name}/fill; if {top}; then umount {folder}; fi", check=False)
