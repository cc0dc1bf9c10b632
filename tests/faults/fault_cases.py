"""The faults, the steps at which they strike, and one case of both run to its end."""

from __future__ import annotations

import contextlib
import random
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from fault_proxy import Proxy
from fault_rigs import free_disk, mount_name, rigged, set_clock
from fault_verdict import faults_of
from light_lab import STATE, Client, LightLab, Watch
from light_package import SITE, VERSIONS

from opsctl import lab

# What has just been done when the fault strikes. `swapping` and `start` are in the middle of it.
STEPS = (
    "lock",
    "stage",
    "guard",
    "stop",
    "swapping",
    "swap",
    "start",
    "wait",
    "smoke",
    "conclude",
)
MID_LOAD = 2.5  # seconds that a load takes in which a fault is to strike

# An exit status and where it says that the host is. 11 and 12 leave it open, as does a killed
# client.
_SAYS_NEW, _SAYS_OLD = frozenset({0}), frozenset({3, 4, 5, 10, 130})
# Where the report's generation is the one that is in place.
_SAYS_WHICH = frozenset({0, 10, 130})


@dataclass
class Case:
    """A deploy that is halted, and how its fault gets at it."""

    light: LightLab
    client: Client
    proxy: Proxy
    step: str
    new: int
    old: int = -1
    trapped: int | None = None  # the host program that is stopped in mid-swap
    others: list[Client] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def release(self) -> None:
        """Let everything that was halted for the fault go on."""
        if self.trapped is not None:
            self.light.inside(f"kill -CONT {self.trapped}", check=False)
            self.trapped = None
        self.client.go_on()


Act = Callable[[Case], None]


def client_killed(case: Case) -> None:
    case.client.process.kill()
    case.client.process.wait()


def client_interrupted(case: Case) -> None:
    case.client.process.terminate()


def host_program_killed(case: Case) -> None:
    """Whoever holds the lock; nobody does when all is over already."""
    script = f'import json; print(json.load(open("{case.light.state}/lock"))["pid"])'
    case.light.inside(f"kill -9 $(python3 -c '{script}')", check=case.step != "random")


def connection_reset(case: Case) -> None:
    case.proxy.reset()


def sessions_killed(case: Case) -> None:
    case.light.inside_soon('pkill -9 -f "sshd: root@"')
    time.sleep(0.5)


def no_way_to_the_host(case: Case) -> None:
    case.proxy.freeze("up")


def no_way_back(case: Case) -> None:
    case.proxy.freeze("down")


def no_way_at_all(case: Case) -> None:
    case.proxy.freeze("up", "down")


def sshd_restarted(case: Case) -> None:
    case.light.inside("systemctl restart ssh")


def rebooted(case: Case) -> None:
    """In order: every process gets SIGTERM first."""
    reboot(case.light, "systemctl reboot")


def rebooted_at_once(case: Case) -> None:
    """reboot(2), by which every process of the container is gone at once."""
    reboot(case.light, "systemctl reboot --force --force")


def reboot(light: LightLab, command: str) -> None:
    before = light.inside("cat /proc/sys/kernel/random/boot_id")
    light.inside_soon(f"sleep 0.3; {command}")
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        time.sleep(0.3)
        with contextlib.suppress(subprocess.TimeoutExpired):
            now = light.inside("cat /proc/sys/kernel/random/boot_id", check=False, timeout=5)
            if now and now != before:
                return
    raise RuntimeError("the lab did not come back from its reboot")


def service_killed(case: Case) -> None:
    """With SIGKILL, as the kernel does when memory is short; where it is down, nothing to kill."""
    case.light.inside(f"systemctl kill --kill-whom=main -s KILL {case.light.unit}", check=False)


def restarted_by_hand(case: Case) -> None:
    case.light.inside(f"systemctl restart {case.light.unit}")


def second_deploy(case: Case) -> None:
    third = next(v for v in range(1, VERSIONS) if v != case.new)
    _other(case, case.light.deploy(third))


def opsctl_restart(case: Case) -> None:
    _other(case, case.light.start("restart", "--yes"))


def _other(case: Case, other: Client) -> None:
    """It comes while the first is at work, and must be told so."""
    status = other.finish(60)
    if status != 4:
        report = other.report
        case.notes.append(
            f"the other command ended with {status}, not 4: {report and report['summary']}"
        )


def journald_restarted(case: Case) -> None:
    case.light.inside("systemctl restart systemd-journald")


def journald_killed(case: Case) -> None:
    case.light.inside("systemctl kill -s KILL systemd-journald")


def journal_flooded(case: Case) -> None:
    """Above journald's limit for the sender."""
    case.light.inside("seq 20000 | systemd-cat -t flood")


def systemd_reexecuted(case: Case) -> None:
    case.light.inside("systemctl daemon-reexec")


