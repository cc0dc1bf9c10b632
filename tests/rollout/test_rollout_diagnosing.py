"""diagnose of a host: which journal it reads, and what the host adds to it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from rollout_tools import SERVICE, facts

from opsctl.journal import Entry, Gap
from opsctl.rollout.diagnosing import of_host, of_start
from opsctl.rollout.serving import last_incident
from opsctl.rollout.session import Session, StartJournal
from opsctl.units.properties import Unit

CRASH = (
    "[2026-01-01 00:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "/v/site-packages/sglang/srt/speculative/dflash_worker.py", line 1, in verify\n'
    "ZeroDivisionError: division by zero"
)
BEGIN = "[2026-01-01 00:00:00 TP0] Init torch distributed begin."
NOW = 1_800_000_000.0  # by the host's clock
FILES = {"srt/speculative/dflash_worker.py": {"sha256": "h"}}


class FakeSession:
    host = SimpleNamespace(name="alpha")
    service = SERVICE

    def __init__(self, message: str, age: float, changes: dict[str, Any]) -> None:
        self.facts = facts(changes)
        self.facts["unit"]["time"] = NOW
        self.entries = [Entry(realtime=NOW - age, message=message)]
        self.asked: list[str] = []
        self.before: list[Entry] = []
        self.gaps: tuple[Gap, ...] = ()

    def inspect(self) -> dict[str, Any]:
        return self.facts

    def read(self, invocation: str, lines: int = 0) -> StartJournal:
        self.asked.append(invocation)
        entries = self.before if invocation == "before" else self.entries
        if not invocation:  # of all starts, and of those before the last `lines` those that tell
            every = [*self.before, *self.entries]
            entries = [each for each in every[:-lines] if "error" in each.message.lower()]
            entries += every[-lines:]
        return StartJournal(entries, invocation, self.gaps)


def session(message: str, age: float = 0.0, **changes: Any) -> FakeSession:
    named = {key.replace("__", "."): value for key, value in changes.items()}
    return FakeSession(message, age, {"generation": None, **named})


def test_the_present_start_alone() -> None:
    fake = session(CRASH)
    report = of_host(cast(Session, fake))
    assert fake.asked == [Unit.from_show(fake.facts["unit"]).invocation_id]
    assert (report.host, report.service) == ("alpha", SERVICE.name)
    assert (report.verdict, report.exit_code, report.kind) == ("fail", 11, "python_error")


@pytest.mark.parametrize(
    ("patch_set", "action"), [({"name": "ddtree"}, "rollback_patch"), (None, "investigate")]
)
def test_the_files_of_a_patch_set_are_known(patch_set: Any, action: str) -> None:
    generation = {"number": 1, "set": patch_set, "files": FILES}
    report = of_host(cast(Session, session(CRASH, generation=generation)))
    assert report.action == action


@pytest.mark.parametrize(("age", "kind"), [(10.0, "load_progress"), (300.0, "nccl_hang")])
def test_silence_counts_up_to_the_hosts_now(age: float, kind: str) -> None:
    assert of_host(cast(Session, session(BEGIN, age))).kind == kind


def test_what_the_host_has_lost_is_said() -> None:
    fake = session("[2026-01-01 00:00:00] The server is fired up and ready to roll!")
    assert of_host(cast(Session, fake)).kind == "ready"
    fake.gaps = (Gap("suppressed", 0, "7 lines were dropped by journald's rate limit", 7),)
    report = of_host(cast(Session, fake))
    assert (report.verdict, report.kind) == ("pass", "journal_gap")
    assert report.data["gaps"][0]["count"] == 7
    assert "LogRateLimitIntervalSec" in report.data["gaps"][0]["remedy"]


def test_a_start_that_is_over_is_not_waited_for() -> None:
    """Its journal ends where it does, whatever the unit does now."""
    fake = session("[2026-01-01 00:00:00] Load weight begin. avail mem=1.0 GB", 3600.0)
    unit = Unit.from_show(fake.facts["unit"])
    present, over = (StartJournal(fake.entries, each) for each in (unit.invocation_id, "before"))
    assert of_start(present, unit).kind == "startup_timeout"
    assert of_start(over, unit).kind == "load_progress"


@pytest.mark.parametrize(
    ("message", "restarts", "kind"),
    [
        (BEGIN, 1, "python_error"),
        (BEGIN, 0, "load_progress"),
        ("[2026-01-01 00:00:09] The server is fired up and ready to roll!", 1, "ready"),
    ],
    ids=["loading again", "started by hand", "up again"],
)
def test_what_systemd_started_again_crashed_before(message: str, restarts: int, kind: str) -> None:
    fake = session(message)
    fake.facts["unit"]["NRestarts"] = str(restarts)
    fake.before = [Entry(realtime=NOW - 60, message=CRASH, invocation="before")]
    report = of_host(cast(Session, fake))
    assert report.kind == kind
    assert (report.data["invocation"] == "before") is report.incident


def test_the_last_incident_is_read_whole_once_it_is_found() -> None:
    """Of the lines long before only those come that tell: not the frames of a traceback."""
    fake = session("served")
    told = [line.split("] ")[-1] for line in CRASH.split("\n")]
    crash = [Entry(realtime=NOW - 60, message=line, invocation="before") for line in told]
    fake.before = [*crash, Entry(realtime=NOW - 50, message="it ends", invocation="before")]
    fake.entries *= 600
    found = last_incident(cast(Session, fake))
    assert found is not None
    assert (found.invocation, found.diagnosis.kind) == ("before", "python_error")
    assert found.diagnosis.decisive == (2,)
    assert fake.asked == ["", "before"]
    fake.before = fake.before[-1:]
    assert last_incident(cast(Session, fake)) is None
