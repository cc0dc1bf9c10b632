"""Where a block of raw bytes needs a look: many literals in one pass, by Hyperscan.

JSON writes some characters otherwise than the message has them: a literal is searched for as it
is and as JSON escapes it. Lines that could still hide it (a message given as a list of bytes,
numeric escapes, which some writers use for quotes or brackets) are hits too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

# Writers differ in how they write the others.
_ASCII: Final = re.compile(r"[ -~]+")
# `journalctl -o json` before systemd 236 had blanks around the colon; json.dumps has one.
COLONS: Final = (":", " : ", ": ")
_OPAQUE: Final = (
    *(f'"MESSAGE"{colon}{value}' for colon in COLONS for value in ("[", "null")), r"\u00", r"\/"
)  # fmt: skip
DECODE: Final = "Decode batch"


@dataclass(frozen=True, slots=True)
class Routine:
    """Lines that a healthy server's journal is full of: those with one of `texts`, as they stand
    in the input. A needle that is part of such a text does not count there.

    Of the lines whose message `holds` some are passed on all the same, in each stretch of lines
    in which nothing else matters: the last one; with `most` also the first one, and so many
    first and last ones of those after the last line that `resets` the count, as decode lines
    do. Without `holds` none is.
    """

    texts: tuple[str, ...]
    holds: Callable[[str], bool] | None = None
    most: int = 1
    resets: bool = False

    def accepts(self, message: str) -> bool:
        return self.holds is not None and self.holds(message)


@dataclass(slots=True)
class Hits:
    """Where matches end in a block."""

    looked_for: set[int] = field(default_factory=set)  # needles, and what may hide one
    decode: list[int] = field(default_factory=list)  # mentions of a decode line, in order
    routine: list[list[int]] = field(default_factory=list)  # of each sort with `holds`, in order


@dataclass(frozen=True, slots=True)
class _Common:
    """A needle that routine lines contain: `shifts` is how far before the end of a routine text
    (by its id) the needle ends."""

    id: int
    shifts: tuple[tuple[int, int], ...]


class Matcher:
    """Compiled once, in milliseconds. A match is no proof: it says where to look.

    A needle does not count within one of the texts of `routine`.

    Raises:
        ValueError: a literal has no part to search for.
    """

    def __init__(
        self, needles: Iterable[str], caseless: Iterable[str] = (), routine: Iterable[Routine] = ()
    ) -> None:
        import hyperscan  # native, and of no use to most commands

        any_case = hyperscan.HS_FLAG_CASELESS
        wanted = dict.fromkeys([(form, 0) for text in needles for form in _forms(text)])
        wanted |= dict.fromkeys(
            [(form, any_case) for text in caseless for form in _forms(text.lower())]
        )
        # Only those that are passed on, or that a needle is part of; their places are their ids.
        sorts = [(sort, text) for sort in routine for text in sort.texts]
        matter = [
            text
            for sort, text in sorts
            if sort.holds or any(_ends(needle, text, any_case=bool(f)) for needle, f in wanted)
        ]
        texts = [(text, 0) for text in dict.fromkeys((DECODE, *matter))]
        self._routine = len(texts)
        ids = {text: number for number, (text, _) in enumerate(texts)}
        kept = dict.fromkeys(sort for sort, _ in sorts if sort.holds)
        self._sorts = [[ids[text] for text in sort.texts] for sort in kept]
        self._common: list[_Common] = []
        rare = [(text, 0) for text in _OPAQUE]
        for needle, flag in wanted:
            shifts = tuple(
                (number, len(text) - end)
                for number, (text, _) in enumerate(texts[: self._routine])
                for end in _ends(needle, text, any_case=bool(flag))
            )
            if shifts:
                self._common.append(_Common(len(texts), shifts))
                texts.append((needle, flag))
            else:
                rare.append((needle, flag))
        self._ids = len(texts)
        every = [*texts, *rare]
        self._database = hyperscan.Database()
        self._database.compile(
            expressions=[text.encode() for text, _ in every],
            ids=[min(number, self._ids) for number in range(len(every))],
            elements=len(every),
            flags=[flag for _, flag in every],
            literal=True,
        )

    def hits(self, block: bytes) -> Hits:
        """All matches. Their number, more than the block's size, is what costs."""
        lists = self._scan(block)
        decode, found = lists[0], set(lists[-1])
        for common in self._common:
            ends = set(lists[common.id])
            for routine, shift in common.shifts:
                ends.difference_update([end - shift for end in lists[routine]])
            found |= ends
        decode.sort()  # it is, as a rule; Hyperscan promises nothing
        sorts = [sorted(end for each in sort for end in lists[each]) for sort in self._sorts]
        return Hits(found, decode, sorts)

    def matches(self, text: str) -> bool:
        """Whether a needle is in `text`, as far as its searched part goes."""
        return bool(self.hits(text.encode()).looked_for)

    def _scan(self, block: bytes) -> list[list[int]]:
        lists: list[list[int]] = [[] for _ in range(self._ids + 1)]
        append = [each.append for each in lists]

        def note(kind: int, begin: int, end: int, flags: int, context: object) -> None:
            append[kind](end)

        self._database.scan(block, match_event_handler=note)
        return lists


def _ends(needle: str, text: str, *, any_case: bool) -> list[int]:
    """Where `needle` ends in `text`, each time."""
    inside = text.lower() if any_case else text
    return [found.end(1) for found in re.finditer(f"(?=({re.escape(needle)}))", inside)]


def _forms(text: str) -> set[str]:
    """`text`, or its longest part in ASCII, as plain text and as JSON have it."""
    parts: list[str] = _ASCII.findall(text)
    if not parts:
        raise ValueError(f"nothing to search for in {text!r}")
    part = max(parts, key=len)
    return {part, json.dumps(part)[1:-1]}
