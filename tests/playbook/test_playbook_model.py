"""Playbooks: those of the repository, and each way in which one is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opsctl import yamltext
from opsctl.errors import EXIT_USAGE, UsageError
from opsctl.playbook import CONDITIONS, SPECS, Playbook, Shelf, load, use
from opsctl.playbook.page import text as page_text
from opsctl.playbook.schema import text as schema_text
from opsctl.resources import bundled
from opsctl.rollout.conditions import HOLDS, PATCH_BLAMED
from opsctl.rollout.registry import ACTS
from opsctl.triage.kinds import BY_KIND

OWN = Shelf.beside(None)
ALL = [*OWN.playbooks().values(), *OWN.runbooks().values()]
RUNBOOKS = {
    *("service-down", "crash-loop", "slow-load", "gpu-orphans", "hung", "acceptance-collapsed"),
    *("garbage-output", "out-of-memory", "host-rebooted", "bad-patch-set", "disk-full"),
    "planned-restart",
}
GOOD = """\
version: 1
name: p
summary: Restarts
steps:
  - preflight
  - lock
  - guard
  - step: stop
    unless: unit_down
  - {step: start, with: {plain: true}}
  - {step: wait, with: {budget: 20m}}
  - smoke
  - record
on_failure: [restore]
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "p.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", ALL, ids=lambda p: p.stem)
def test_the_repositorys_own(path: Path) -> None:
    playbook = load(path)
    steps = [each.step for each in playbook.steps]
    first = next((i for i, each in enumerate(playbook.steps) if each.spec.effect == "changes"), 99)
    assert first == 99 or steps.index("lock") < first, "nothing is touched before the lock"
    if "swap" in steps:
        assert steps.index("guard") < steps.index("stop") < steps.index("swap")
    if any(each.spec.effect == "changes" for each in playbook.steps):
        assert "smoke" in steps, "what was changed is proved"


def test_every_runbook_is_there_and_says_what_it_is() -> None:
    assert set(OWN.runbooks()) == RUNBOOKS
    for name in RUNBOOKS:
        found = OWN.load(name, runbook=True).runbook
        assert found is not None
        assert found.when
        assert found.does
        assert found.never


def test_an_incident_leads_where_triage_says() -> None:
    """What a runbook says that it is for, and what `opsctl triage` proposes."""
    own = {
        kind: name
        for name in RUNBOOKS
        for kind in getattr(OWN.load(name, runbook=True).runbook, "incidents", ())
    }
    assert own == {kind: name for kind, name in BY_KIND.items() if name is not None}
    assert BY_KIND.keys() >= PATCH_BLAMED


def test_every_step_and_condition_is_there_to_be_run() -> None:
    assert set(ACTS) == set(SPECS) - {"finish", "restore"}, "those two are the engine's"
    assert set(HOLDS) == set(CONDITIONS)


def test_the_schema_for_editors_is_up_to_date() -> None:
    assert (bundled("playbooks") / "playbook.schema.json").read_text("utf-8") == schema_text()


def test_a_good_one(tmp_path: Path) -> None:
    playbook = load(written(tmp_path, GOOD))
    assert [each.name for each in playbook.steps] == [
        *("preflight", "lock", "guard", "stop", "start", "wait", "smoke", "record"),
    ]
    assert playbook.steps[3].unless == ("unit_down",)
    assert playbook.steps[5].arguments.budget == 1200  # type: ignore[attr-defined]
    assert playbook.restores


@pytest.mark.parametrize(
    ("before", "after", "line", "said"),
    [
        ("  - lock\n", "  - lokc\n", 6, "steps.1: there is no step 'lokc'; did you mean 'lock'?"),
        ("step: stop", "step: stp", 8, "steps.3.step: there is no step 'stp'; did you mean 'stop'"),
        ("unit_down", "unit_dwn", 9, "steps.3.unless: there is no condition 'unit_dwn'; did you"),
        ("plain: true", "plian: true", 10, "steps.4.with.plian: start takes plain, not 'plian'"),
        ("budget: 20m", "budget: soon", 11, "steps.5.with.budget: "),
        ("  - lock\n", "  - {step: lock, with: {a: 1}}\n", 6, "lock takes no arguments"),
        ("  - lock\n", "  - {step: lock, wehn: sound}\n", 6, "steps.1.wehn: no such key"),
        ("  - lock\n", "", 6, "steps.1: guard needs lock before it"),
        ("  - lock\n", "  - {step: lock, when: room}\n", 7, "steps.2: guard needs lock before it"),
        ("  - lock\n", "  - lock\n  - lock\n", 7, "there are two steps 'lock'"),
        ("  - lock\n", "  - lock\n  - restore\n", 7, "restore is for on_failure"),
        ("[restore]", "[restroe]", 14, "on_failure.0: there is no step 'restroe'; did you mean"),
        ("  - smoke\n", "", 12, "record needs smoke before it"),
        ("  - smoke\n  - record\n", "", 10, "after the last start there has to be a smoke"),
        ("  - record\n", "", 7, "record or confirm has to call the guard off"),
        ("  - record\n", "  - record\n  - {step: stop, name: s}\n", 14, "there has to be a start"),
        ("  - smoke\n  - record\n", "  - record\n", 12, "record needs smoke before it"),
        ("  - {step: start, with: {plain: true}}\n", "", 8, "there has to be a start"),
        ("[restore]", "[finish]", 14, "finish is for steps"),
        ("  - lock\n", "  - {step: lock, name: --yes}\n", 6, "steps.1.name: "),
        ("name: p\n", "name: q\n", 2, "name: it is 'q' in a file called p.yaml"),
        ("name: p\n", "", 1, "name: this key is required"),
        ("name: p\n", "name: p\nname: p\n", 3, "name: this key stands twice (first at line 2)"),
        ("version: 1", "version: 2", 1, "version: input should be 1"),
        ("summary: Restarts\n", "summary: Restarts\ncolour: blue\n", 4, "colour: no such key"),
        (GOOD, "", 1, "expected keys and values here"),
        (GOOD, "- stop\n", 1, "expected keys and values here"),
        (GOOD, "steps: [stop\n", 2, "not valid YAML"),
    ],
)
def test_a_wrong_one(tmp_path: Path, before: str, after: str, line: int, said: str) -> None:
    path = written(tmp_path, GOOD.replace(before, after, 1))
    with pytest.raises(UsageError) as caught:
        load(path)
    assert caught.value.message.startswith(f"{path}:{line}: "), caught.value.message
    assert said in caught.value.message
    assert caught.value.exit_code == EXIT_USAGE
    assert caught.value.remedy


