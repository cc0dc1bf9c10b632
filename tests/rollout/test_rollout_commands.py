"""Where a rollback goes."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rollout_tools import SERVICE
from rollout_tools import facts as healthy

from opsctl.errors import Refused
from opsctl.events import Event
from opsctl.playbook import Shelf
from opsctl.report import Report
from opsctl.rollout import choosing, commands, engine
from opsctl.rollout.run import Options, Run
from opsctl.rollout.session import Session
from opsctl.rollout.way_back import nowhere, rollback_target

VERSION = "0.5"


def generation(number: int, status: str, predecessor: int | None) -> dict[str, Any]:
    return {
        "number": number,
        "status": status,
        "predecessor": predecessor,
        "set": None,
        "version": VERSION,
    }


FOUND = generation(0, "found", None)
ONE = generation(1, "confirmed", 0)
TWO = generation(2, "confirmed", 1)
FAILED = generation(3, "rolled_back", 2)
ABANDONED = generation(3, "abandoned", 2)
STAGED = generation(3, "staged", 2)
AGAIN = generation(4, "rolled_back", 2)
REFOUND = generation(3, "found", None)


def target(
    recorded: list[dict[str, Any]],
    current: int | None,
    wanted: int | None = None,
    swap: dict[str, int] | None = None,
) -> int | None:
    found = next((g for g in recorded if g["number"] == current), None)
    facts = {
        "generation": found,
        "swap": swap,
        "generations": [g["number"] for g in recorded],
        "install": {"version": VERSION},
    }
    return rollback_target(facts, {g["number"]: g for g in recorded}, wanted, "alpha")


ALL = [FOUND, ONE, TWO]


@pytest.mark.parametrize(
    ("recorded", "current", "wanted", "swap", "expected"),
    [
        (ALL, 2, None, None, 1),
        (ALL, 1, None, None, 0),  # rolled back once already: one further
        (ALL, 2, 0, None, 0),
        (ALL, 1, 2, None, 2),  # forward again
        (ALL, 2, 2, None, None),
        # A deploy that failed and was rolled back by itself: not one release too far.
        ([*ALL, FAILED], 2, None, None, None),
        ([*ALL, FAILED, AGAIN], 2, None, None, None),
        ([*ALL, FAILED], 2, 1, None, 1),
        # After that rollback was done all the same, the next goes on from there.
        ([*ALL, FAILED], 1, None, None, 0),
        # What never got as far as the disk does not count.
        ([*ALL, ABANDONED], 2, None, None, 1),
        # A deploy that was cut off before its swap, with the unit down: the present one again.
        ([*ALL, STAGED], 2, None, None, 2),
        # A swap that was cut off: back to where it came from, or to what is asked for.
        ([*ALL, STAGED], 2, None, {"from": 2, "to": 3}, 2),
        ([*ALL, STAGED], 2, 3, {"from": 2, "to": 3}, 3),
        ([*ALL, STAGED], 2, 2, {"from": 2, "to": 3}, 2),
    ],
)
def test_the_target(
    recorded: list[dict[str, Any]],
    current: int,
    wanted: int | None,
    swap: dict[str, int] | None,
    expected: int | None,
) -> None:
    assert target(recorded, current, wanted, swap) == expected


@pytest.mark.parametrize(
    ("recorded", "current", "wanted", "swap", "code"),
    [
        ([], None, None, None, "nothing_to_roll_back"),
        ([FOUND], 0, None, None, "nothing_to_roll_back"),
        ([*ALL, REFOUND], 3, None, None, "nothing_to_roll_back"),
        (ALL, 2, 7, None, "generation_missing"),
        (ALL, 2, 7, {"from": 1, "to": 2}, "generation_missing"),
    ],
)
def test_nowhere_to_go(
    recorded: list[dict[str, Any]],
    current: int | None,
    wanted: int | None,
    swap: dict[str, int] | None,
    code: str,
) -> None:
    with pytest.raises(Refused) as caught:
        target(recorded, current, wanted, swap)
    assert caught.value.code == code
    assert caught.value.remedy


def test_the_present_one_named_puts_back_a_file_of_the_unit_too() -> None:
    """As `verify` says of one."""
    path = "/etc/systemd/system/serve.service.d/10-opsctl.conf"
    secrets = "/etc/systemd/system/serve.service.d/opsctl-secrets.env"
    hashes = {name: hashlib.sha256(name.encode()).hexdigest() for name in (path, secrets)}
    content = base64.b64encode(path.encode()).decode()
    as_recorded = {"files": {path: content}, "secrets": hashes[secrets]}
    one = {**ONE, "unit": {name: {"sha256": digest} for name, digest in hashes.items()}}
    recorded = {g["number"]: g for g in (FOUND, one)}
    for there, expected in (
        (as_recorded, None),
        ({**as_recorded, "files": {}}, 1),
        ({**as_recorded, "secrets": "another"}, 1),
    ):
        facts = {
            "generation": one,
            "generations": [0, 1],
            "swap": None,
            "unit_files": there,
            "install": {"version": VERSION},
        }
        assert rollback_target(facts, recorded, 1) == expected, there


def nothing(recorded: list[dict[str, Any]], current: int, wanted: int | None = None) -> str:
    facts = {
        "generation": next(g for g in recorded if g["number"] == current),
        "install": {"version": VERSION},
    }
    return nowhere(facts, {g["number"]: g for g in recorded}, wanted, "alpha")


def test_a_rollback_that_has_nothing_to_do_says_why_and_what_goes_further() -> None:
    assert nothing(ALL, 2, 2) == "generation 2 is in place already"
    assert nothing([*ALL, FAILED], 2) == (
        "generation 3 was rolled back already, and generation 2 is in place; "
        "opsctl rollback alpha 1 goes before generation 2"
    )
    assert "generation 3 was never swapped in" in nothing([*ALL, STAGED], 2)
    again = [ONE, generation(2, "found", None), FAILED]
    assert nothing(again, 2).endswith("opsctl rollback alpha 1 goes before generation 2")
    assert "opsctl" not in nothing([FOUND, generation(1, "rolled_back", 0)], 0)


def test_the_question_names_where_a_rollback_goes_from_and_to() -> None:
    session = cast(Session, RollingBack([FOUND, ONE | {"set": SET}, TWO], None))
    assert commands.rollback_question(session, None) == (
        "Roll back  on alpha from generation 2 (no patch set) to generation 1 (ddtree 1.0.0)?"
    )
    assert "to generation 0 (no patch set)?" in (commands.rollback_question(session, 0) or "")
    assert commands.rollback_question(session, 2) is None


# -- what a refusal names --------------------------------------------------------------------


def told(
    recorded: list[dict[str, Any]], current: int, wanted: int | None = None
) -> tuple[str, str, str]:
    with pytest.raises(Refused) as caught:
        target(recorded, current, wanted)
    return caught.value.code, caught.value.message, caught.value.remedy


def test_what_was_found_after_older_ones_names_those_that_fit() -> None:
    """After a reinstall, or a set that was put there by other means."""
    one, failed = ONE | {"set": SET}, generation(2, "rolled_back", 1)
    of_another = generation(3, "confirmed", 1) | {"version": "0.4"}
    found = generation(4, "found", None)
    code, message, remedy = told([FOUND, one, failed, of_another, found], 4)
    assert (code, remedy) == ("nothing_to_roll_back", "opsctl rollback alpha 1")
    assert message.endswith("that is installed: 1 (ddtree 1.0.0), 0 (no patch set)")


def test_what_was_found_after_older_ones_of_another_version() -> None:
    old = [record | {"version": "0.4"} for record in (FOUND, ONE)]
    _, message, remedy = told([*old, generation(2, "found", None)], 2)
    assert "none before it is both for the version that is installed" in message
    assert "opsctl history" in remedy


def test_what_was_found_first() -> None:
    _, message, remedy = told([FOUND], 0)
    assert message.endswith("nothing is older")
    assert "pip install" in remedy


def test_a_generation_that_was_pruned_says_so() -> None:
    kept = [FOUND, generation(7, "confirmed", 6), generation(8, "confirmed", 7)]
    code, message, remedy = told(kept, 8, 3)
    assert (code, remedy) == ("generation_pruned", "such as opsctl rollback alpha 7")
    assert "generation 3 was pruned" in message
    assert "recorded: 0, 7, 8" in message
    code, _, remedy = told(kept, 7)
    assert (code, remedy) == ("generation_pruned", "such as opsctl rollback alpha 0")
    assert told(kept, 8, 9)[0] == "generation_missing"
    assert told(kept, 8, -1)[0] == "generation_missing"


def test_a_generation_whose_record_is_damaged_says_so() -> None:
    facts = {"generation": TWO, "swap": None, "generations": [0, 1, 2], "install": {}}
    with pytest.raises(Refused, match="the record of generation 1 is damaged"):
        rollback_target(facts, {0: FOUND, 2: TWO}, 1)
    assert rollback_target(facts, {0: FOUND, 2: TWO}, None) == 1, "check_swap refuses it"


# -- signatures ------------------------------------------------------------------------------

SET = {"name": "ddtree", "version": "1.0.0"}
SIGNED = {"principal": "ann@example.org", "key": "ED25519 SHA256:x"}


class RollingBack:
    """A host that has generation 2 in place, and a session that is to roll it back."""

    host = SimpleNamespace(name="alpha")

    def __init__(self, records: list[dict[str, Any]], signers: Path | None) -> None:
        self.service = SERVICE.model_copy(update={"allowed_signers": signers})
        self.records = records
        self.events: list[Event] = []
        self.emit = self.events.append

    def inspect(self) -> dict[str, Any]:
        numbers = [record["number"] for record in self.records]
        changes = {"generation": self.records[-1], "generations": numbers, "state_fault": None}
        return healthy(changes)

    def call(self, op: str) -> Any:
        assert op == "generations"
        return self.records


@pytest.mark.parametrize(
    ("changes", "asked", "warned"),
    [
        ({"set": SET, "signed": SIGNED}, True, False),
        ({"set": SET, "signed": None}, True, True),
        ({"set": SET}, True, True),  # of an opsctl that did not record it
        ({"set": None, "adopted": ["a.py"]}, True, True),
        ({"set": None}, True, False),  # the wheel's own files
        ({"set": SET}, False, False),
    ],
)
def test_a_way_back_to_what_nobody_vouched_for_is_told_and_not_refused(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    changes: dict[str, Any],
    asked: bool,
    warned: bool,
) -> None:
    runs: list[Run] = []

    def execute(run: Run, playbook: object) -> Report:
        choosing.choose(run)
        runs.append(run)
        return Report(command="rollback", verdict="pass", exit_code=0, summary="")

    monkeypatch.setattr(engine, "execute", execute)
    session = RollingBack([FOUND, ONE | changes, TWO], tmp_path / "signers" if asked else None)
    commands.rollback(cast(Session, session), Shelf.beside(None), Options())
    assert [(e.step, e.state) for e in session.events] == [("signature", "warn")] * warned
    assert (runs[0].target, 1 in runs[0].unsigned) == (1, warned)
    if warned:
        assert "generation 1 is" in session.events[0].message
        assert "no allowed signer" in session.events[0].message
