"""Whatever ends a rollout after its first change, the way back is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from opsctl.errors import EXIT_INTERRUPTED, EXIT_ROLLED_BACK
from opsctl.events import ignore
from opsctl.inventory import Host, Service
from opsctl.playbook import Playbook, use
from opsctl.rollout import engine, registry, steps
from opsctl.rollout.run import Options, Run
from opsctl.rollout.session import Session

SERVICE = Service.model_validate(
    {
        "unit": "x.service",
        "python": "/usr/bin/python3",
        "port": 1,
        "model": {"path": "/m", "served_name": "m"},
    }
)


class FakeSession:
    service = SERVICE
    host = Host.model_validate({"lab": "x", "services": {"x": SERVICE.model_dump()}})
    emit = staticmethod(ignore)

    def unit(self) -> None: ...

    def call(self, op: str, **params: Any) -> None: ...


@pytest.mark.parametrize(
    ("error", "exit_code", "code"),
    [
        (RuntimeError("no such thing"), EXIT_ROLLED_BACK, "bug"),
        (KeyboardInterrupt(), EXIT_INTERRUPTED, "interrupted"),
    ],
    ids=["bug", "interrupt"],
)
def test_anything_after_the_first_change_is_restored(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, exit_code: int, code: str
) -> None:
    done: list[str] = []

    def swap(run: Run) -> str:
        done.append(f"swap {run.target}")
        run.touched = run.swapped = True
        if run.target == 1:
            raise error
        return ""

    def note(name: str) -> Callable[[Run], str]:
        def step(run: Run) -> str:
            done.append(name)
            return ""

        return step

    monkeypatch.setitem(registry.ACTS, "swap", swap)
    monkeypatch.setattr(steps, "swap", swap)
    monkeypatch.setattr(steps, "stop", note("stop"))
    run = Run("deploy", cast(Session, FakeSession()), Options(), target=1, origin=0)
    names = ("preflight", "lock", "stage", "guard", "stop", "swap")
    rest = ("start", "wait", "smoke", "confirm")
    for name in set(names) - {"swap"}:
        monkeypatch.setitem(registry.ACTS, name, note(name))
    playbook = Playbook(
        version=1,
        name="deploy",
        summary="deploys",
        steps=tuple(map(use, (*names, *rest))),
        on_failure=(use("restore"),),
    )
    report = engine.execute(run, playbook)
    assert done[len(names) - 1 :] == ["swap 1", "stop", "swap 0"]
    assert (report.exit_code, report.reasons[0].code) == (exit_code, code)
