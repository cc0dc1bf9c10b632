"""Every step that a playbook may name, and every condition; what they do is `opsctl.rollout`'s."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from opsctl.inventory.models import Duration
from opsctl.smoke import Level

# reads: changes nothing, so a dry run does it too. keeps: writes opsctl's own records on the host.
# changes: what the service is, or whether it serves; a runbook asks before each.
Effect = Literal["reads", "keeps", "changes"]

# Of opsctl doctor's checks those that a playbook may put right itself, or go without.
Excusable = Literal[
    "port", "leftovers", "disk_state", "disk_package", "space_state", "space_package",
    "state", "record", "arguments", "patch_set", "stop_timeout", "start_timeout",
]  # fmt: skip


class Arguments(BaseModel):
    """What a step takes under `with`: nothing, unless its spec names another class."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PreflightArguments(Arguments):
    despite: Annotated[
        tuple[Excusable, ...],
        Field(description="checks of opsctl doctor that need not hold"),
    ] = ()


class WaitArguments(Arguments):
    budget: Annotated[Duration | None, Field(description="how long the load may take")] = None
    stall: Annotated[Duration | None, Field(description="how long it may not move on")] = None


class StartArguments(Arguments):
    plain: Annotated[bool, Field(description="without speculative decoding")] = False


class SmokeArguments(Arguments):
    level: Annotated[Level | None, Field(description="as opsctl smoke has it")] = None


class ChooseArguments(Arguments):
    to: Annotated[
        Literal["previous", "served"],
        Field(description="the recorded predecessor, or the last other one that was confirmed"),
    ] = "previous"


class DrainArguments(Arguments):
    timeout: Annotated[Duration, Field(description="go on after that, idle or not")] = 120.0


class RoomArguments(Arguments):
    journal: Annotated[
        str, Field(pattern=r"^[1-9][0-9]*[MG]$", description="bytes of the journal that stay")
    ] = "500M"
    keep: Annotated[
        int, Field(ge=2, le=20, description="generations that stay, beside those in use")
    ] = 5


@dataclass(frozen=True, slots=True)
class StepSpec:
    """`needs` are the steps that must have run before it: of each group one. `always`: also where
    `--from` begins behind it, since later steps stand on what it finds or holds. `asks`: a runbook
    asks before it."""

    does: str
    effect: Effect
    needs: tuple[frozenset[str], ...] = ()
    always: bool = False
    takes: type[Arguments] = Arguments

    @property
    def asks(self) -> bool:
        """The guard as well: once it is armed a client that is lost no longer ends in nothing."""
        return self.effect == "changes" or self is SPECS["guard"]

    def unmet(self, done: Collection[str]) -> frozenset[str] | None:
        """The first group of `needs` of which nothing is in `done`."""
        return next((group for group in self.needs if group.isdisjoint(done)), None)


def _needs(*groups: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(group.split("|")) for group in groups)


SPECS: Final[Mapping[str, StepSpec]] = {
    # What is looked at.
    "preflight": StepSpec(
        "looks at everything that would make the rest fail, and refuses then",
        "reads",
        always=True,
        takes=PreflightArguments,
    ),
    "diagnose": StepSpec(
        "says what the journal tells of the present or last start", "reads", always=True
    ),
    "examine": StepSpec(
        "sends smoke requests and goes on whatever comes of them; later steps may ask whether it "
        "is sound",
        "reads",
        takes=SmokeArguments,
    ),
    "follow": StepSpec(
        "follows the present load and goes on whatever becomes of it",
        "reads",
        takes=WaitArguments,
    ),
    "weights": StepSpec("looks whether the model's files are there and complete", "reads"),
    "orphans": StepSpec("finds processes of the service outside its unit", "reads", always=True),
    "stacks": StepSpec("records where each process of the unit hangs", "reads"),
    "space": StepSpec("says which file systems are full, and of what", "reads"),
    "choose": StepSpec(
        "names the generation to return to", "reads", always=True, takes=ChooseArguments
    ),
    "drain": StepSpec(
        "waits until no request is running or queued, without refusing new ones",
        "reads",
        takes=DrainArguments,
    ),
    # What is written down, and held.
    "lock": StepSpec(
        "takes the service's lock on the host", "keeps", _needs("preflight"), always=True
    ),
    "guard": StepSpec(
        "arms the guard: from here on the host carries this to an end, should this side be lost",
        "keeps",
        _needs("lock"),
        always=True,
    ),
    "stage": StepSpec(
        "stores the new files by hash, compiles them, records a generation",
        "keeps",
        _needs("lock"),
    ),
    "confirm": StepSpec(
        "records that the generation holds, and calls the guard off",
        "keeps",
        _needs("swap", "wait", "smoke"),
    ),
    "record": StepSpec(
        "records how long the load took, and calls the guard off", "keeps", _needs("wait", "smoke")
    ),
    # What changes the service.
    "stop": StepSpec("stops the unit and sees it down", "changes", _needs("guard")),
    "swap": StepSpec(
        "puts the generation's files and unit in place",
        "changes",
        _needs("stop", "stage|choose"),
    ),
    "start": StepSpec("starts the unit", "changes", _needs("guard"), takes=StartArguments),
    "end_orphans": StepSpec(
        "ends the processes that were found outside the unit",
        "changes",
        _needs("lock", "orphans"),
    ),
    "make_room": StepSpec(
        "removes old generations' files and old journal files, and nothing else",
        "changes",
        _needs("lock"),
        takes=RoomArguments,
    ),
    # What is proved.
    "wait": StepSpec(
        "follows the start until it is ready, under the load's budget",
        "reads",
        takes=WaitArguments,
    ),
    "smoke": StepSpec(
        "sends requests through the verify path and judges what comes back",
        "reads",
        takes=SmokeArguments,
    ),
    "control": StepSpec(
        "measures the version before under the policy's load", "reads", _needs("preflight")
    ),
    "soak": StepSpec("puts the policy's load on the new version", "reads", _needs("smoke")),
    "judge": StepSpec("holds all that was measured against the policy", "reads", _needs("soak")),
    # How a playbook ends.
    "finish": StepSpec("ends the playbook here, well", "reads"),
    "restore": StepSpec(
        "puts back the generation that was there and proves that it serves",
        "changes",
        _needs("guard"),
    ),
}

# Steps that only a list of `on_failure` may have, and the one that it may not have.
ON_FAILURE_ONLY: Final = frozenset({"restore"})
# What proves a start, and so counts for nothing before the last of what ends or makes one.
PROOFS: Final = frozenset({"wait", "smoke"})
STARTS: Final = frozenset({"stop", "swap", "start"})

CONDITIONS: Final[Mapping[str, str]] = {
    "unit_down": "the unit does not run",
    "unit_failed": "systemd gave the unit up",
    "serving": "the present start is loaded and answers",
    "loading": "the unit runs, and its start is not ready yet",
    "sound": "the last examine or smoke of this playbook passed",
    "broken": "the last examine of this playbook failed, or found no server to ask",
    "wrong": "the last examine or smoke of this playbook failed: proved wrong, not merely unproved",
    "ready": "the wait or follow of this playbook saw the server ready",
    "orphans": "processes of the service were found outside its unit",
    "patched": "a patch set of opsctl's is in place",
    "can_return": "there is an earlier generation that served",
    "chosen": "this playbook has named a generation to return to",
    "patch_blamed": "the incident that diagnose found points at the patch set",
    "room": "no file system that the service needs is full",
}

# Conditions that hold only where a step has run.
IMPLIED: Final[Mapping[str, str]] = {"chosen": "choose", "orphans": "orphans"}
