"""Drive the state machine: follow one start on the host until it is ready or over."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opsctl.errors import Unreachable
from opsctl.events import Emit, Event
from opsctl.journal import Entry
from opsctl.readiness.machine import Failed, Readiness
from opsctl.sglang import ServerError, SglangClient
from opsctl.transport import Subscription
from opsctl.units.properties import Unit

STEP = "wait"
_TICK = 0.25
_SAY_EVERY = 1.0
# The host speaks each second, and none of its calls to systemd takes longer than this.
_SILENCE = 45.0


@dataclass(frozen=True, slots=True)
class Ready:
    """A start that is up.

    `ready_s` runs from the start command to the first HTTP answer after the server's own
    word; `lag_s` from that word, by the host's clock, to this verdict. `spans` are the load's
    phases: (phase, begin, end), seconds since the start command.
    """

    invocation: str
    ready_s: float
    lag_s: float
    models: tuple[str, ...]
    spans: tuple[tuple[str, float, float], ...] = ()


def wait_ready(
    machine: Readiness, watch: Subscription, client: SglangClient, emit: Emit
) -> Ready | Failed:
    """Consume `watch` (the host program's) until `machine` has an outcome.

    Raises:
        Unreachable: the connection was lost; how the start ends is unknown then.
    """
    said = 0.0
    label = ""
    asked = 0.0
    heard = time.monotonic()
    while True:
        item = watch.get(_TICK)
        now = time.monotonic()
        heard = _still_heard(item, heard, now)
        _feed(machine, item, now)
        machine.tick(now)
        if machine.failed is not None:
            return machine.failed
        if machine.announced is not None and now - asked > 0.2:
            asked = now
            models = _answered(client)
            if models is not None:
                done = time.monotonic()
                assert machine.announced_at is not None
                ready_s = done - machine.started
                return Ready(
                    invocation=machine.invocation,
                    ready_s=ready_s,
                    lag_s=machine.announced_delay + done - machine.announced_at,
                    models=models,
                    spans=_from_the_start(machine.progress.spans, ready_s),
                )
        if now - said >= _SAY_EVERY or machine.progress.label != label:
            said, label = now, machine.progress.label
            emit(Event(STEP, "progress", label, _numbers(machine, now)))


def wait_down(watch: Subscription, timeout: float, emit: Emit, invocation: str = "") -> Unit | None:
    """Until the unit is stopped; None when it is not within `timeout` seconds.

    One that runs in another invocation than this was stopped too, and somebody started it.
    """
    started = time.monotonic()
    said = heard = started
    while (now := time.monotonic()) - started < timeout:
        item = watch.get(_TICK)
        heard = _still_heard(item, heard, now)
        if item and "unit" in item:
            unit = Unit.from_show(item["unit"])
            other = invocation and unit.invocation_id not in ("", invocation)
            if unit.down or (other and unit.active_state != "deactivating"):
                return unit
            if now - said > _SAY_EVERY:
                said = now
                elapsed = now - started
                emit(Event("stop", "progress", f"{unit.state} for {elapsed:.0f} s", {}))
    return None


def _still_heard(item: Any, heard: float, now: float) -> float:
    """When the host was last heard; it speaks each second, unless the connection is half open.

    Raises:
        Unreachable: it has been silent for too long.
    """
    if item is not None:
        return now
    if now - heard > _SILENCE:
        raise Unreachable(
            f"no word from the host for {now - heard:.0f} s",
            remedy="look at the host and the network, then run `opsctl status`",
            code="host_silent",
        )
    return heard


def _feed(machine: Readiness, item: Any, now: float) -> None:
    if item and "unit" in item:
        machine.see_unit(Unit.from_show(item["unit"]), now)
    elif item:
        entries = [Entry.from_json(entry) for entry in item["entries"]]
        machine.see_entries(entries, now, float(item["time"]))


def _answered(client: SglangClient) -> tuple[str, ...] | None:
    try:
        return client.models()
    except ServerError:
        return None


def _numbers(machine: Readiness, now: float) -> dict[str, object]:
    return {
        "phase": machine.progress.phase,
        "fraction": machine.progress.fraction,
        "elapsed_s": round(now - machine.started, 1),
        "remaining_s": machine.remaining(now),
        "budget_s": machine.budget,
    }


def _from_the_start(
    spans: Sequence[tuple[str, float, float]], ready_s: float
) -> tuple[tuple[str, float, float], ...]:
    """Spans that count from the first line, counted from the start: a server imports for long
    before it says anything, which is a part of the first one."""
    if not spans:
        return ()
    silent = max(0.0, ready_s - spans[-1][2])
    (first, _, end), *rest = spans
    later = [(phase, begin + silent, stop + silent) for phase, begin, stop in rest]
    return ((first, 0.0, end + silent), *later)
