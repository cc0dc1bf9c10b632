"""The wait, by scripted starts kept as data, and what holds for any script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from opsctl.journal import Entry
from opsctl.readiness import Readiness
from opsctl.units.properties import Unit

CASES: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "data" / "starts.yaml").read_text(encoding="utf-8")
)
STARTED = 1000.0  # monotonic
CLOCK = 1_700_000_000.0  # the host's, at the start
READY = "The server is fired up and ready to roll!"


def unit(text: str, **differs: Any) -> Unit:
    state, _, invocation = text.partition(" ")
    active, _, sub = state.partition("/")
    return Unit.from_show(
        {
            "Id": "serve.service",
            "LoadState": "loaded",
            "ActiveState": active,
            "SubState": sub,
            "InvocationID": invocation,
            "NRestarts": str(differs.get("restarts", 0)),
            "Result": differs.get("result", "success"),
            "ExecMainStatus": str(differs.get("status", 0)),
            "read_bytes": differs.get("read", 0),
        }
    )


def play(machine: Readiness, step: dict[str, Any]) -> None:
    now = STARTED + step["at"]
    if "unit" in step:
        machine.see_unit(unit(step["unit"], **step), now)
    for kind in ("line", "manager"):
        if kind in step:
            entry = Entry(
                realtime=CLOCK + step["at"] - 0.2,
                message=step[kind],
                invocation=step.get("of", "new"),
                from_manager=kind == "manager",
            )
            machine.see_entries([entry], now, CLOCK + step["at"])
    machine.tick(now)


def outcome(machine: Readiness) -> str:
    if machine.failed is not None:
        return machine.failed.cause
    return "announced" if machine.announced is not None else "waiting"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_start(case: dict[str, Any]) -> None:
    machine = Readiness(
        previous_invocation=case.get("previous", "old"),
        budget=case.get("budget", 900),
        stall=case.get("stall", 300),
        restarts_before=case.get("restarts_before", 0),
        started=STARTED,
    )
    when = None
    for step in case["steps"]:
        play(machine, step)
        if when is None and outcome(machine) == case["end"]:
            when = step["at"]
    assert outcome(machine) == case["end"]
    if case["end"] != "waiting":
        assert when == case["when"]
    if machine.failed is not None:
        assert case.get("said", "") in machine.failed.message
    if "entries" in case:
        assert len(machine.entries) == case["entries"]
    if "label" in case:
        assert machine.progress.label == case["label"]
    if outcome(machine) == "announced":
        assert machine.invocation == "new"
        assert machine.announced_at == STARTED + case["when"]
        assert machine.announced_delay == pytest.approx(0.2, abs=0.01)


def test_every_cause_has_a_script() -> None:
    from typing import get_args

    from opsctl.readiness.machine import Cause

    assert {case["end"] for case in CASES} - {"announced", "waiting"} == set(get_args(Cause))


def test_the_estimate_comes_from_earlier_loads() -> None:
    machine = Readiness("old", 900, 300, STARTED)
    assert machine.remaining(STARTED + 10) is None
    machine.history = [600.0, 640.0, 700.0]
    assert machine.remaining(STARTED + 10) == 630.0
    assert machine.remaining(STARTED + 700) == 0.0


_STEPS = st.lists(
    st.one_of(
        st.builds(
            lambda state, invocation, restarts, read: {
                "unit": f"{state} {invocation}",
                "restarts": restarts,
                "read": read,
            },
            st.sampled_from(
                ["active/running", "activating/start", "inactive/dead", "failed/failed"]
            ),
            st.sampled_from(["old", "new", "newer", ""]),
            st.integers(0, 1),
            st.integers(0, 10**9),
        ),
        st.builds(
            lambda line, of: {"line": line, "of": of},
            st.sampled_from([READY, "Load weight begin.", "x"]),
            st.sampled_from(["old", "new", "newer", ""]),
        ),
        st.just({}),
    ),
    max_size=20,
)


@given(steps=_STEPS, gap=st.floats(0.01, 40))
def test_whatever_happens(steps: list[dict[str, Any]], gap: float) -> None:
    """A wait ends by its budget, an outcome stands, and only one new start ever counts."""
    machine = Readiness("old", 60, 30, STARTED)
    ended = None
    for number, step in enumerate(steps):
        play(machine, {"at": number * gap, **step})
        if ended is not None:
            assert machine.failed == ended
        ended = machine.failed
        assert machine.invocation != "old"
        assert {entry.invocation for entry in machine.entries} <= {machine.invocation}
        assert "" not in {entry.invocation for entry in machine.entries}
    machine.tick(STARTED + 61)
    assert machine.failed is not None
