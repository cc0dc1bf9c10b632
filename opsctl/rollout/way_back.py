"""Where a rollback goes, and what is to be said about that generation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.errors import Refused
from opsctl.rollout.plan import changed_files
from opsctl.units.properties import Unit

Records = Mapping[int, Mapping[str, Any]]  # every recorded generation, by its number


def rollback_target(facts: Mapping[str, Any], recorded: Records, wanted: int | None) -> int | None:
    """The generation that a rollback puts in place; None where it has nothing to do.

    `wanted` is the one that was named, None for the predecessor of what is there.

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
        raise Refused(
            f"there is no generation {wanted}; recorded: {', '.join(map(str, recorded))}",
            remedy="choose one of those",
            code="generation_missing",
        )
    if facts["swap"]:
        return int(wanted if wanted is not None else facts["swap"]["from"])
    if wanted is not None:
        # The present one, named, means: put its files back over whatever a hand did.
        in_place = wanted == current["number"] and not changed_files(facts)
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
        raise Refused(
            f"generation {current['number']} is what was found on the host: nothing is older",
            remedy="name a generation: opsctl status lists them",
            code="nothing_to_roll_back",
        )
    return int(current["predecessor"])


def unsigned(record: Mapping[str, Any]) -> bool:
    """Whether it holds changes that no allowed signer vouched for when they were deployed."""
    return bool((record.get("set") or record.get("adopted")) and not record.get("signed"))


def unsigned_text(record: Mapping[str, Any]) -> str:
    """That a rollback returns to such a generation, in a sentence for a person."""
    patch_set = record.get("set")
    what = f"{patch_set['name']} {patch_set['version']}" if patch_set else "a change by hand"
    return (
        f"generation {record['number']} is {what}, which no allowed signer vouched for when it was "
        "deployed; a way back is never refused for that"
    )
