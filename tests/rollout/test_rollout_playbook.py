"""Playbooks: those of the repository, and each way in which one is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsctl.errors import EXIT_USAGE, UsageError
from opsctl.resources import bundled
from opsctl.rollout.playbook import load
from opsctl.rollout.steps import STEPS

KNOWN = frozenset({"stop", "start"})
GOOD = "version: 1\nname: x\nsummary: y\nsteps: [stop, start]\non_failure: report\n"


@pytest.mark.parametrize("path", sorted(bundled("playbooks").glob("*.yaml")), ids=lambda p: p.stem)
def test_the_repositorys_own(path: Path) -> None:
    playbook = load(path, frozenset(STEPS))
    assert playbook.name == path.stem
    steps = list(playbook.steps)
    assert steps[:2] == ["preflight", "lock"], "nothing is touched before these"
    if "stop" in steps:
        order = ("guard", "stop", "start", "wait", "smoke")
        assert [step for step in steps if step in order] == list(order)
    if "swap" in steps:
        assert steps.index("stop") < steps.index("swap") < steps.index("start")
        assert playbook.on_failure == "restore"


def test_a_good_one(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(GOOD)
    assert load(tmp_path / "p.yaml", KNOWN).steps == ("stop", "start")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("stop, start", "stop, explode", "steps: there is no step 'explode'"),
        ("[stop, start]", "[]", "steps: Tuple should have at least 1 item"),
        ("report", "pray", "on_failure: Input should be 'restore' or 'report'"),
        ("version: 1", "version: 2", "version: Input should be 1"),
        ("name: x\n", "", "name: Field required"),
        ("name: x", "name: x\ncolour: blue", "colour: Extra inputs are not permitted"),
        (GOOD, "", "not a playbook"),
        (GOOD, "- stop\n", "not a playbook"),
        (GOOD, "steps: [stop\n", "not a playbook: while parsing a flow sequence"),
    ],
)
def test_a_wrong_one(tmp_path: Path, before: str, after: str, said: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(GOOD.replace(before, after))
    with pytest.raises(UsageError) as caught:
        load(path, KNOWN)
    assert caught.value.message.startswith(f"{path}: ")
    assert said in caught.value.message
    assert caught.value.exit_code == EXIT_USAGE
    assert caught.value.remedy


def test_one_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load(tmp_path / "gone.yaml", KNOWN)
    (tmp_path / "latin.yaml").write_bytes(GOOD.replace("y", "ÿ").encode("latin-1"))
    with pytest.raises(UsageError, match="utf-8"):
        load(tmp_path / "latin.yaml", KNOWN)
