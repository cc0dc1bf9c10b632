"""Notices of every kind, as a rollout of a patch set makes them."""

from __future__ import annotations

from dataclasses import replace

from opsctl.notices import Notice, Side

_BEFORE, _AFTER = Side(3, "ddtree 1.0.0"), Side(4, "ddtree 1.1.0")

# What all of them have.
_DEPLOY = Notice(
    event="start",
    command="deploy",
    host="ct200",
    service="sglang-k26-ddtree",
    at=1764470400.0,
    who="ann@laptop",
    why="tree verification",
    origin=_BEFORE,
    goal=_AFTER,
    next="opsctl wait ct200",
)

SAMPLES: dict[str, Notice] = {
    "start": _DEPLOY,
    "success": replace(
        _DEPLOY,
        event="success",
        generation=4,
        verdict="pass",
        exit_code=0,
        duration_s=723.4,
        summary="deployed ddtree 1.1.0 as generation 4 (rollback: opsctl rollback ct200)",
        next="opsctl status ct200",
    ),
    "rollback": replace(
        _DEPLOY,
        event="rollback",
        generation=3,
        verdict="fail",
        exit_code=10,
        duration_s=1401.0,
        summary="accept length 1.02 < 2.00; rolled back, the old version serves",
        code="smoke_failed",
        cause="accept length 1.02 < 2.00; rolled back, the old version serves",
        remedy="the host needs nothing; for the cause: opsctl diagnose ct200 says what the journal "
        "knows",
        next="opsctl diagnose ct200",
    ),
    "failure": replace(
        _DEPLOY,
        event="failure",
        why="",
        origin=Side(0),
        goal=Side(1, "ddtree <1.1.0> & `more`"),
        generation=1,
        verdict="fail",
        exit_code=11,
        duration_s=59.0,
        summary="the unit failed; NOT restored, look at the host now",
        code="unit_failed",
        cause="the unit failed:\n  Traceback\x1b[31m <module>; NOT restored, look at the host now",
        next="opsctl status ct200 --service sglang-k26-ddtree",
    ),
    "test": Notice(
        event="test",
        command="notices test",
        host="ct200",
        service="sglang-k26-ddtree",
        at=1764470400.0,
        who="ann@laptop",
        summary="Nothing has happened.",
        next="opsctl status ct200",
    ),
}
