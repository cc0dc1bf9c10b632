"""The starts that a journal tells of: what came of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from opsctl.journal import Acceptance, Diagnosis, Entry
from opsctl.sglang import LoadProgress, parse_all
from opsctl.sglang import lines as ln
from opsctl.triage.facts import Start

# Of a looping unit, more are of no use.
_MOST = 6

Diagnose = Callable[[Sequence[Entry], str], Diagnosis]


def starts(entries: Sequence[Entry], diagnose: Diagnose) -> list[Start]:
    """The last starts in `entries` (oldest first), the newest first. `diagnose` is given those of
    one start, and its invocation."""
    found: dict[str, list[Entry]] = {}
    for invocation, group in groupby(entries, key=lambda entry: entry.invocation):
        if invocation:
            found.setdefault(invocation, []).extend(group)
    newest = sorted(found, key=lambda each: found[each][0].realtime, reverse=True)[:_MOST]
    return [_start(each, found[each], diagnose) for each in newest]


def _start(invocation: str, entries: Sequence[Entry], diagnose: Diagnose) -> Start:
    progress = LoadProgress()
    arguments: dict[str, str] = {}
    decoded: list[ln.DecodeBatch] = []
    batch_at = None
    for entry in entries:
        for line in parse_all(entry.message):
            progress.feed(line, entry.realtime)
            if isinstance(line, ln.ServerArgs) and not arguments:
                arguments = {name: repr(value) for name, value in line.values.items()}
            elif isinstance(line, ln.DecodeBatch | ln.PrefillBatch):
                batch_at = entry.realtime
            if isinstance(line, ln.DecodeBatch):
                decoded.append(line)
    acceptance = Acceptance.from_lines(decoded)
    return Start(
        invocation=invocation,
        began=entries[0].realtime,
        ended=entries[-1].realtime,
        lines=len(entries),
        diagnosis=diagnose(entries, invocation),
        ready_at=progress.ready_at,
        phase=progress.label,
        moved_at=progress.last_progress_at,
        batch_at=batch_at,
        decode_lines=acceptance.count,
        accept_len=acceptance.accept_len.mean if acceptance.accept_len else None,
        arguments=arguments,
    )
