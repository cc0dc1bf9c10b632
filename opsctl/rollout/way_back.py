"""Where a rollback goes, and what is to be said about that generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opsctl.errors import Refused
from opsctl.rollout.drift import changed_files, changed_unit_files
from opsctl.units.properties import Unit

Records = Mapping[int, Mapping[str, Any]]  # every recorded generation, by its number

# How a generation ended that has served, so that it is one to return to.
_SERVED = frozenset({"found", "confirmed", "unconfirmed"})


def rollback_target(
    facts: Mapping[str, Any], recorded: Records, wanted: int | None, host: str = "HOST"
) -> int | None:
    """The generation that a rollback puts in place; None where it has nothing to do.

    `wanted` is the one that was named, None for the predecessor of what is there. `host` is for
    the commands that a remedy names.

    Raises:
        Refused: there is no such generation, or nothing to return to.
    """
    current = facts["generation"]
    if current is None:
        raise Refused(
            "no deploy is recorded on this host: there is nothing to return to",
            remedy="`pip install --force-reinstall --no-deps` brings back the wheel's own files",
            code="nothing_to_roll_back",
        )
    if wanted is not None and wanted not in recorded:
        raise _missing(facts, recorded, wanted, host)
    if facts["swap"]:
        return int(wanted if wanted is not None else facts["swap"]["from"])
    if wanted is not None:
        # The present one, named, means: put its files back over whatever a hand did.
        odd = [*changed_files(facts), *changed_unit_files(facts)]
        in_place = wanted == current["number"] and not odd
        return None if in_place else wanted
    # A rollback after a failed deploy must not go one release too far.
    last = recorded[max(recorded)]
    if last["predecessor"] == current["number"]:
        if last["status"] == "rolled_back":
            return None
        if last["status"] == "staged":  # a deploy that was cut off before its swap
            active = Unit.from_show(facts.get("unit", {})).active
            return None if active else int(current["number"])
    if current["predecessor"] is None:
        raise _without_predecessor(facts, recorded, host)
    predecessor = int(current["predecessor"])
    # A damaged record is the host's to tell of: it knows what is wrong with it.
    if predecessor not in {*recorded, *facts["generations"]}:
        raise _missing(facts, recorded, predecessor, host)
    return predecessor


def nowhere(
    facts: Mapping[str, Any], recorded: Records, wanted: int | None, host: str = "HOST"
) -> str:
    """Why `rollback_target` is None, and which command goes further back all the same."""
    current = facts["generation"]
    number = current["number"]
    if wanted is not None:
        return f"generation {number} is in place already"
    last = recorded[max(recorded)]
    how = "never swapped in" if last["status"] == "staged" else "rolled back already"
    text = f"generation {last['number']} was {how}, and generation {number} is in place"
    further = current["predecessor"]
    if further is None:
        older = _older(facts, recorded, number)
        further = older[0]["number"] if older else None
    return text if further is None else f"{text}; {goes_before(further, number, host)}"


def goes_before(further: int, number: int, host: str) -> str:
    return f"opsctl rollback {host} {further} goes before generation {number}"


def named(record: Mapping[str, Any] | int) -> str:
    """`generation 3 (ddtree 1.1.0)`; a bare number is of a record that cannot be read."""
    if isinstance(record, int):
        return f"generation {record}"
    hand = ", changed by hand" if record.get("adopted") else ""
    return f"generation {record['number']} ({_label(record)}{hand})"


def _without_predecessor(facts: Mapping[str, Any], recorded: Records, host: str) -> Refused:
    """What was found on the host came after nothing of ours; there may be older ones still."""
    number = facts["generation"]["number"]
    fitting = _older(facts, recorded, number)
    if fitting:
        text = (
            f"generation {number} is what was found on the host, not what a deploy made of an "
            f"older one; recorded before it, for the version that is installed: {_listed(fitting)}"
        )
        remedy = f"opsctl rollback {host} {fitting[0]['number']}"
    elif any(other < number for other in recorded):
        text = (
            f"generation {number} is what was found on the host, and none before it is both for "
            "the version that is installed and one that served"
        )
        remedy = "opsctl history has them all; reinstall the version of the one to return to"
    else:
        text = f"generation {number} is what was found on the host: nothing is older"
        remedy = "`pip install --force-reinstall --no-deps` brings back the wheel's own files"
    return Refused(text, remedy=remedy, code="nothing_to_roll_back")


def _missing(facts: Mapping[str, Any], recorded: Records, number: int, host: str) -> Refused:
    """Why generation `number` is not among those that are recorded."""
    known = facts["generations"]
    if number in known:
        text, code = f"the record of generation {number} is damaged", "state_damaged"
    elif known and 0 <= number < max(known):  # numbers are given without a gap
        text = f"generation {number} was pruned: the host keeps the last ones only"
        code = "generation_pruned"
    else:
        text, code = f"there is no generation {number}", "generation_missing"
    fitting = _older(facts, recorded, facts["generation"]["number"])
    remedy = f"such as opsctl rollback {host} {fitting[0]['number']}" if fitting else ""
    return Refused(
        f"{text}; recorded: {', '.join(map(str, recorded))}",
        remedy=remedy or "choose one of those",
        code=code,
    )


def _older(facts: Mapping[str, Any], recorded: Records, number: int) -> list[Mapping[str, Any]]:
    """Those before `number` that served and are for the installed version, newest first."""
    version = facts.get("install", {}).get("version")
    return [
        record
        for older, record in sorted(recorded.items(), reverse=True)
        if older < number and record["status"] in _SERVED and record["version"] == version
    ]


def _listed(records: Sequence[Mapping[str, Any]], most: int = 5) -> str:
    return ", ".join(f"{record['number']} ({_label(record)})" for record in records[:most])


def _label(record: Mapping[str, Any]) -> str:
    patch_set = record.get("set")
    return f"{patch_set['name']} {patch_set['version']}" if patch_set else "no patch set"


def unsigned(record: Mapping[str, Any]) -> bool:
    """Whether it holds changes that no allowed signer vouched for when they were deployed."""
    return bool((record.get("set") or record.get("adopted")) and not record.get("signed"))


def unsigned_text(record: Mapping[str, Any]) -> str:
    """That a rollback returns to such a generation, in a sentence for a person."""
    what = _label(record) if record.get("set") else "a change by hand"
    return (
        f"generation {record['number']} is {what}, which no allowed signer vouched for when it was "
        "deployed; a way back is never refused for that"
    )
