"""Labs brought up, looked at and taken down."""

from __future__ import annotations

import contextlib
import errno
import re
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from opsctl import resources
from opsctl.errors import LabUnavailable, Refused, UsageError
from opsctl.events import Emit, Event, ignore
from opsctl.inventory.models import Service, Ssh
from opsctl.lab import launch, needs, recipe, seed, state, tree
from opsctl.lab.process import Process, folders_of_cgroup, kill_cgroups
from opsctl.lab.state import SSH_PORT, Lab

# Seconds. A boot takes one or two; a machine at full load has been seen to need ten.
_BOOT_BUDGET = 60.0
# An orderly power-off takes 0.2 s idle and about 5 s with SGLang; its drain has no bound.
_POWER_OFF_BUDGET = 15.0
_KILL_BUDGET = 10.0

# All of 127/8 is this machine's loopback; these addresses are nobody else's by convention.
_NETWORK = "127.77.0"
_DISK_SIZE = "6g"  # of memory, used as it fills: patched files, the journal, generations
# The machine's and the container's names: what both systemd and a host name allow.
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """One change of labs at a time, so that two of them never choose one address.

    The lock is a name in the abstract namespace of Unix sockets: it holds for every user whose
    labs share this loopback, whatever their state folders, and vanishes with its process.
    """
    state.labs_folder().mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as lock:
        while True:
            try:
                lock.bind("\0opsctl-lab")
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                time.sleep(0.1)
        yield


def up(
    name: str,
    service: Service,
    *,
    emit: Emit = ignore,
    address: str | None = None,
    start: bool = True,
    templates: Path | None = None,
) -> Lab:
    """The running lab `name`, made now if there is none; SSH answers when this returns.

    SGLang is enabled and started with it unless `start` is False, and not waited for.
    `templates` is the folder of the unit templates, by default this copy's own.

    Raises:
        LabUnavailable: this machine cannot hold a lab, or it did not boot.
        UsageError: the name cannot be a host name, or the unit cannot be rendered.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a lab",
            remedy="use up to 42 lower-case letters, digits and inner hyphens",
        )
    running = _already_up(name, emit)
    if running is not None:
        return running
    needs.require()
    root = tree.ensure(recipe.current(), emit)
    with tree.hold(root), _lock():
        running = _already_up(name, emit)
        if running is not None:
            return running
        _remove(name)
        started = time.monotonic()
        chosen = _choose_address(address)
        emit(Event("lab.boot", "start", f"{name} at {chosen}"))
        try:
            lab = _boot(name, chosen, root, service, templates, start=start)
        except BaseException:
            _stop(name)  # what did start; its folder stays, with the console's log
            if state.load(name) is None:
                _remove(name)
            raise
        seconds = time.monotonic() - started
        emit(Event("lab.boot", "ok", f"{name} booted in {seconds:.1f} s", {"seconds": seconds}))
    tree.prune(root.name, emit)
    return lab


def _already_up(name: str, emit: Emit) -> Lab | None:
    lab = status(name)
    if lab is None or not lab.running:
        return None
    emit(Event("lab.boot", "ok", f"{name} runs already at {lab.address}"))
    return lab


def _boot(
    name: str, address: str, root: Path, service: Service, templates: Path | None, *, start: bool
) -> Lab:
    folder = state.folder_of(name)
    folder.mkdir(mode=0o700, parents=True)
    host_key = seed.write(
        folder / "seed",
        name=name,
        address=address,
        service=service.model_copy(update={"listen": address}),
        user_key=seed.make_key(folder / "id_ed25519", f"opsctl lab {name}"),
        templates=templates or resources.bundled("unit-templates"),
        start=start,
    )
    known_hosts = f"{seed.host_pattern(address)} {host_key}\n"
    (folder / "known_hosts").write_text(known_hosts, encoding="utf-8")
    spec = {
        "tree": str(root),
        "overlay": str(folder / "disk"),
        "size": _DISK_SIZE,
        "seed": str(folder / "seed"),
        "nspawn": [
            *launch.NSPAWN,
            "--boot",
            f"--machine={name}",
            "--resolv-conf=off",
            "--console=read-only",
        ],
    }
    unique = f"opsctl-lab-{name}-{secrets.token_hex(4)}"
    argv = launch.command(unique, folder / "container.json", spec)
    pid = launch.detached(argv, folder / "console.log")
    supervisor = Process.of(pid)
    if supervisor is None:
        raise _boot_failed(name, "the container ended at once")
    record = state.Record(name, address, root.name, time.time(), supervisor, ())
    record.save()
    return _await_login(record, unique).lab()


def _await_login(record: state.Record, cgroup: str) -> state.Record:
    """Wait for SSH, and note the cgroups that the supervisor moves into meanwhile."""
    deadline = time.monotonic() + _BOOT_BUDGET
    while time.monotonic() < deadline:
        if not record.supervisor.alive():
            raise _boot_failed(record.name, "the container ended")
        if not record.cgroups:
            found = folders_of_cgroup(record.supervisor.pid, cgroup)
            record = replace(record, cgroups=found)
            record.save()
        if _listens(record.address):
            argv = _ssh(record, "true")
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            if done.returncode == 0:
                return record
        time.sleep(0.1)
    raise _boot_failed(record.name, f"no SSH login within {_BOOT_BUDGET:.0f} s")


def _boot_failed(name: str, why: str) -> LabUnavailable:
    log = state.folder_of(name) / "console.log"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-6:]
    return LabUnavailable(
        "\n".join([f"the lab {name} did not boot: {why}", *lines]),
        remedy=f"see {log}, then: opsctl lab down {name}",
        code="lab_boot_failed",
    )


def _listens(address: str) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((address, SSH_PORT)) == 0


def _choose_address(wanted: str | None) -> str:
    """`wanted`, or the first address that no lab has, another user's labs included."""
    taken = {record.address for record in state.load_all() if record.supervisor.alive()}
    candidates = [wanted] if wanted else [f"{_NETWORK}.{number}" for number in range(1, 255)]
    for address in candidates:
        if address not in taken and not _listens(address):
            return address
    raise Refused(
        f"{wanted or f'every address of {_NETWORK}.0/24'} is taken by another lab",
        remedy="opsctl lab status, then opsctl lab down NAME",
        code="lab_address_taken",
    )


