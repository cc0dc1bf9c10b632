"""Random deploys, rollbacks and restarts with random faults at random moments, by a seed.

Run N of a seed is the same choice every time, on whichever lab: command, version, fault, the step
after which it strikes, and how many seconds after. What the host has at that moment is not, so a
replay finds the same kind of moment, not the same microsecond. The guard's patience is shorter
here (`QUICK`), or the runs would spend their time waiting.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

from fault_cases import (
    FAULTS,
    MID_LOAD,
    Case,
    Fault,
    Result,
    judge,
    strike_and_settle,
)
from fault_proxy import Proxy
from fault_rigs import rigged
from light_lab import Client, LightLab, Watch
from light_package import VERSIONS

QUICK: dict[str, Any] = {"patience": 8.0, "grace": 4.0}
# "" is before anything is said.
_MOMENTS = ("", "preflight", "lock", "stage", "guard", "stop", "swap", "start", "wait", "smoke")


def choose(seed: int, number: int) -> dict[str, Any]:
    dice = random.Random(f"{seed}/{number}")
    fault = dice.choice([None, *FAULTS, *(f for f in FAULTS if f.disk is None)])
    return {
        "number": number,
        "command": dice.choices(["deploy", "rollback", "restart"], [7, 2, 1])[0],
        "version": dice.randrange(1, VERSIONS),
        "fault": fault.name if fault else None,
        "moment": dice.choice(_MOMENTS),
        "after": round(dice.uniform(0.0, 1.5), 2),
        "load": dice.choice([0.5, 0.5, MID_LOAD]),
    }


def _start(light: LightLab, chosen: dict[str, Any], port: int) -> Client:
    if chosen["command"] == "deploy":
        return light.deploy(chosen["version"], port=port, **QUICK)
    return light.start(chosen["command"], "--yes", port=port, **QUICK)


def _await_moment(client: Client, step: str, after: float) -> None:
    """A step that this command does not have never comes: the fault strikes when all is over."""
    while step and not client.ended.wait(0.02):
        if any(line.startswith(f"ok   {step}") for line in list(client.stderr)):
            break
    client.ended.wait(after)


def _nothing(case: Case) -> None:
    pass


def run_one(light: LightLab, seed: int, number: int) -> dict[str, Any]:
    """One run, judged as the cases of the matrix are, except for which version it has to be."""
    chosen = choose(seed, number)
    fault = next((f for f in FAULTS if f.name == chosen["fault"]), Fault("none", _nothing))
    result = Result(fault.name, f"{chosen['command']} {chosen['moment']}+{chosen['after']} s")
    began = time.monotonic()
    try:
        old = light.await_serving(20)
        light.set_load(chosen["load"])
        with contextlib.ExitStack() as stack:
            stack.enter_context(rigged(light, fault.disk, clock=fault.clock))
            proxy = Proxy(light.address, 2222)
            stack.callback(proxy.close)
            client = _start(light, chosen, proxy.port)
            stack.callback(client.finish, 0)
            watch = Watch(light)
            stack.callback(watch.stop)
            case = Case(light, client, proxy, "random", chosen["version"], old=old)
            _await_moment(client, chosen["moment"], chosen["after"])
            strike_and_settle(case, fault, result, watch)
            judge(light, result, watch, None, alone=not case.notes)
            # A second command beside this one is told so only while this one is at work.
            result.wrong += [n for n in case.notes if "other command" not in n]
    except Exception as error:
        result.wrong.append(f"the run itself failed: {error!r}: {traceback.format_exc()}")
    return {**chosen, **result.to_json(), "took_s": round(time.monotonic() - began, 1)}


def run_random(
    numbers: list[int], seed: int, labs: int, minutes: float, on_labs: Callable[..., None]
) -> dict[str, Any]:
    """Those runs of the seed, and their record."""
    runs: list[dict[str, Any]] = []

    def keep(record: dict[str, Any]) -> None:
        runs.append(record)
        wrong = f" WRONG {record['wrong']}" if record["wrong"] else ""
        sys.stderr.write(
            f"{len(runs)}/{len(numbers)} #{record['number']} {record['step']} {record['fault']}: "
            f"{record['end']}, exit {record['exit']}, {record['took_s']} s{wrong}\n"
        )

    def job(number: int) -> Callable[[LightLab], dict[str, Any]]:
        return lambda light: run_one(light, seed, number)

    jobs = [job(number) for number in numbers]
    on_labs(jobs, labs, time.monotonic() + minutes * 60, keep)
    return {
        "seed": seed,
        "wanted": len(numbers),
        "done": len(runs),
        "commands": dict(Counter(run["command"] for run in runs)),
        "faults": dict(Counter(str(run["fault"]) for run in runs)),
        "ends": dict(Counter(run["end"] for run in runs)),
        "exits": {str(k): n for k, n in Counter(run["exit"] for run in runs).items()},
        "failures": [run for run in runs if run["wrong"]],
        "runs": sorted(runs, key=lambda run: int(run["number"])),
    }
