"""Plots and bars of characters, for terminals with block characters and for those without."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size


@dataclass(frozen=True, slots=True)
class Glyphs:
    """`levels` fill a cell from the lowest to all of it."""

    levels: str
    restart: str
    rule: str
    full: str
    empty: str
    more: str
    ascii: bool

    def safe(self, text: str) -> str:
        """`text` as this terminal can show it."""
        return text.encode("ascii", "replace").decode("ascii") if self.ascii else text


BLOCKS: Final = Glyphs("▁▂▃▄▅▆▇█", "┊", "─", "█", "░", "…", ascii=False)
ASCII: Final = Glyphs(".-=#", "|", "-", "#", ".", "~", ascii=True)


def glyphs(encoding: str) -> Glyphs:
    """What can be printed in `encoding`."""
    try:
        "".join((BLOCKS.levels, BLOCKS.restart, BLOCKS.empty, BLOCKS.more)).encode(encoding)
    except (UnicodeError, LookupError):
        return ASCII
    return BLOCKS


def plot(
    values: Sequence[float | None],
    marks: Collection[int],
    height: int,
    *,
    low: float,
    high: float,
    signs: Glyphs,
) -> list[str]:
    """`height` rows, the top one first, a column a value; one that came is never blank. The
    columns of `marks` have a restart's sign in place of a value."""
    steps = len(signs.levels)
    rows = [[" "] * len(values) for _ in range(height)]
    for column, value in enumerate(values):
        if column in marks:
            for row in rows:
                row[column] = signs.restart
        elif value is not None:
            share = (value - low) / (high - low) if high > low else 1.0
            level = max(1, min(round(share * steps * height), steps * height))
            for place, row in enumerate(reversed(rows)):
                filled = min(level - place * steps, steps)
                if filled > 0:
                    row[column] = signs.levels[filled - 1]
    return ["".join(row) for row in rows]


def bar(share: float, width: int, signs: Glyphs) -> str:
    """A share of 0 to 1, in brackets where the signs alone would not bound it."""
    inner = max(width - 2, 1)
    filled = round(max(0.0, min(share, 1.0)) * inner)
    return f"[{signs.full * filled}{signs.empty * (inner - filled)}]"


def cut(text: str, width: int, signs: Glyphs) -> str:
    """`text` in at most `width` cells of the terminal."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1) + signs.more
