"""Faults that a runbook is for, really present in a lab, and what has to be so after it.

`FAULTS` are for the light lab and for SGLang's alike, but for those that say why not. Each is put
in, seen, and left to the runbook alone.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fault_cases import reboot
from fault_rigs import own_disk
from runbook_rigs import LATENT, LightRig, RealRig

Rig = LightRig | RealRig
# Of a process that the unit has lost: the service's module, in nobody's unit.
_ORPHAN_ARGV = "-m sglang.launch_server --model-path /opt/models/target"
# Starts the same command as the unit's main process, in its environment, in nobody's unit, under
# another served name; once /run/go is there.
_BY_HAND = """
import os, subprocess, sys, time
read = lambda name: open(f"/proc/{sys.argv[1]}/{name}").read().split("\\0")[:-1]
argv = read("cmdline")
argv[argv.index("--served-model-name") + 1] = "orphan"
if os.fork():
    sys.exit()
os.setsid()
null = os.open(os.devnull, os.O_RDWR)
for number in range(3):
    os.dup2(null, number)
environment = dict(line.partition("=")[::2] for line in read("environ"))
while not os.path.exists("/run/go"):
    time.sleep(0.1)
os.unlink("/run/go")
os.execve(argv[0], argv, environment)
"""


@dataclass(frozen=True)
class Fault:
    """`put` puts it in and returns what undoes what the runbook has no business with; `gone` says
    what is wrong still after the runbook."""

    runbook: str
    what: str
    put: Callable[[Rig], Callable[[], None]]
    gone: Callable[[Rig], str]
    light_only: str = ""  # why SGLang's own lab does not have it


def nothing() -> None: ...


def done(light: Rig, command: str) -> None:
    light.inside(command)


def fine(light: Rig) -> str:
    return ""


def show(light: Rig, *names: str) -> dict[str, str]:
    lines = light.inside(f"systemctl show {light.unit} -p {','.join(names)}").splitlines()
    return dict(line.split("=", 1) for line in lines)


def await_state(light: Rig, wanted: Callable[[dict[str, str]], bool], seconds: float) -> None:
    """Until the unit's state is the fault's."""
    deadline = time.monotonic() + seconds
    names = ("ActiveState", "SubState", "Result", "NRestarts")
    while not wanted(found := show(light, *names)):
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


# -- the service is down ------------------------------------------------------------------------


def killed_for_good(light: Rig) -> Callable[[], None]:
    """Somebody stopped it, and the last that it wrote is a crash."""
    light.inside(f"systemctl kill --signal=SEGV {light.unit}; systemctl stop {light.unit}")
    await_state(light, lambda unit: unit["ActiveState"] in {"inactive", "failed"}, 60)
    return nothing


# -- a process that nobody accounts for ----------------------------------------------------------


def orphan(light: Rig) -> None:
    """A server started by hand holds the port, while the unit is down; and, says a stand-in of
    nvidia-smi's, which no lab has, GPU memory."""
    main = show(light, "MainPID")["MainPID"]
    script = base64.b64encode(_BY_HAND.encode()).decode()
    light.inside(f"echo {script} | base64 -d > /run/by_hand.py; python3 /run/by_hand.py {main}")
    light.inside(f"systemctl stop {light.unit}; systemctl reset-failed {light.unit} || true")
    light.inside("touch /run/go")
    deadline = time.monotonic() + 120
    while "orphan" not in _models(light):
        assert time.monotonic() < deadline, "the orphan does not serve"
        time.sleep(0.3)


def _models(light: Rig) -> str:
    url = f"http://{light.address}:{light.service['port']}/v1/models"
    script = f"import urllib.request as r; print(r.urlopen('{url}', timeout=3).read().decode())"
    return light.inside(f'python3 -c "{script}"', check=False)


def orphan_pids(light: Rig) -> list[str]:
    return light.inside("pgrep -f '[s]erved-model-name orphan' || true").split()


def end_orphans(light: Rig) -> None:
    light.inside("pkill --signal KILL -f '[s]erved-model-name orphan' || true")


def no_orphan(light: Rig) -> str:
    left = orphan_pids(light)
    return f"left are {left}" if left else ""


def gpu_orphan(light: Rig) -> Callable[[], None]:
    orphan(light)
    tool = "/usr/local/bin/nvidia-smi"
    light.inside(
        f"printf '%s\\n' '#!/bin/sh' 'case \"$1\" in *gpu=*) "
        'echo "0, GPU-lab, Lab, 98304, 90000, 0, 30, 0";; *) '
        'for p in $(pgrep -f "[s]erved-model-name orphan"); do '
        'echo "GPU-lab, $p, python, 90000"; done;; esac\' '
        f"> {tool}; chmod 755 {tool}"
    )
    assert orphan_pids(light)[0] in light.inside("nvidia-smi --query-compute-apps=pid")

    def undo() -> None:
        light.inside(f"rm -f {tool}")
        end_orphans(light)

    return undo


def looping_on_the_port(light: Rig) -> Callable[[], None]:
    """The light server dies of a taken port, and systemd starts it until it gives up."""
    orphan(light)
    light.inside(f"systemctl start --no-block {light.unit}")
    await_state(light, lambda unit: int(unit["NRestarts"]) >= 1 or unit["Result"] != "success", 60)
    return lambda: end_orphans(light)


