"""What each step of a playbook does, by its name; `opsctl.playbook.spec` says what it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from opsctl.rollout import care, choosing, room, steps, trial, waiting
from opsctl.rollout.run import Run

ACTS: Final[Mapping[str, Callable[[Run], str]]] = {
    "preflight": steps.preflight,
    "diagnose": care.diagnose,
    "examine": care.examine,
    "follow": waiting.follow,
    "weights": care.weights,
    "orphans": care.orphans,
    "stacks": care.stacks,
    "space": room.space,
    "choose": choosing.choose,
    "drain": care.drain,
    "lock": steps.lock,
    "guard": steps.guard,
    "stage": steps.stage,
    "confirm": steps.confirm,
    "record": steps.record,
    "stop": steps.stop,
    "swap": steps.swap,
    "start": steps.start,
    "end_orphans": care.end_orphans,
    "make_room": room.make_room,
    "wait": waiting.wait,
    "smoke": steps.smoke,
    "control": trial.control,
    "soak": trial.soak,
    "judge": trial.judge,
}
