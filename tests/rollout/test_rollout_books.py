"""Playbooks run: conditions, questions, a beginning in the middle, a rehearsal; scripted steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import platformdirs
import pytest
from rollout_tools import SERVICE, facts

from opsctl.errors import Refused, UsageError
from opsctl.events import Event
from opsctl.playbook import Playbook, Shelf, Use
from opsctl.report import Report
from opsctl.rollout import books, conditions, guarding, progress, registry
from opsctl.rollout.run import Options, Run, StepFailed
from opsctl.rollout.session import Session
from opsctl.units.properties import Unit


class FakeSession:
    host = SimpleNamespace(name="alpha")
    service = SERVICE
    token = "t"

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def call(self, op: str, **params: Any) -> None: ...

    def lock_state(self) -> dict[str, Any]:
        return {"terms": None, "report": None}

    def unit(self) -> Unit:
        return Unit.from_show(facts()["unit"])


class Desk:
    """Every step notes that it ran; those of `faults` raise; those of `holding` hold."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.session = FakeSession()
        self.done: list[str] = []
        self.faults: dict[str, Exception] = {}
        self.holding: set[str] = set()
        for name in registry.ACTS:
            monkeypatch.setitem(registry.ACTS, name, self._step(name))
        for name in conditions.HOLDS:
            monkeypatch.setitem(conditions.HOLDS, name, self._holds(name))

    def _step(self, name: str) -> Callable[[Run], str]:
        def step(run: Run) -> str:
            self.done.append(name)
            if name == "preflight":
                run.unit_before, run.origin = self.session.unit(), 3
            if name in {"stop", "start", "end_orphans"}:
                run.touched = True
            if name in {"smoke", "examine"}:
                result = SimpleNamespace(
                    verdict="pass", reasons=(), accept_len=2.0, verify_steps=9, to_json=dict
                )
                run.smoke = cast(Any, result)
            if name in self.faults:
                raise self.faults.pop(name)
            return f"{name} done"

        return step

    def _holds(self, name: str) -> Callable[[Run], bool]:
        return lambda run: name in self.holding

    def run(self, *steps: Any, on_failure: tuple[str, ...] = (), **how: Any) -> Report:
        found = {"version": 1, "name": "own", "summary": "s", "on_failure": on_failure}
        book = Playbook.model_validate({**found, "steps": steps})
        return books.run(cast(Session, self.session), book, Options(), **how)

    def outcomes(self, report: Report) -> list[tuple[str, str]]:
        return [(told["name"], told["outcome"]) for told in report.data["steps"]]


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Desk:
    monkeypatch.setattr(platformdirs, "user_state_path", lambda _: tmp_path)
    return Desk(monkeypatch)


HEAD = ("preflight", "lock", "guard")
SWAPPED = ("stop", "swap", "start", "wait", "smoke", "confirm")
RESTART = (*HEAD, "stop", "start", "wait", "smoke", "record")


def test_conditions_decide_and_what_is_skipped_is_told(desk: Desk) -> None:
    desk.holding = {"unit_down"}
    report = desk.run(
        *HEAD,
        {"step": "stop", "unless": "unit_down"},
        {"step": "start", "when": ["unit_down"]},
        *("wait", "smoke", {"step": "stacks", "when": ["unit_down", "room"]}, "record"),
    )
    assert desk.done == [*HEAD, "start", "wait", "smoke", "record"]
    assert desk.outcomes(report)[3:] == [
        *(("stop", "skipped"), ("start", "done"), ("wait", "done"), ("smoke", "done")),
        *(("stacks", "skipped"), ("record", "done")),
    ]
    assert report.exit_code == 0
    assert report.summary == "own: serve.service restarted"
    assert (report.command, report.data["playbook"]) == ("playbook run", "own")


