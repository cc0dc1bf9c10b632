"""The state folder stays bounded: old generations go, and the contents that only they name.

Kept are the last `KEPT` generations, what was found first (0), the one on disk and the one before
it, and whatever an armed guard or a swap under way may still put in place.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import Any, Dict, Iterable, List, Optional, Set

from . import guard
from .state import Record, State

KEPT = 20
# Seconds. What a hand had changed and a swap went over is named by no generation, and is nowhere
# else: it is left for a month, for whoever misses it.
_SPARED = 30 * 86400.0
_OBJECT = re.compile(r"[0-9a-f]{64}")


def prune(state: State, keep: Optional[int] = None) -> Dict[str, Any]:
    """Remove what is past its time; {generations, objects, bytes} that went. Needs the lock.

    `keep` are fewer generations than `KEPT`, where room is short.

    Raises:
        HostFault: a record cannot be read. What it names is not known then, and nothing goes.
        OSError: something cannot be removed; what is gone by then is of pruned generations only.
    """
    records = {number: state.generation(number) for number in state.numbers()}
    kept = _kept(state, records, KEPT if keep is None else keep)
    pruned = sorted(set(records) - kept)
    needed = _contents(records[number] for number in kept)
    spare = _contents(records[number] for number in pruned) - needed
    # The records first: cut off here, contents are left that nobody names. The other way round a
    # generation would be left that looks whole and cannot be put back.
    for number in pruned:
        os.unlink(state.path("generations", "%d.json" % number))
    removed = _remove_objects(state, needed, spare)
    return {
        "generations": pruned,
        "objects": len(removed),
        "bytes": sum(removed),
    }


def _kept(state: State, records: Dict[int, Record], keep: int) -> Set[int]:
    terms = guard.terms(state) or {}
    swap = state.swap_under_way() or {}
    current = state.current() or {}
    named = [
        *(0, current.get("number"), current.get("predecessor")),
        *(terms.get("to"), terms.get("fallback"), terms.get("target")),
        *(swap.get("from"), swap.get("to"), *swap.get("mixed", ())),
    ]
    return (set(named) | set(sorted(records)[-keep:])) & set(records)


def _contents(records: Iterable[Record]) -> Set[str]:
    """The contents that these need, for the way to them and for the way on from them."""
    found: Set[Any] = set()
    for record in records:
        for files in (record["files"], record.get("unit") or {}):
            for file in files.values():
                found.update((file["sha256"], file.get("pristine_sha256")))
                found.add(file.get("before_sha256"))
    found.discard(None)
    return found


def _remove_objects(state: State, needed: Set[str], spare: Set[str]) -> List[int]:
    """The sizes in bytes of what was removed: `spare`, and what nobody has named for long."""
    removed = []
    long_ago = time.time() - _SPARED
    folder = state.path("objects")
    for name in os.listdir(folder) if os.path.isdir(folder) else ():  # nothing was deployed yet
        if not _OBJECT.fullmatch(name) or name in needed:
            continue
        path = state.path("objects", name)
        with contextlib.suppress(FileNotFoundError):
            facts = os.stat(path)
            if name in spare or facts.st_mtime < long_ago:
                os.unlink(path)
                removed.append(facts.st_size)
    return removed
