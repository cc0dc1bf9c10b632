"""The filter of the journal's tail: typed behind a `/`, as in less(1). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from opsctl.journal import Diagnosis
from opsctl.watch.model import Row

ENTER, ESCAPE, BACKSPACE = "\n", "\x1b", "\b"
_LONGEST: Final = 60  # characters of it


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows are shown that hold `text`, in whatever case; all where it is empty. `typed` is what is
    being typed, None while nothing is."""

    text: str = ""
    typed: str | None = None

    def press(self, key: str) -> Filter | None:
        """The filter after a key (a character, or the name of a key that is none); None where the
        key is not for it."""
        if key == ESCAPE and (self.text or self.typed is not None):
            return Filter()
        if self.typed is None:
            return Filter(self.text, "") if key == "/" else None
        if key == ENTER:
            return Filter(self.typed)
        if key == BACKSPACE:
            return Filter(self.text, self.typed[:-1])
        if len(key) != 1:
            return None
        wanted = key.isascii() and key.isprintable()
        return Filter(self.text, (self.typed + key * wanted)[:_LONGEST])

    def rows(self, rows: Iterable[Row], marks: Mapping[int, Diagnosis]) -> list[Row]:
        """Those that are shown. `marks` are the incidents that rows decide, by their numbers: the
        name of one is shown with its row, and found as well."""
        if not self.text:
            return list(rows)
        text = self.text.casefold()
        return [row for row in rows if text in _said(row, marks.get(row.number)).casefold()]

    def foot(self, keys: str) -> str:
        """The last line of the screen, which otherwise names the `keys`."""
        if self.typed is not None:
            return f"/{self.typed}_  enter: only rows with that  esc: all rows"
        return f"/{self.text}  esc: all rows  {keys}" if self.text else keys


def _said(row: Row, found: Diagnosis | None) -> str:
    return row.text if found is None else f"{found.severity} {found.kind}: {row.text}"
