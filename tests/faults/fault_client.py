"""opsctl as a command that halts at a step's boundary, so that a fault hits that very moment.

    python fault_client.py '{"halt": "stop", ...}' deploy --yes ...

At the boundary it writes `@halt` to stderr and waits for a line on stdin; its other threads live
on meanwhile, as those of a client that is merely slow do. The product has no hook for this: the
engine's own functions are wrapped here. Settings: `halt`, a step's name, or `conclude` for the
moment between a generation's record and the guard's end; `patience` and `grace` in seconds, for
runs that must not wait out the real ones.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from opsctl import cli
from opsctl.rollout import engine, guarding, session
from opsctl.transport.bundle import PACKAGE, guard_program


def _halt() -> None:
    sys.stderr.write("@halt\n")
    sys.stderr.flush()
    sys.stdin.readline()


def _once(function: Any, wanted: Any, *, before: bool) -> Any:
    """`function`, halting at the first call that is wanted."""
    done = False

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal done
        hit = not done and wanted(*args)
        done = done or hit
        if hit and before:
            _halt()
        result = function(*args, **kwargs)
        if hit and not before:
            _halt()
        return result

    return wrapped


def prepare(settings: dict[str, Any]) -> None:
    halt = settings.get("halt")
    if halt == "conclude":
        guarding.disarm = _once(guarding.disarm, lambda run: True, before=True)
    elif halt:
        engine._step = _once(engine._step, lambda run, name, _: name == halt, before=False)
    if "patience" in settings:
        session._ALIVE_EVERY = settings["patience"] / 10
        session._ALIVE_PATIENCE = settings["patience"]
    if "grace" in settings:
        start = f"from {PACKAGE}.guardian import main"
        shorter = f"from {PACKAGE} import guardian\nguardian._GRACE = {settings['grace']:.1f}\n"
        program = guard_program().replace(start, shorter + start)
        vars(guarding)["guard_program"] = lambda: program


if __name__ == "__main__":
    prepare(json.loads(sys.argv[1]))
    sys.argv[1:] = sys.argv[2:]
    cli.main()