def state_disk_full(case: Case) -> None:
    case.light.inside("dd if=/dev/zero of=/mnt/state/fill bs=1M 2>/dev/null", check=False)


def state_read_only(case: Case) -> None:
    _read_only(case.light, STATE)


def package_disk_full(case: Case) -> None:
    case.light.inside("dd if=/dev/zero of=/mnt/site/fill bs=1M 2>/dev/null", check=False)


def package_read_only(case: Case) -> None:
    _read_only(case.light, SITE)


def clock_forward(case: Case) -> None:
    set_clock(case.light, 7200)


def clock_back(case: Case) -> None:
    set_clock(case.light, -7200)


def _read_only(light: LightLab, folder: str) -> None:
    """By another mount on top: a remount is refused while the lock is open for writing, which
    an error of the disk would not be."""
    name = mount_name(folder)
    light.inside(f"mount --bind {name} {folder} && mount -o remount,bind,ro {folder}")
    if light.inside(f"touch {folder}/x 2>/dev/null || echo refused") != "refused\n":
        raise RuntimeError("the folder is not read-only")


@dataclass(frozen=True)
class Fault:
    """`disk` is mounted apart for the case, `clock` lets the host's clock be set."""

    name: str
    act: Act
    disk: str | None = None
    clock: bool = False
    steps: tuple[str, ...] = STEPS
    bound: float = 150.0  # seconds to settle in


_NOT_LOCKED = ("guard", "stop", "swapping", "swap", "start", "wait", "smoke", "conclude")
_RUNNING = ("lock", "stage", "guard", "start", "wait", "smoke", "conclude")

FAULTS = (
    Fault("client killed", client_killed),
    Fault("client interrupted", client_interrupted),
    Fault("host program killed", host_program_killed),
    Fault("connection reset", connection_reset),
    Fault("SSH sessions killed", sessions_killed),
    Fault("half open, host hears nothing", no_way_to_the_host, steps=_NOT_LOCKED, bound=300),
    Fault("half open, client hears nothing", no_way_back, steps=_NOT_LOCKED, bound=400),
    Fault("half open both ways", no_way_at_all, steps=_NOT_LOCKED, bound=400),
    Fault("sshd restarted", sshd_restarted),
    Fault("host rebooted", rebooted),
    Fault("host rebooted at once", rebooted_at_once),
    Fault("service killed", service_killed, steps=_RUNNING),
    Fault("unit restarted by hand", restarted_by_hand),
    Fault("second deploy", second_deploy),
    Fault("opsctl restart meanwhile", opsctl_restart),
    Fault("journald restarted", journald_restarted),
    Fault("journald killed", journald_killed),
    Fault("journal flooded", journal_flooded),
    Fault("systemd re-executed", systemd_reexecuted),
    Fault("state folder's disk full", state_disk_full, disk=STATE),
    Fault("state folder read-only", state_read_only, disk=STATE),
    Fault("package's disk full", package_disk_full, disk=SITE),
    Fault("package read-only", package_read_only, disk=SITE),
    Fault("clock two hours forward", clock_forward, clock=True),
    Fault("clock two hours back", clock_back, clock=True),
)
BY_NAME = {fault.name: fault for fault in FAULTS}


@dataclass
class Result:
    fault: str
    step: str
    end: str = ""  # old or new, as found on the host
    exit: int = 0
    said: int | None = None  # the generation that the report names
    healthy_s: float | None = None  # from the fault until it served for good
    silent_s: float = 0.0  # in which it served nothing, of the time after the fault
    settled_s: float | None = None  # until nothing of the rollout was under way any more
    guard_acted: bool = False
    healed: bool | None = None  # of a disk's fault: whether it served before that was mended
    summary: str = ""
    began: float = field(default_factory=time.time)
    wrong: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def run_case(
    light: LightLab, fault: Fault, step: str, new: int, command: str = "deploy", **settings: Any
) -> Result:
    """One deploy of version `new`, halted after `step`, struck, and looked at when it settled.

    With the command rollback, one that goes there.
    """
    result = Result(fault.name, step)
    old = light.await_serving(60)
    proxy = Proxy(light.address, 2222)
    with contextlib.ExitStack() as stack:
        stack.callback(proxy.close)
        stack.enter_context(rigged(light, fault.disk, clock=fault.clock))
        if step == "start":
            light.set_load(MID_LOAD)
            stack.callback(light.set_load, 0.5)
        case = _halted(light, proxy, step, new, command, settings)
        watch = Watch(light)
        stack.callback(watch.stop)
        try:
            strike_and_settle(case, fault, result, watch)
        finally:
            if case.client.process.poll() is None:
                case.client.process.kill()
        watch.stop()
        judge(light, result, watch, {old: "old", new: "new"})
        result.wrong += case.notes
    return result