def test_it_ends_well_where_it_says_so(desk: Desk) -> None:
    desk.holding = {"sound"}
    report = desk.run("examine", {"step": "finish", "when": "sound"}, *RESTART)
    assert desk.done == ["examine"]
    assert (report.exit_code, report.summary) == (0, "own: serve.service: nothing was changed")
    desk.holding, desk.done = set(), []
    desk.run("examine", {"step": "finish", "when": "sound"}, *RESTART)
    assert desk.done == ["examine", *RESTART]


def test_each_change_is_asked_for_and_no_other_step(desk: Desk) -> None:
    asked: list[str] = []
    report = desk.run(*RESTART, ask=lambda use: asked.append(use.step))
    assert (asked, report.exit_code) == (["guard", "stop", "start"], 0)


@pytest.mark.parametrize(("step", "done"), [("guard", HEAD[:2]), ("stop", HEAD)])
def test_a_no_before_any_change_changes_nothing(
    desk: Desk, step: str, done: tuple[str, ...]
) -> None:
    """The guard is asked for: once it is armed a client that is lost does not end in nothing."""
    with pytest.raises(Refused, match=f"{step} was declined"):
        desk.run(*RESTART, ask=_no_to(step))
    assert desk.done == list(done)


def test_a_no_in_the_middle_says_how_to_go_on(desk: Desk) -> None:
    report = desk.run(*RESTART, ask=_no_to("start"))
    assert desk.done == [*HEAD, "stop"]
    assert report.exit_code == 11
    assert report.reasons[0].code == "declined"
    assert report.reasons[-1].remedy == "opsctl playbook run own alpha --from start"


def _no_to(step: str) -> Callable[[Use], None]:
    def ask(use: Use) -> None:
        if use.step == step:
            raise Refused(f"{step} was declined", code="declined")

    return ask


def test_it_begins_at_a_step_with_what_that_stands_on(desk: Desk) -> None:
    report = desk.run(*RESTART, begin="start")
    assert desk.done == [*HEAD, "start", "wait", "smoke", "record"]
    assert report.exit_code == 0
    with pytest.raises(UsageError, match="no step 'strat'") as caught:
        desk.run(*RESTART, begin="strat")
    assert "opsctl playbook show own" in caught.value.remedy


def _runbook(name: str) -> Playbook:
    return Shelf.beside(None).load(name, runbook=True)


def _choosing(desk: Desk, monkeypatch: pytest.MonkeyPatch, *, blamed: bool) -> None:
    """`choose` settles a generation where the patch set is to blame."""

    def choose(run: Run) -> str:
        run.target = 2
        return "generation 2"

    monkeypatch.setitem(registry.ACTS, "choose", choose)
    monkeypatch.setitem(conditions.HOLDS, "chosen", lambda run: run.target is not None)
    desk.holding = {"broken", "patched", "can_return", *(["patch_blamed"] if blamed else [])}


@pytest.mark.parametrize("dry", [False, True])
def test_it_begins_behind_a_swap_only_where_none_is_wanted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, dry: bool
) -> None:
    def begin(step: str) -> Report:
        book = _runbook("crash-loop")
        return books.run(cast(Session, desk.session), book, Options(), begin=step, dry=dry)

    _choosing(desk, monkeypatch, blamed=False)
    assert begin("start").exit_code == 0
    desk.done = []
    _choosing(desk, monkeypatch, blamed=True)
    with pytest.raises(
        Refused, match=r"confirm needs swap, .* a generation to return to"
    ) as caught:
        begin("start")
    assert (caught.value.code, desk.done) == ("cannot_begin", ["diagnose", "orphans"])
    assert caught.value.remedy == "opsctl runbook run crash-loop alpha --from stop"
    assert begin("stop").exit_code == 0


def test_a_refused_beginning_names_one_that_is_let(desk: Desk) -> None:
    with pytest.raises(UsageError, match="record needs wait") as caught:
        desk.run(*RESTART, begin="record")
    assert caught.value.remedy == "opsctl playbook run own alpha --from wait"
    assert desk.run(*RESTART, begin="wait").exit_code == 0


