"""From facts to causes, in the order in which they explain each other.

A rule is a function of the facts that gives one cause or None. What stands first explains what
follows: a rollout under way explains a unit that is down, a full disk a crash, a reboot a missing
mount. Machine first, then what a start said of itself, then its state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from opsctl.triage import machine_rules as machine
from opsctl.triage import service_rules as service
from opsctl.triage.causes import Cause
from opsctl.triage.facts import Facts

Rule = Callable[[Facts], Cause | None]

RULES: Final[tuple[Rule, ...]] = (
    service.change_under_way,
    service.lost_rollout,
    service.no_unit,
    machine.gpu_hardware,
    machine.disk_full,
    machine.out_of_memory,
    machine.storage_broken,
    machine.rebooted,
    machine.weights_missing,
    service.bad_patch_set,
    machine.orphans,
    service.crashed,
    service.looping,
    service.hung,
    service.loading,
    service.stopped,
    service.low_acceptance,
    service.state_damaged,
    service.changed_by_hand,
    service.restart_due,
    service.had_crashed,
    machine.tight,
    service.unknown,
)