def _halted(
    light: LightLab, proxy: Proxy, step: str, new: int, command: str, settings: dict[str, Any]
) -> Case:
    def begin(**how: Any) -> Client:
        if command == "deploy":
            return light.deploy(new, port=proxy.port, **how, **settings)
        return light.start(command, "--yes", port=proxy.port, **how, **settings)

    if step != "swapping":
        client = begin(halt=step)
        if not client.halted.wait(180) or client.ended.is_set():
            raise RuntimeError(f"the rollout never came to {step}: {client.stderr}")
        if step == "start":
            time.sleep(0.7)
        return Case(light, client, proxy, step, new)
    argv = lab.ssh_argv(light.name, f"python3 /opt/faults/fault_trap.py {light.state} 90")
    trap = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert trap.stdout is not None
    trap.stdout.readline()
    client = begin()
    word, _, pid = trap.stdout.readline().partition(" ")
    trap.wait()
    trap.stdout.close()
    if not word:
        raise RuntimeError(f"the rollout never swapped: {client.stderr}")
    case = Case(light, client, proxy, step, new, trapped=int(pid))
    if word == "missed":
        case.notes.append("the swap was over before it could be halted")
    return case


def strike_and_settle(case: Case, fault: Fault, result: Result, watch: Watch) -> None:
    struck = time.monotonic()
    fault.act(case)
    case.release()
    bound = fault.bound + case.light.slower
    result.exit = case.client.finish(bound)
    report = case.client.report
    if report:
        result.summary, result.said = report["summary"], report["generation"]
    if "Traceback" in "\n".join(case.client.stderr):
        result.wrong.append("a traceback: " + "\n".join(case.client.stderr[-12:]))
    if fault.disk is not None:
        result.healed = _await(case.light, lambda: case.light.served() is not None, 25)
        free_disk(case.light, fault.disk)
    found = _await_settled(case.light, struck + bound)
    result.settled_s = round(time.monotonic() - struck, 1)
    watch.stop()
    healthy = watch.healthy_after(struck)
    result.healthy_s = round(healthy, 1)
    result.silent_s = round(_silence(watch, struck), 1)
    acted = found["report"]
    result.guard_acted = bool(acted and "seconds" in acted and acted["at"] > result.began)


def _await(light: LightLab, ready: Callable[[], bool], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if ready():
            return True
        time.sleep(0.3)
    return False


def _await_settled(light: LightLab, deadline: float) -> dict[str, Any]:
    """The look at the host when nothing is under way any more, or at the deadline."""
    while True:
        found = light.look()
        unit = found["unit"]
        settled = (
            not found["locked"]
            and found["guard"] is None
            and unit.get("ActiveState") == "active"
            and unit.get("SubState") == "running"
            and light.served() is not None
        )
        if settled or time.monotonic() > deadline:
            return found
        time.sleep(1.2)


def _silence(watch: Watch, since: float) -> float:
    total, end = 0.0, time.monotonic()
    for (at, seen), following in zip(
        watch.changes, [*[at for at, _ in watch.changes[1:]], end], strict=True
    ):
        if seen is None:
            total += max(0.0, following - max(at, since))
    return total


def judge(
    light: LightLab,
    result: Result,
    watch: Watch,
    ends: dict[int, str] | None,
    *,
    alone: bool = True,
) -> None:
    """Everything that is wrong; `ends` are the versions in which it may have ended, if known.

    What the report says of a generation counts where no other command came after: `alone`.
    """
    found = light.look()
    # A disk that was full to the end keeps the record back, and the client says so.
    struck_disk = result.fault in BY_NAME and BY_NAME[result.fault].disk is not None
    if result.exit in (0, 12) and struck_disk:
        light.unrecorded.add((found["current"] or "").strip())
    version, wrong = faults_of(light, found, light.served(5.0))
    result.wrong += wrong + watch.mixtures
    if result.exit in (1, -99):
        result.wrong.append(f"the client ended with {result.exit}: {result.summary}")
    current, said = (found["current"] or "").strip(), str(result.said)
    if alone and result.exit in _SAYS_WHICH and said not in ("None", current):
        text = f"exit {result.exit} says generation {said}, {current or 'none'} is there"
        result.wrong.append(text)
    if ends is None:
        result.end = f"version {version}"
        return
    result.end = ends.get(-1 if version is None else version, "neither")
    if result.end == "neither":
        result.wrong.append(f"version {version} is there, which is none of {ends}")
    said = "new" if result.exit in _SAYS_NEW else "old" if result.exit in _SAYS_OLD else ""
    if said and said != result.end:
        result.wrong.append(f"exit {result.exit} says {said}, the {result.end} one is there")


def pick_new(light: LightLab, dice: random.Random) -> int:
    served = light.await_serving(20)
    return dice.choice([v for v in range(1, VERSIONS) if v != served])
