"""Rules about limits, hardening and command lines that take from SGLang what it needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from opsctl.units.subject import Finding, Status, Subject
from opsctl.units.unitfile import size, true

_CACHES = "Triton, FlashInfer and the hub keep caches in the user's home"
# What a switch takes away when it is on.
_SWITCHES: Final[dict[str, tuple[Status, str]]] = {
    "PrivateDevices": ("fail", "hides /dev/nvidia*: there are no GPUs"),
    "MemoryDenyWriteExecute": ("fail", "no code can be compiled at run time, as Triton's is"),
    "PrivateNetwork": ("fail", "nobody can reach the server"),
    "ProtectKernelModules": ("warn", "nvidia-modprobe cannot load the driver's modules"),
    "ProtectClock": ("warn", "implies a device policy, which may hide the GPUs"),
    "PrivateUsers": ("warn", "files of other users, the weights say, may not be readable"),
    "DynamicUser": ("warn", f"there is no home of its own: {_CACHES}"),
}
_HOMES = ("/root", "/home", "/run/user")
_SHELLS = re.compile(r"(?:/usr)?/bin/(?:ba|da|z)?sh\b")
_WRAPPERS = re.compile(r"(?:^|/)(docker|podman|screen|tmux|nohup|setsid|conda)$")
_SWEEPING = re.compile(r"\b(?:pkill|killall)\b|\bfuser\b.*-k")


def limits(subject: Subject) -> Iterator[Finding]:
    files = subject.value("LimitNOFILE") or subject.manager.get("DefaultLimitNOFILESoft", "1024")
    soft = files.partition(":")[0]
    if soft.isdecimal() and int(soft) < 65536:
        yield Finding("limit_nofile", "warn", f"LimitNOFILE={soft}: connections and shards are "
                      "files", "LimitNOFILE=1048576", subject.where("LimitNOFILE"))  # fmt: skip
    locked = subject.value("LimitMEMLOCK") or subject.manager.get("DefaultLimitMEMLOCK", "8388608")
    amount = size(locked.partition(":")[0], subject.memory_bytes)
    if amount is not None and amount < 1 << 30:
        yield Finding(
            "limit_memlock",
            "warn",
            f"LimitMEMLOCK={locked}: memory that is pinned for RDMA counts, and fails beyond it",
            "LimitMEMLOCK=infinity",
            subject.where("LimitMEMLOCK"),
        )
    space = subject.setting("LimitAS", "LimitDATA", "LimitRSS")
    if space is not None and space.value != "infinity":
        yield Finding("limit_as", "fail", f"{space.key}={space.value}: CUDA reserves address space "
                      "of many times its memory", "leave it out", space.where)  # fmt: skip
    for key in ("MemoryMax", "MemoryHigh", "MemoryLimit"):
        amount = size(subject.value(key, "infinity"), subject.memory_bytes)
        if amount is not None and subject.model_bytes and amount < subject.model_bytes:
            yield Finding(
                "memory_max",
                "warn",
                f"{key}={subject.value(key)} is below the model's {subject.model_bytes >> 30} GiB, "
                "which pass through the page cache that counts: the load crawls or is killed",
                "raise it above the weights and what the ranks take, or leave it out",
                subject.where(key),
            )


def sandbox(subject: Subject) -> Iterator[Finding]:
    for key, (status, what) in _SWITCHES.items():
        if true(subject.value(key, "no")):
            yield Finding("hardening", status, f"{key}=yes: {what}", "leave it out",
                          subject.where(key))  # fmt: skip
    policy = subject.value("DevicePolicy", "auto")
    allowed = " ".join(setting.value for setting in subject.text.all("DeviceAllow"))
    closed = policy in {"closed", "strict"} or (policy == "auto" and allowed)
    if closed and "nvidia" not in allowed and "char-*" not in allowed:
        yield Finding("hardening", "fail", "the devices that are allowed lack /dev/nvidia*: there "
                      "are no GPUs", "DeviceAllow=char-nvidia* rw, and the like of -uvm and -caps",
                      subject.where("DevicePolicy", "DeviceAllow"))  # fmt: skip
    home = subject.value("ProtectHome", "no")
    named = [subject.service.model.path, subject.service.python, *subject.arguments]
    if home not in {"no", "false", "0", "off", "read-only"}:
        hidden = [name for name in named if name.startswith(_HOMES)]
        if hidden:
            yield Finding("hardening", "fail", f"ProtectHome={home} hides {hidden[0]}",
                          "leave it out, or ProtectHome=read-only",
                          subject.where("ProtectHome"))  # fmt: skip
    if subject.value("ProtectSystem") == "strict" or home == "read-only":
        key = "ProtectSystem" if subject.value("ProtectSystem") == "strict" else "ProtectHome"
        if not subject.text.all("ReadWritePaths"):
            yield Finding("hardening", "warn", f"{key}={subject.value(key)}: {_CACHES}",
                          "ReadWritePaths= with them", subject.where(key))  # fmt: skip


def command(subject: Subject) -> Iterator[Finding]:
    lines = subject.text.all("ExecStart")
    if not lines:
        yield Finding("exec_start", "fail", "there is no ExecStart", "opsctl unit install")
        return
    line = lines[-1]
    program = line.value.split()[0].lstrip("@-:+!")
    if _SHELLS.match(program) and not re.search(r"\bexec\s", line.value):
        yield Finding(
            "shell",
            "warn",
            "a shell is the main process: SIGTERM ends that, and the server is killed undrained",
            "put exec before the server's command, or start Python itself",
            line.where,
        )
    wrapper = next((m for word in line.value.split()[:4] if (m := _WRAPPERS.search(word))), None)
    if wrapper is not None:
        yield Finding(
            "wrapper",
            "warn",
            f"{wrapper[1]} is the main process: the server is not its own child, or not in the "
            "unit's cgroup, and a stop may leave it with its GPU memory",
            "start Python itself",
            line.where,
        )
    if line.value.startswith("-"):
        yield Finding("exec_failure", "warn", "ExecStart=-: each failure counts as success",
                      "take the - away", line.where)  # fmt: skip
    for key in ("ExecStartPre", "ExecStop", "ExecStopPost", "ExecReload"):
        for setting in subject.text.all(key):
            if _SWEEPING.search(setting.value):
                yield Finding("sweeping_kill", "warn", f"{key} ends processes by name: those of "
                              "every other server of this host too", "KillMode=mixed ends what is "
                              "this unit's own", setting.where)  # fmt: skip


def as_the_inventory(subject: Subject) -> Iterator[Finding]:
    """Where the command line is of another server than the inventory's."""
    service = subject.service
    expected = {
        "--port": (str(service.port), "port"),
        "--model-path": (service.model.path, "model.path"),
        "--served-model-name": (service.model.served_name, "model.served_name"),
    }
    for name, (wanted, key) in expected.items():
        given = subject.option(name)
        if given is not None and given != wanted and not given.startswith("$"):
            yield Finding(
                "inventory",
                "warn",
                f"the unit has {name} {given}, the inventory {wanted}",
                f"correct {key} in the inventory, or the unit",
                subject.where("ExecStart"),
            )


RULES: Final[tuple[Callable[[Subject], Iterator[Finding]], ...]] = (
    limits, sandbox, command, as_the_inventory,
)  # fmt: skip