def test_all_faults_of_form_are_named_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("unit_down", "x").replace("plain: true", "y: true")
    with pytest.raises(UsageError) as caught:
        load(written(tmp_path, text))
    assert len(caught.value.message.splitlines()) == 2


def test_a_huge_one_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list reads every file of a folder, whatever lies there."""
    monkeypatch.setattr(yamltext, "compose", lambda _: pytest.fail("it was parsed"))
    with pytest.raises(UsageError) as caught:
        load(written(tmp_path, GOOD + "# more\n" * 5000))
    assert caught.value.message == f"{tmp_path / 'p.yaml'}: it has more than 32,768 characters"
    assert caught.value.remedy


def test_one_of_too_many_steps(tmp_path: Path) -> None:
    """Each is held against all before it: it would take minutes."""
    more = "".join(f"  - {{step: stacks, name: s{n}}}\n" for n in range(100))
    with pytest.raises(UsageError, match=r"p\.yaml:4: steps: tuple should have at most 100 items"):
        load(written(tmp_path, GOOD.replace("on_failure", more + "on_failure")))


def test_one_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load(tmp_path / "gone.yaml")
    (tmp_path / "latin.yaml").write_bytes(GOOD.replace("R", "ÿ").encode("latin-1"))
    with pytest.raises(UsageError, match="utf-8"):
        load(tmp_path / "latin.yaml")


# -- beginning at a step --------------------------------------------------------------------------


def test_beginning_at_a_step_keeps_what_the_rest_stands_on() -> None:
    restart = OWN.load("restart")
    names = [each.name for each in restart.beginning_at("start").steps]
    assert names == ["preflight", "lock", "guard", "start", "wait", "smoke", "record"]
    assert restart.beginning_at("preflight").steps == restart.steps


def test_what_is_left_out_may_not_be_needed() -> None:
    """Whether a generation is returned to is known once `choose` has looked, before the lock."""
    beginning = OWN.load("crash-loop", runbook=True).beginning_at("start")
    assert [each.name for each in beginning.looks] == ["diagnose", "orphans", "choose"]
    assert beginning.rest[0].name == "preflight"
    ((lacking, why),) = beginning.lacking
    assert lacking.name == "confirm"
    assert why == "confirm needs swap, which beginning at start leaves out"


@pytest.mark.parametrize(
    ("name", "step", "nearest"),
    [
        ("crash-loop", "start", "stop"),
        ("crash-loop", "record", "stop"),
        ("hung", "record", "wait"),
        ("hung", "wait", "wait"),
    ],
)
def test_the_nearest_step_at_which_it_can_begin(name: str, step: str, nearest: str) -> None:
    assert OWN.load(name, runbook=True).nearest_beginning(step) == nearest


@pytest.mark.parametrize("path", ALL, ids=lambda p: p.stem)
def test_the_nearest_can_always_be_begun_at(path: Path) -> None:
    book = load(path)
    for each in book.steps:
        assert not book.beginning_at(book.nearest_beginning(each.name)).lacking


@pytest.mark.parametrize(
    ("name", "step", "said"),
    [
        ("deploy", "wait", "confirm needs swap, which beginning at wait leaves out"),
        ("deploy", "swap", "swap needs stop, which beginning at swap leaves out"),
        ("restart", "strat", "restart has no step 'strat'; did you mean 'start'"),
    ],
)
def test_beginning_where_nothing_can_begin(name: str, step: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        OWN.load(name).beginning_at(step)


# -- the shelf ------------------------------------------------------------------------------------


def test_a_teams_own_comes_first_and_the_rest_stays(tmp_path: Path) -> None:
    folder = tmp_path / "playbooks" / "runbooks"
    folder.mkdir(parents=True)
    (tmp_path / "playbooks" / "restart.yaml").write_text(GOOD.replace("name: p", "name: restart"))
    (folder / "ours.yaml").write_text(GOOD.replace("name: p", "name: ours"))
    shelf = Shelf.beside(tmp_path)
    assert shelf.load("restart").summary == "Restarts"
    assert shelf.load("deploy").has("stage")
    assert set(shelf.runbooks()) == {*RUNBOOKS, "ours"}


def test_a_misspelt_name_proposes_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'restart'"):
        OWN.load("restrat")
    with pytest.raises(UsageError, match="did you mean 'crash-loop'"):
        OWN.load("crash_loop", runbook=True)


def test_a_bare_step_is_what_its_name_says() -> None:
    assert use("stop").name == "stop"
    found: dict[str, Any] = {"version": 1, "name": "x", "summary": "y", "steps": ["preflight"]}
    assert Playbook.model_validate(found).on_failure == ()


def test_the_page_of_the_runbooks_is_up_to_date() -> None:
    assert (bundled("docs") / "runbooks.md").read_text("utf-8") == page_text()
