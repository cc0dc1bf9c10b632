"""Steps of the runbooks: what a person on call would look at, wait for, or end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from opsctl.events import Event, State
from opsctl.playbook.spec import DrainArguments
from opsctl.rollout import diagnosing, examining, steps
from opsctl.rollout.prove import emit_notes, prove, summary
from opsctl.rollout.run import Run, StepFailed
from opsctl.rollout.serving import last_incident, serving_of
from opsctl.sglang import ServerError, arguments
from opsctl.text import counted, duration

# Seconds without a request before a server counts as idle, and between two looks.
_IDLE_FOR: Final = 1.0
_LOOK_EVERY: Final = 0.5


def diagnose(run: Run) -> str:
    """What the journal tells of this start; else the last incident of any."""
    unit = run.session.unit()
    if unit.invocation_id:
        found = diagnosing.of_start(run.session.read(unit.invocation_id), unit, run.patched)
        if found.incident:
            run.diagnosis = found
            run.session.emit(Event("diagnose", "warn", found.summary))
            return found.remedy or found.summary
    incident = last_incident(run.session)
    if incident is None:
        return "the journal tells of no incident"
    run.diagnosis = incident.diagnosis
    run.session.emit(Event("diagnose", "warn", incident.text))
    return incident.diagnosis.remedy or incident.text


def examine(run: Run) -> str:
    """A smoke test whose result later steps may ask for. A server that does not answer is not
    sound, and no test is made of it."""
    run.smoke = None
    serving = serving_of(run.session, run.session.unit())
    if serving.verdict != "pass":
        return f"not sound: {serving.text}"
    exam = examining.prepare(run.session, steps.wanted(run))
    result = prove(run.session, strict=run.strict, patched=run.patched, exam=exam)
    run.smoke = result
    emit_notes(result, run.session.emit)
    return f"{'sound' if result.verdict == 'pass' else 'not sound'}: {summary(result)}"


def weights(run: Run) -> str:
    """Whether the folders of weights are there and hold any.

    Raises:
        StepFailed: one is not; a start would die of it after minutes.
    """
    places = {"model": run.session.service.model.path}
    argv = run.session.unit().argv
    draft = arguments.value(argv, arguments.DRAFT)
    if draft is not None:
        places["draft"] = draft
    found = run.session.call("machine", weights=places)["filesystems"] or {}
    told = []
    for role, path in places.items():
        place = found.get(role) or {"fault": "it could not be looked at"}
        fault = _weights_fault(place)
        if fault:
            raise StepFailed(
                "weights_missing",
                f"the weights of the {role} in {path}: {fault}",
                remedy=f"mount or copy them; the mount there now is {place.get('mount') or '?'} "
                f"({place.get('type') or '?'}); then run this runbook again",
                evidence={"filesystems": found},
            )
        told.append(f"{role}: {counted(place['weights']['files'], 'file')}")
    return ", ".join(told)


def _weights_fault(place: Mapping[str, Any]) -> str:
    if place.get("fault"):
        return str(place["fault"])
    if not place.get("exists"):
        return "there is no such folder"
    held = place.get("weights")
    if not held or not held["files"]:
        return "the folder holds none"
    return "" if held["config"] else "config.json is not there"


def orphans(run: Run) -> str:
    """Who holds what is the service's, outside its unit."""
    found = run.session.call("find_orphans")
    for part, why in found["missing"].items():
        run.session.emit(Event("orphans", "info", f"{part} not seen: {why}"))
    run.orphans = [each for each in found["orphans"] if not each["left"]]
    for each in found["orphans"]:
        state: State = "warn" if each["left"] else "info"
        why = ", ".join(each["why"]) + (f"; left alone: {each['left']}" if each["left"] else "")
        text = f"pid {each['pid']} of {each['user']}, {' '.join(each['argv'])[:80]}: {why}"
        run.session.emit(Event("orphans", state, text))
    return f"{counted(len(run.orphans), 'process', 'processes')} to end"


def end_orphans(run: Run) -> str:
    """End those that were found.

    Raises:
        StepFailed: one of them is there still.
    """
    run.touched = True
    done = run.session.call("end_orphans", orphans=run.orphans, timeout=60)
    run.orphans = []
    for each in done["left"]:
        run.session.emit(Event("end_orphans", "warn", f"pid {each['pid']} is left: {each['why']}"))
    if done["remaining"]:
        stuck = "; ".join(f"pid {each['pid']}: {each['why']}" for each in done["remaining"])
        raise StepFailed(
            "orphans_remain",
            f"not every process could be ended: {stuck}",
            remedy="what hangs in the driver ends with a reboot of the host alone",
            evidence=done,
        )
    ended = ", ".join(f"pid {each['pid']} by {each['by']}" for each in done["ended"])
    return ended or "they had ended by themselves"


def stacks(run: Run) -> str:
    """Where each process of the unit hangs, as evidence: a restart wipes it away."""
    found = run.session.call("stacks", timeout=120)
    processes = found["processes"]
    for each in processes:
        where = f" in {each['wchan']}" if each["wchan"] not in ("", "0") else ""
        text = f"pid {each['pid']} {each['name']}: {each['state']}{where}"
        run.session.emit(Event("stacks", "info", text, {"stack": each}))
    tool = "" if found["py_spy"] else "; py-spy, which the host lacks, would show the Python lines"
    return f"{counted(len(processes), 'process', 'processes')} recorded{tool}"


def drain(run: Run) -> str:
    """Until no request runs or waits. SGLang drains at SIGTERM too, but refuses new ones then."""
    given = run.arguments
    assert isinstance(given, DrainArguments)
    began = time.monotonic()
    idle_since: float | None = None
    told = 0.0
    while (now := time.monotonic()) - began < given.timeout:
        count = _under_way(run)
        if count is None:
            return "the server does not say what it has under way"
        if count:
            idle_since = None
        elif idle_since is None:
            idle_since = now
        elif now - idle_since >= _IDLE_FOR:
            return f"idle after {duration(now - began)}"
        if now - told > 1.0:
            told = now
            text = f"{counted(count, 'request')} under way"
            numbers = {"elapsed_s": round(now - began, 1), "budget_s": given.timeout}
            run.session.emit(Event("drain", "progress", text, numbers))
        time.sleep(_LOOK_EVERY)
    left = counted(_under_way(run) or 0, "request")
    return f"{left} under way still after {duration(given.timeout)}"


def _under_way(run: Run) -> int | None:
    with run.session.client() as client:
        try:
            client.server_info()  # which release it is decides where it tells
            return sum(load.requests for load in client.loads())
        except ServerError:
            return None
