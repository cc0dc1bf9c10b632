"""Whether a condition of a playbook holds now: `opsctl.playbook.spec` says what each means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from opsctl.playbook import CONDITIONS, Use
from opsctl.rollout import choosing, room
from opsctl.rollout.run import Run
from opsctl.rollout.serving import serving_of

# Kinds of incident that come of what a patch set changes: the verify path, its graphs, its imports.
PATCH_BLAMED: Final = frozenset(
    {
        *("python_error_after_patch", "patch_not_active", "import_error", "spec_config_error"),
        *("tensor_size_mismatch", "graph_capture_failure", "graph_divergence", "nan_logits"),
        *("implausible_acceptance", "acceptance_collapse", "zero_acceptance"),
        *("degenerate_output", "illegal_memory_access", "device_side_assert"),
    }
)


def against(run: Run, use: Use) -> str:
    """What keeps this step from running, for a person; empty where nothing does."""
    for name in use.when:
        if not HOLDS[name](run):
            return f"it is not so that {CONDITIONS[name]}"
    for name in use.unless:
        if HOLDS[name](run):
            return CONDITIONS[name]
    return ""


def _serving(run: Run) -> bool:
    return serving_of(run.session, run.session.unit()).verdict == "pass"


def _loading(run: Run) -> bool:
    return serving_of(run.session, run.session.unit()).verdict == "inconclusive"


def _patched(run: Run) -> bool:
    generation = run.session.inspect()["generation"]
    return bool(generation and generation["set"])


def _patch_blamed(run: Run) -> bool:
    found = run.diagnosis
    return found is not None and found.incident and found.kind in PATCH_BLAMED


HOLDS: Final[Mapping[str, Callable[[Run], bool]]] = {
    "unit_down": lambda run: run.session.unit().down,
    "unit_failed": lambda run: run.session.unit().active_state == "failed",
    "serving": _serving,
    "loading": _loading,
    "sound": lambda run: run.smoke is not None and run.smoke.verdict == "pass",
    "broken": lambda run: run.smoke is None or run.smoke.verdict == "fail",
    "wrong": lambda run: run.smoke is not None and run.smoke.verdict == "fail",
    "ready": lambda run: run.ready is not None,
    "orphans": lambda run: bool(run.orphans),
    "patched": _patched,
    "can_return": choosing.can_return,
    "chosen": lambda run: run.target is not None,
    "patch_blamed": _patch_blamed,
    "room": room.enough,
}
