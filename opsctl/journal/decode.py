"""Decode lines, most lines of a long journal, by their places in a block of raw bytes.

What is wanted of each, its rank and its accept length, is found by its key, for a fraction of
the price of an `opsctl.sglang.DecodeBatch`; the other figures are the grammar's, of an `entry`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from opsctl.journal.entry import Entry
from opsctl.journal.lines import entry_from_line
from opsctl.journal.matcher import COLONS
from opsctl.journal.plain import PREFIX

_LONGEST_TAG: Final = 80
_HEAD: Final = len("] Decode batch")
_OPENERS: Final = tuple(f'"MESSAGE"{colon}"'.encode() for colon in COLONS)
_PREFIX: Final = re.compile(PREFIX.encode())
# Possessive: no part of a line is tried twice.
_LENGTH: Final = re.compile(rb'(?:[^",\\\n]*+,)*? accept len: ([\d.]+)')
_TAG: Final = re.compile(r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)? ?(.*)")


def own_lines(block: bytes, mentions: list[int]) -> list[int]:
    """Of the places right after "Decode batch" those of lines that a run may hold.

    The message must begin with its tag, so that no prompt quoted in a log counts.
    """
    found = []
    span = 0  # from the tag's opening to the place, of the line before: mostly this one's too
    for place in mentions:
        tag = place - span
        if block[tag : tag + 1] != b"[" or block.find(b"[", tag + 1, place) >= 0:
            tag = block.rfind(b"[", max(0, place - _LONGEST_TAG), place)
        if tag < 0 or block[place - _HEAD : place - _HEAD + 2] != b"] ":
            continue
        if block.endswith(_OPENERS, 0, tag) or _PREFIX.fullmatch(
            block, _line_begin(block, tag), tag
        ):
            found.append(place)
            span = place - tag
    return found


def _line_begin(block: bytes, at: int) -> int:
    return block.rfind(b"\n", 0, at) + 1


@dataclass(frozen=True, slots=True)
class DecodeRun:
    """Decode lines between which nothing else of interest stands, in order.

    Holds a block of the input (megabytes): keep figures, not the run.
    """

    first: int  # number in the input, from 0, of the line that begins at `begin`
    begin: int
    block: bytes
    places: list[int]  # in `block`, right after "Decode batch"

    def __len__(self) -> int:
        return len(self.places)

    @property
    def accept_lens(self) -> list[float]:
        """Of the lines that have one: tokens a verify step, the bonus token among them."""
        block, match = self.block, _LENGTH.match
        return [float(found[1]) for at in self.places if (found := match(block, at)) is not None]

    @property
    def line(self) -> int:
        """The number in the input, from 0, of the first of them."""
        return self.first + self.block.count(b"\n", self.begin, self.places[0])

    @property
    def lines(self) -> list[int]:
        """Their numbers in the input, from 0."""
        numbers, number = [], self.first
        for before, place in zip([self.begin, *self.places], self.places, strict=False):
            number += self.block.count(b"\n", before, place)
            numbers.append(number)
        return numbers

    def lines_between(self, index: int, later: int) -> int:
        """How many lines of the input one of them is below another."""
        return self.block.count(b"\n", self.places[index], self.places[later])

    @property
    def ranks(self) -> list[str]:
        """Of each line."""
        block, end = self.block, self.places[0]
        tag = block[block.rfind(b" ", 0, end - _HEAD) : end]
        if all(block.endswith(tag, 0, place) for place in self.places):  # nearly always
            return [self._rank(end)] * len(self)
        return [self._rank(place) for place in self.places]

    def _rank(self, place: int) -> str:
        tag_end = self.block.rfind(b"]", 0, place)
        tag = self.block.rfind(b"[", max(0, place - _LONGEST_TAG), tag_end) + 1
        found = _TAG.match(self.block[tag:tag_end].decode("utf-8", "replace"))
        return found[1] if found else ""

    def entry(self, index: int) -> Entry:
        """One of them, negative from the end, as any other entry."""
        place = self.places[index]
        begin = _line_begin(self.block, place)
        return entry_from_line(self.block[begin : self.block.find(b"\n", place)])
