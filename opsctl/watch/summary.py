"""One look at a host as plain data, for `opsctl watch --once --json`."""

from __future__ import annotations

from typing import Any

from opsctl.watch import words
from opsctl.watch.model import HostModel


def summary(model: HostModel, now: float) -> dict[str, Any]:
    """What a frame shows; null is what is not known. `now` is monotonic seconds."""
    unit, start = model.unit, model.start
    incident = model.last_incident()
    age = model.age(now)
    return {
        "host": model.name,
        "service": model.service,
        "reached": unit is not None,
        "heard_ago_s": None if age is None else round(age, 3),
        "lost": None if model.lost is None else model.lost.message,
        "unit": None
        if unit is None
        else {
            "name": unit.name,
            "active_state": unit.active_state,
            "sub_state": unit.sub_state,
            "invocation": unit.invocation_id,
            "n_restarts": unit.n_restarts,
            "active_for_s": model.active_for(now),
        },
        "phase": words.phase(model)[0],
        "remaining_s": model.remaining(now) if model.loading else None,
        "generation": model.generation or None,
        "lock": model.lock or None,
        "guard": words.guard(model)[0] or None,
        "running": start.now.running if start else None,
        "queued": start.now.queued if start else None,
        "kv_usage": start.now.usage if start else None,
        "measured": start.measured.to_json() if start else None,
        "incident": None
        if incident is None
        else {"at": incident[1], "present_start": incident[2], **incident[0].to_json()},
    }
