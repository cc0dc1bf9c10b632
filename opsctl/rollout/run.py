"""One rollout under way: what its steps know, and how one of them ends it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from opsctl.baseline import Baseline
from opsctl.gate.figures import Soaked
from opsctl.gate.model import GateCheck, Outcome
from opsctl.gate.policy import Policy
from opsctl.journal import Diagnosis
from opsctl.playbook import Playbook, Use
from opsctl.playbook.spec import Arguments, SmokeArguments, WaitArguments
from opsctl.readiness import Ready
from opsctl.rollout.diagnosing import patched_by
from opsctl.rollout.examining import Wanted
from opsctl.rollout.plan import Plan
from opsctl.rollout.session import Session
from opsctl.rollout.unitplan import UnitInstall
from opsctl.smoke import LEVELS, Exam, Level, SmokeResult
from opsctl.transport import Subscription
from opsctl.units.properties import Unit

# The code of a rollout that its operator ended.
INTERRUPTED = "interrupted"


@dataclass(slots=True)
class Trial:
    """What a gate asks of a new version, and what came of it: filled in by the steps."""

    policy: Policy
    wanted: Wanted
    exam: Exam | None = None  # of the smoke test: None before it, and at the quick level
    baseline: Baseline | None = None
    before: Soaked | None = None  # the same load on the version before
    after: Soaked | None = None
    points_before: list[DecodePoint] = field(default_factory=list)
    points: list[DecodePoint] = field(default_factory=list)
    checks: list[GateCheck] = field(default_factory=list)  # of the policy's rules

    def of(self, outcome: Outcome) -> list[GateCheck]:
        return [check for check in self.checks if check.outcome == outcome]


@dataclass(frozen=True, slots=True)
class DecodePoint:
    """A decode line's figures, `at` seconds after the gate's first request."""

    at: float
    running: int
    accept_len: float | None
    throughput: float | None


class StepFailed(Exception):
    """A step ended the rollout after the host was touched. `code` is stable, for scripts."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        remedy: str = "",
        evidence: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy
        self.evidence = dict(evidence or {})


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller chose. `budget` and `stall` are seconds, None for the inventory's."""

    budget: float | None = None
    stall: float | None = None
    why: str = ""
    on_inconclusive: Literal["keep", "restore"] = "keep"
    generation: int | None = None  # rollback's target, None for the recorded predecessor
    wanted: Wanted = field(default_factory=Wanted)  # of the smoke test
    plain: bool = False  # restart without speculative decoding
    lock_wait: float = 0.0  # seconds to wait for somebody else's rollout to end


@dataclass(frozen=True, slots=True)
class Told:
    """How a step of a playbook went: done, skipped or failed."""

    name: str
    step: str
    outcome: Literal["done", "skipped", "failed", "would"]
    message: str


@dataclass(slots=True)
class Run:
    """Filled in by the steps as they go. `command` is what this does to the host, whatever its
    playbook is called: a deploy stages files, a rollback puts recorded ones in place, a restart
    changes none; a gate only looks."""

    command: str
    session: Session
    options: Options
    plan: Plan | None = None
    unit_install: UnitInstall | None = None  # in place of a plan: the unit's files alone
    facts: Mapping[str, Any] = field(default_factory=dict)
    unit_before: Unit | None = None
    origin: int | None = None  # the generation on disk before, to which a failure returns
    target: int | None = None  # the generation to put in place
    target_status: str = ""  # how that one ended when it was last in place, for a rollback
    # Generations that no allowed signer vouched for, where the inventory names such.
    unsigned: frozenset[int] = frozenset()
    guarded: bool = False  # the guard on the host is armed
    guard_report: Mapping[str, Any] | None = None  # what it did while this side was away
    touched: bool = False  # from here on the host is not as it was
    swapped: bool = False
    undoing: str = ""  # why the way back is under way, empty while it is not
    watch: Subscription | None = None
    previous_invocation: str = ""
    started: float = 0.0  # monotonic, seconds
    ready: Ready | None = None
    smoke: SmokeResult | None = None
    diagnosis: Diagnosis | None = None
    strict: bool = True
    trial: Trial | None = None  # of a gate
    book: Playbook | None = None  # which is being run
    arguments: Arguments = field(default_factory=Arguments)  # of the step that is being run
    told: list[Told] = field(default_factory=list)
    # Asked before each step that changes something; raises where the answer is no.
    ask: Callable[[Use], None] = lambda _: None
    began: Callable[[str], None] = lambda _: None  # told of each step before it runs
    started_plain: bool = False
    orphans: list[Mapping[str, Any]] = field(default_factory=list)
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def was_active(self) -> bool:
        """Whether the service ran before."""
        return self.unit_before is not None and self.unit_before.active

    @property
    def was_up(self) -> bool:
        """Whether systemd ran the service before, or went on starting it: then it is not to be
        left stopped."""
        return self.unit_before is not None and not self.unit_before.down

    @property
    def patched(self) -> Collection[str]:
        """The files of the patch set that a start runs with, where this run knows them."""
        if self.plan is not None:
            return list(self.plan.target["files"])
        return patched_by(self.facts) if self.target is None else ()

    @property
    def unproved(self) -> tuple[str, ...]:
        """What keeps it from being proved, failures apart; empty if it is."""
        if self.smoke is None:
            asked = any(use.step in {"examine", "smoke"} for use in self._uses())
            looked = self.book is not None and not asked and not self.touched
            return () if looked else ("no smoke test was made",)
        open_ended = self.smoke.reasons if self.smoke.verdict == "inconclusive" else ()
        judged = self.trial.of("inconclusive") if self.trial else ()
        return (*open_ended, *(f"{check.name}: {check.reason}" for check in judged))

    @property
    def done(self) -> frozenset[str]:
        """The steps that have run."""
        return frozenset(each.step for each in self.told if each.outcome == "done")

    @property
    def budget(self) -> float:
        """Seconds that a load may take."""
        return self._asked("budget") or self.session.service.load.budget

    @property
    def stall(self) -> float:
        return self._asked("stall") or self.session.service.load.stall

    def _asked(self, what: Literal["budget", "stall"]) -> float | None:
        """By the caller or else, at the longest, by the playbook. On the way back the old version
        is held to what it always was."""
        if self.undoing:
            return None
        waits = [use.arguments for use in self._uses() if isinstance(use.arguments, WaitArguments)]
        found = [value for each in waits if (value := getattr(each, what)) is not None]
        chosen: float | None = getattr(self.options, what)
        return chosen or max(found, default=None)

    @property
    def level(self) -> Level:
        """The furthest level that a smoke test of this may have."""
        return furthest(
            self.options.wanted.level,
            *(
                use.arguments.level
                for use in self._uses()
                if isinstance(use.arguments, SmokeArguments)
            ),
        )

    def _uses(self) -> tuple[Use, ...]:
        return self.book.steps if self.book is not None else ()

    def open_watch(self, ignore: str) -> Subscription:
        """Follow the unit from before its next change, so that nothing falls in a gap."""
        self.close_watch()
        self.watch = self.stack.enter_context(self.session.watch(ignore))
        return self.watch

    def close_watch(self) -> None:
        self.watch = None
        self.stack.close()
        self.stack = contextlib.ExitStack()


def furthest(*levels: Level | None) -> Level:
    """Of the levels that were asked for; `quick` where none was."""
    return max((level for level in levels if level), key=LEVELS.index, default="quick")