@pytest.mark.parametrize(
    ("step", "code", "way_on"),
    [
        ("wait", "unit_failed", "--from stop"),
        ("wait", "interrupted", "--from wait"),
        ("wait", "budget_exceeded", "--from wait --budget 1800s"),
        ("smoke", "smoke_failed", "--from stop"),
        ("smoke", "interrupted", "--from wait"),
        ("end_orphans", "orphans_remain", "--from end_orphans"),
    ],
)
def test_the_way_on_has_something_to_do(desk: Desk, step: str, code: str, way_on: str) -> None:
    """A start that died is not waited for again; one that loads still is not made anew."""
    desk.holding = {"broken", "orphans"}
    desk.faults = {step: StepFailed(code, "no good"), "stacks": StepFailed("odd", "not seen")}
    if code == "interrupted":
        desk.faults = {step: cast(Exception, KeyboardInterrupt())}
    steps = [use.model_dump(by_alias=True) for use in _runbook("hung").steps]
    del steps[4]  # its look at the stacks, which is to fail afterwards alone
    report = desk.run(*steps, on_failure=("stacks", "diagnose"))
    assert report.reasons[-1].remedy == f"opsctl playbook run own alpha {way_on}"


@pytest.mark.parametrize("blamed", [False, True])
@pytest.mark.parametrize("name", sorted(Shelf.beside(None).runbooks()))
def test_every_way_on_is_let(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, name: str, blamed: bool
) -> None:
    book = _runbook(name)
    for use in book.steps:
        _choosing(desk, monkeypatch, blamed=blamed)
        desk.holding |= {"orphans", "wrong", "loading"}
        for fault in (StepFailed("boom", "it died"), Refused("no"), KeyboardInterrupt()):
            desk.faults = {use.step: cast(Exception, fault)}
            try:
                report = books.run(cast(Session, desk.session), book, Options())
                reasons = [reason for reason in report.reasons if reason.code == "way_on"]
                way_on = reasons[0].remedy if reasons else ""
            except Refused as refused:
                way_on = refused.remedy
            except KeyboardInterrupt:
                way_on = ""
            desk.faults = {}
            if way_on:
                begin = way_on.partition("--from ")[2].split()[0]
                after = books.run(cast(Session, desk.session), book, Options(), begin=begin)
                assert after.exit_code == 0, (use.name, way_on)