def down(name: str) -> bool:
    """Stop the lab `name` and delete all that is left of it; False when there was nothing.

    Raises:
        Refused: it has processes that outlive SIGKILL.
    """
    with _lock():
        if not state.folder_of(name).exists():
            return False
        _stop(name)
        _remove(name)
        return True


def _stop(name: str) -> None:
    """Power off, then kill; the state folder stays, with the console's log."""
    record = state.load(name)
    if record is None:
        return
    ended = record.supervisor.end(_POWER_OFF_BUDGET)
    if not kill_cgroups(record.cgroups, _KILL_BUDGET) or not (
        ended or record.supervisor.wait(_KILL_BUDGET)
    ):
        raise Refused(
            f"the lab {name} does not end: process {record.supervisor.pid} outlives SIGKILL",
            remedy=f"look at it with: ps -o pid,stat,wchan,args {record.supervisor.pid}",
            code="lab_stuck",
        )


def _remove(name: str) -> None:
    folder = state.folder_of(name)
    if folder.exists():
        _stop(name)
        shutil.rmtree(folder)


def reset(
    name: str,
    service: Service,
    *,
    emit: Emit = ignore,
    address: str | None = None,
    start: bool = True,
    templates: Path | None = None,
) -> Lab:
    """A pristine lab `name`: down, then up. It keeps its address where it had one."""
    before = state.load(name)
    if address is None and before is not None:
        address = before.address
    needs.require()
    down(name)
    return up(name, service, emit=emit, address=address, start=start, templates=templates)


def status(name: str) -> Lab | None:
    """The lab `name`, running or dead, or None where there is none."""
    record = state.load(name)
    return None if record is None else record.lab()


def all_labs() -> list[Lab]:
    """Every lab of this user on this machine, by name."""
    return [record.lab() for record in state.load_all()]


def connection(name: str) -> Ssh:
    """How to reach the lab `name` as root.

    Raises:
        Refused: no such lab runs.
    """
    record = _running(name)
    folder = state.folder_of(name)
    return Ssh(
        address=record.address,
        user="root",
        port=SSH_PORT,
        identity_file=folder / "id_ed25519",
        known_hosts=folder / "known_hosts",
    )


def ssh_argv(name: str, *command: str) -> list[str]:
    """OpenSSH's command line into the lab `name`: a login, or one command there.

    Raises:
        Refused: no such lab runs.
    """
    return _ssh(_running(name), *command)


def adapt(service: Service, lab: Lab) -> Service:
    """`service` as this lab runs it: labs share one loopback, so it listens on the lab's own."""
    return service.model_copy(update={"listen": lab.address})


def _running(name: str) -> state.Record:
    record = state.load(name)
    if record is None or not record.supervisor.alive():
        raise Refused(
            f"no lab {name} is running on this machine",
            remedy=f"opsctl lab up {name}",
            code="lab_not_running",
        )
    return record


def _ssh(record: state.Record, *command: str) -> list[str]:
    folder = state.folder_of(record.name)
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": "10",
        "IdentitiesOnly": "yes",
        "IdentityFile": str(folder / "id_ed25519"),
        "LogLevel": "ERROR",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": str(folder / "known_hosts"),
    }
    words = [word for key, value in options.items() for word in ("-o", f'{key}="{value}"')]
    login = ["-p", str(SSH_PORT), f"root@{record.address}", *command]
    # -F none: neither the user's nor the machine's ssh_config concerns a lab.
    return ["ssh", "-F", "none", *words, *login]