def memory_held(light: Rig) -> Callable[[], None]:
    """Shared memory is full of what a server started by hand holds, though its file is deleted:
    what the unit starts dies for want of it. (Labs of cgroup v1 have no bound on other memory.)"""
    hog = (
        "import os, time; f = open('/dev/shm/held', 'wb'); os.unlink('/dev/shm/held')\n"
        "try:\n  while f.write(bytes(1 << 16)): f.flush()\n"
        "except OSError: time.sleep(3600)"
    )
    script = base64.b64encode(hog.encode()).decode()
    python = light.service["python"]
    size = light.inside("df --output=size -B1 /dev/shm | tail -1").strip()
    light.inside(
        f"systemctl stop {light.unit}; mount -o remount,size=128M /dev/shm; "
        f"echo {script} | base64 -d > /run/hog.py; "
        f'setsid nohup {python} -c "$(cat /run/hog.py)" {_ORPHAN_ARGV} --served-model-name orphan '
        ">/dev/null 2>&1 </dev/null &"
    )
    deadline = time.monotonic() + 30
    while int(light.inside("df --output=avail -B1 /dev/shm | tail -1")) > 1 << 16:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    light.inside(f"systemctl start --no-block {light.unit}")
    await_state(light, lambda unit: int(unit["NRestarts"]) >= 1 or unit["Result"] != "success", 60)

    def undo() -> None:
        end_orphans(light)
        light.inside(f"mount -o remount,size={size} /dev/shm")

    return undo


# -- it runs, and does not serve ------------------------------------------------------------------


def halted(light: Rig) -> Callable[[], None]:
    """The port is open, and nobody answers: every process of the unit is stopped in its tracks."""
    light.inside(f"systemctl kill --kill-whom=all --signal=STOP {light.unit}")
    assert light.served() is None
    return nothing


def stuck_load(light: Rig) -> Callable[[], None]:
    light.set_load(5.0)
    before = show(light, "InvocationID")["InvocationID"]
    light.inside(f"systemctl restart --no-block {light.unit}")
    deadline = time.monotonic() + 60
    while show(light, "InvocationID")["InvocationID"] in ("", before):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    time.sleep(5.0 if light.slower else 1.0)  # in the middle of it
    light.inside(f"systemctl kill --kill-whom=all --signal=STOP {light.unit}")
    light.set_load(0.5)
    assert light.served() is None
    return nothing


# -- the patch set ---------------------------------------------------------------------------------


def latent_crash(light: Rig) -> Callable[[], None]:
    """A set that was proved good, and dies since then at every start, as the incident's did."""
    assert light.deploy_latent() == 0
    light.inside(f"touch {LATENT}; systemctl restart --no-block {light.unit}")
    await_state(light, lambda unit: int(unit["NRestarts"]) >= 1, 120)
    return lambda: done(light, f"rm -f {LATENT}")


def wheel_is_back(light: Rig) -> str:
    return light.restored()


# -- the host --------------------------------------------------------------------------------------


def rebooted(light: Rig) -> Callable[[], None]:
    """With the unit disabled, so that nothing starts it."""
    light.inside(f"systemctl disable {light.unit}")
    reboot(light, "systemctl reboot")
    await_state(light, lambda unit: unit["ActiveState"] == "inactive", 30)
    return lambda: done(light, f"systemctl enable {light.unit}")


def full_disk(light: Rig) -> Callable[[], None]:
    """The state folder's file system is full of what old rollouts left, and the unit is down."""
    assert light.deploy(1).finish(400) == 0  # there is a state folder
    disk = own_disk(light, light.state)
    disk.__enter__()
    old = f"{light.state}/objects"
    light.inside(
        f"mkdir -p {old}; head -c 60000000 /dev/urandom > /run/left; "
        f"mv /run/left {old}/$(sha256sum /run/left | cut -d' ' -f1); "
        f"touch -d '60 days ago' {old}/*; "
        f"dd if=/dev/zero of={light.state}/fill bs=1M >/dev/null 2>&1 || true; "
        f"systemctl stop {light.unit}"
    )
    free = int(light.inside(f"df --output=avail -B1 {light.state} | tail -1"))
    assert free < 1 << 20, free

    def undo() -> None:
        light.inside(f"rm -f {light.state}/fill")
        disk.__exit__(None, None, None)

    return undo


def busy(light: Rig) -> Callable[[], None]:
    """Nothing is wrong."""
    return nothing


FAULTS = (
    Fault("service-down", "killed by a signal, then stopped", killed_for_good, fine),
    Fault("crash-loop", "a set that dies at every start", latent_crash, wheel_is_back),
    Fault(
        "crash-loop",
        "a server by hand holds the port",
        looping_on_the_port,
        no_orphan,
        light_only="SGLang does not die of a taken port: it hangs, which is gpu-orphans' fault",
    ),
    Fault("slow-load", "a load halted in the middle", stuck_load, fine),
    Fault("gpu-orphans", "a server by hand holds the port and GPU memory", gpu_orphan, no_orphan),
    Fault("hung", "every process halted, the port open", halted, fine),
    Fault(
        "out-of-memory",
        "a server by hand holds all shared memory",
        memory_held,
        no_orphan,
        light_only="one process of SGLang's on a CPU needs no shared memory to start",
    ),
    Fault("bad-patch-set", "a set that dies at every start", latent_crash, wheel_is_back),
    Fault("host-rebooted", "rebooted with the unit disabled", rebooted, fine),
    Fault("disk-full", "the state folder's disk full, the unit down", full_disk, fine),
    Fault("planned-restart", "nothing", busy, fine),
)


def follow(light: Rig, runbook: str, *words: str) -> tuple[int, dict[str, Any], str]:
    """The runbook alone, as on call at a keyboard that says yes to everything."""
    client = light.start("runbook", "run", runbook, "--yes", *words)
    status = client.finish(400)
    return status, client.report or {}, "\n".join(client.stderr)