def test_what_the_guard_ends_is_not_gone_on_with(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def guard(run: Run) -> str:
        run.guarded = True
        return ""

    monkeypatch.setitem(registry.ACTS, "guard", guard)
    report = desk.run(*RESTART, ask=_no_to("start"))
    assert report.exit_code == 11
    assert [reason.code for reason in report.reasons] == ["declined"]


def test_what_on_failure_lists_is_done_in_order(desk: Desk) -> None:
    desk.faults = {
        "wait": StepFailed("boom", "it died"),
        "stacks": StepFailed("odd", "it cannot be seen"),
    }
    report = desk.run(*RESTART, on_failure=("stacks", "diagnose"))
    assert desk.done == [*HEAD, "stop", "start", "wait", "stacks", "diagnose"]
    assert (report.exit_code, report.reasons[0].code) == (11, "boom")


def test_where_it_was_begun_and_ended_badly_is_known_here(desk: Desk) -> None:
    session = cast(Session, desk.session)
    book = Playbook.model_validate(
        {"version": 1, "name": "own", "summary": "s", "steps": RESTART, "on_failure": ["diagnose"]}
    )
    desk.faults = {"wait": StepFailed("boom", "it died")}
    desk.run(*RESTART, on_failure=("diagnose",))
    assert books.resumed(session, book) == "wait"
    assert "own ended at wait" in desk.session.events[-1].message
    desk.run(*RESTART)
    with pytest.raises(UsageError, match="ended well"):
        books.resumed(session, book)


@pytest.mark.parametrize(
    ("age", "guard", "said"),
    [(0.0, {"at": 2e10}, "the guard on the host has ended it"), (2e5, None, "too long ago")],
)
def test_what_another_has_ended_since_is_not_gone_on_with(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, age: float, guard: Any, said: str
) -> None:
    entry = progress.Entry("own", "stop", time.time() - age)
    monkeypatch.setattr(progress, "read", lambda *_: entry)
    desk.session.lock_state = lambda: {"report": guard}  # type: ignore[method-assign]
    book = Playbook.model_validate({"version": 1, "name": "own", "summary": "s", "steps": RESTART})
    with pytest.raises(UsageError, match=said):
        books.resumed(cast(Session, desk.session), book)


def test_a_rehearsal_looks_and_changes_nothing(desk: Desk) -> None:
    desk.holding = {"orphans"}
    report = desk.run(
        *("diagnose", "orphans", "preflight", "lock"),
        {"step": "end_orphans", "when": "orphans"},
        *("guard", {"step": "stop", "unless": "unit_down"}, "start", "wait", "smoke", "record"),
        dry=True,
    )
    assert desk.done == ["diagnose", "orphans", "preflight"]
    assert desk.outcomes(report)[3:] == [
        (name, "would")
        for name in ("lock", "end_orphans", "guard", "stop", "start", "wait", "smoke", "record")
    ]
    (stop,) = (told for told in report.data["steps"] if told["name"] == "stop")
    assert stop["message"].endswith("unless the unit does not run")
    assert (report.exit_code, report.verdict) == (0, "pass")


def test_a_rehearsal_ends_where_a_look_fails(desk: Desk) -> None:
    desk.faults = {"preflight": Refused("the disk is full")}
    report = desk.run(*RESTART, dry=True)
    assert desk.done == ["preflight"]
    assert (report.exit_code, report.summary) == (
        3,
        "own: it would end at preflight: the disk is full",
    )


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ((*HEAD, "stage", *SWAPPED), "deploy"),
        (("choose", *HEAD, *SWAPPED), "rollback"),
        (RESTART, "restart"),
        (("preflight", "smoke"), "gate"),
    ],
)
def test_what_it_is_to_the_host(steps: tuple[str, ...], kind: str) -> None:
    found = {"version": 1, "name": "own", "summary": "s", "steps": steps}
    found |= {"on_failure": ["restore"]} if "guard" in steps else {}
    assert books.kind_of(Playbook.model_validate(found)) == kind


def test_a_way_back_has_its_conditions_too(desk: Desk) -> None:
    """Where nothing was put in place, to return is another load for nothing."""
    desk.faults = {"wait": StepFailed("boom", "it died")}
    found = {"version": 1, "name": "own", "summary": "s", "steps": RESTART}
    book = Playbook.model_validate(
        {**found, "on_failure": [{"step": "restore", "when": "chosen"}, "diagnose"]}
    )
    report = books.run(cast(Session, desk.session), book, Options())
    assert desk.done == [*HEAD, "stop", "start", "wait", "diagnose"]
    assert (report.exit_code, report.data["restored"]) == (11, None)


def test_a_service_that_ran_and_is_left_stopped_is_the_guards(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would start it if this side were lost; an end in the middle must not be worse."""
    armed: list[bool] = []
    monkeypatch.setattr(guarding, "disarm", lambda run, well=True: armed.append(False))

    def guard(run: Run) -> str:
        run.guarded = True
        return ""

    monkeypatch.setitem(registry.ACTS, "guard", guard)
    report = desk.run(*RESTART, ask=_no_to("start"))
    assert (report.exit_code, armed) == (11, [])
    assert "The guard on the host goes on" in report.reasons[0].remedy
    stop = registry.ACTS["stop"]

    def interrupted(run: Run) -> str:
        stop(run)
        raise KeyboardInterrupt

    monkeypatch.setitem(registry.ACTS, "stop", interrupted)
    desk.run(*RESTART)
    assert armed == []
    monkeypatch.setitem(registry.ACTS, "stop", stop)
    desk.faults = {"wait": StepFailed("boom", "it died")}
    desk.run(*RESTART)
    assert armed == [False], "a start that was made is left as it is"
