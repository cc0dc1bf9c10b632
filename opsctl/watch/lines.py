"""`opsctl watch` on a terminal that can only add lines at its end (TERM=dumb)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TextIO

from opsctl.watch import words
from opsctl.watch.board import Board
from opsctl.watch.draw import Glyphs
from opsctl.watch.frame import row_of, text_of
from opsctl.watch.model import HostModel

# The state of each host so often, seconds, and at once where it is another.
_EVERY: Final = 15.0


@dataclass(slots=True)
class _Told:
    """What was said of a host."""

    state: tuple[object, ...] = ()
    at: float = 0.0
    rows: int = 0
    marks: set[int] = field(default_factory=set)


def follow(board: Board, stream: TextIO, signs: Glyphs) -> None:
    """A line for each change of state, restart and line of an incident, until Ctrl-C."""
    told = {model.name: _Told() for model in board.models}
    while True:
        board.take(1.0)
        for model in board.models:
            for text in _news(model, told[model.name], time.monotonic(), signs):
                stamp = time.strftime("%H:%M:%S", time.localtime())
                stream.write(signs.safe(f"{stamp} {model.name}: {text}\n"))
        stream.flush()


def _news(model: HostModel, told: _Told, now: float, signs: Glyphs) -> Iterator[str]:
    model.judge(now)
    fresh = model.counts[False] - told.rows
    told.rows = model.counts[False]
    for row in list(model.told)[-fresh:] if fresh else ():
        if row.kind != "line":
            yield f"-- {row.text}"
    marks = model.marks()
    told.marks &= marks.keys()
    for row in model.told:
        found = marks.get(row.number)
        if found is not None and row.number not in told.marks:
            told.marks.add(row.number)
            yield text_of(row_of(row, found, signs))
    guarded = model.guard is not None, bool(model.lock)
    state = (model.link, model.fresh(now), words.phase(model)[0], guarded)
    if state != told.state or now - told.at >= _EVERY:
        told.state, told.at = state, now
        yield words.one_line(model, now)
