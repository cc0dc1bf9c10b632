"""The lines of a block that can matter, found without parsing the others."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from opsctl.journal.decode import DecodeRun, own_lines
from opsctl.journal.entry import READ, Entry
from opsctl.journal.lines import Lines, entry_from_line
from opsctl.journal.matcher import DECODE, Hits, Matcher, Routine
from opsctl.journal.windows import HEADS, Windows

Item = tuple[int, Entry | DecodeRun]  # with the number of its (first) line in the input, from 0

# More than a hit in so many bytes is a sign of hits outside of messages; so many fields are kept.
_DENSE: Final = 4000
_FIELDS: Final = 50
_KEY: Final = 32
_SHARED: Final = 50  # a field is learned if one line in so many has the same
_FIELD: Final = re.compile(rb'"([A-Z_0-9]+)" ?: ?"(?:[^"\\]|\\.)*"')
# Lines that journalctl's indented ones do not continue, and how many are looked back through.
_NO_HEAD: Final = {b" ", b"{", b"\n", b"\r"}
_RECALLED: Final = 100


@dataclass(frozen=True, slots=True)
class Selection:
    """What matters: a line that contains one of `needles` as it is, or one of `caseless` (in
    lower case) in any case; lines of the same process after one that `opens` a window, as
    frames of a traceback are; some of the `routine`; and decode lines.
    """

    needles: tuple[str, ...] = ()
    caseless: tuple[str, ...] = ()
    routine: tuple[Routine, ...] = ()


@lru_cache(maxsize=2)  # compiled in milliseconds, for inputs of which most are small
def _matcher(selection: Selection) -> Matcher:
    return Matcher((*selection.needles, *HEADS), selection.caseless, selection.routine)


class _Found(NamedTuple):
    """A block, and places in it of decode lines and of each sort of routine lines, in order."""

    block: bytes
    decode: list[int]
    routine: list[list[int]]

    def has(self, at: int, stop: int) -> bool:
        """Whether one of them is between."""
        return any(
            bisect_left(each, at) < bisect_left(each, stop) for each in (self.decode, *self.routine)
        )


class Prefilter:
    """Fed block by block, in order. `parse` gives the entry of a line, by number and bytes.

    What it gives is in the order of the lines, a run of decode lines at its first one.
    """

    def __init__(
        self, selection: Selection, lines: Lines, parse: Callable[[int, bytes], Entry | None]
    ) -> None:
        self._fields: tuple[bytes, ...] = ()  # beside the message, that contain a needle
        self._matcher = _matcher(selection)
        self._lines, self._parse = lines, parse
        self._windows = Windows()
        self._sorts = [sort for sort in selection.routine if sort.holds]

    def read(self, block: bytes, line: int) -> Generator[Item, None, int]:
        """What matters of whole lines, of which the first is number `line` of the input.

        Returns the number of the line after them.
        """
        block, hits = self._without_fields(block)
        decode = own_lines(block, hits.decode)
        found = _Found(block, decode, hits.routine)
        odd = () if len(decode) == len(hits.decode) else set(hits.decode).difference(decode)
        at = looked = 0  # all before `at` is done; no line before `looked` is looked at again
        number = line  # of the line at `looked`
        for end in sorted(hits.looked_for.union(odd)):
            if end <= looked:
                continue  # in the line of the hit before
            start = max(block.rfind(b"\n", looked, end) + 1, looked)
            at, line = yield from self._windowed(block, at, start, line)
            number += block.count(b"\n", looked, start)
            looked = block.find(b"\n", start) + 1
            if block[start : start + 1] == b" ":
                self._recall(block, start)
            windowed = bool(self._windows)
            known = not windowed and found.has(start, looked)
            entry = self._judged(number, block[start : looked - 1], known=known)
            number += 1
            if entry is None and not windowed:
                continue  # the needle is in another field, and the stretch goes on
            yield from self._stretch(found, at, start, line)
            if entry is not None:
                yield number - 1, entry
            at, line = looked, number
        at, line = yield from self._windowed(block, at, len(block), line)
        line = yield from self._stretch(found, at, len(block), line)
        self._recall(block, len(block))
        return line

    def _without_fields(self, block: bytes) -> tuple[bytes, Hits]:
        """The block without what was learned to be in the way, and its hits.

        A command line can hold a needle, and stands in each entry. Once there are many hits,
        the fields of one entry that have some are learned.
        """
        block, hits = self._searched(block)
        if len(hits.looked_for) > len(block) // _DENSE and len(self._fields) < _FIELDS:
            learned = self._in_the_way(block)
            if learned:
                self._fields = (*self._fields, *learned)
                block, hits = self._searched(block)
        return block, hits

    def _in_the_way(self, block: bytes) -> list[bytes]:
        """Texts of the first line's other fields that hold a needle and that many lines share.

        Neighbouring fields as one text, where they stay the same together: one pass drops all.
        """
        fields = list(_FIELD.finditer(block, 0, block.find(b"\n")))
        others = [each for each in fields if each[1].decode() not in READ]
        runs: list[list[re.Match[bytes]]] = []
        for each in others:
            if runs and block[runs[-1][-1].end() : each.start()].strip() == b",":
                runs[-1].append(each)
            else:
                runs.append([each])
        usual = block.count(b"\n") // _SHARED
        found: list[bytes] = []
        for run in runs:
            whole = block[run[0].start() : run[-1].end()]
            texts = [whole] if block.count(whole) > usual else [each[0] for each in run]
            found += [text for text in texts if self._matcher.hits(text).looked_for]
        return [text for text in found if block.count(text) > usual]

    def _searched(self, block: bytes) -> tuple[bytes, Hits]:
        for text in self._fields:
            block = _without(text, block)
        return block, self._matcher.hits(block)

    def _windowed(
        self, block: bytes, at: int, stop: int, line: int
    ) -> Generator[Item, None, tuple[int, int]]:
        """Lines without a hit, as far as a window goes; returns where the rest begins, and the
        number of the line there."""
        while at < stop and self._windows:
            end = block.find(b"\n", at)
            entry = self._judged(line, block[at:end])
            if entry is not None:
                yield line, entry
            at, line = end + 1, line + 1
        return at, line

    def _stretch(self, found: _Found, at: int, stop: int, line: int) -> Generator[Item, None, int]:
        """Lines without a hit, outside of windows; returns the number of the line at `stop`."""
        block, decode = found.block, found.decode
        low, high = bisect_left(decode, at), bisect_left(decode, stop)
        for begin, entry in self._routine(found, at, stop, decode[low:high][-1:]):
            middle = bisect_left(decode, begin, low, high)
            if middle > low:
                yield line, DecodeRun(line, at, block, decode[low:middle])
            line, low = line + block.count(b"\n", at, begin), middle
            at = begin
            yield line, entry
        if high > low:
            yield line, DecodeRun(line, at, block, decode[low:high])
        return line + block.count(b"\n", at, stop)

    def _judged(self, line: int, raw: bytes, *, known: bool = False) -> Entry | None:
        """The entry of a line, if it matters by what its message says, or follows what does. Of
        a `known` one it is known by its bytes whether it is a decode line or a routine one."""
        entry = self._parse(line, raw)
        if entry is None:
            return None
        message = entry.message
        if self._windows.feed(entry) or self._matcher.matches(message):
            return entry
        unseen = not known and (
            DECODE in message or any(sort.accepts(message) for sort in self._sorts)
        )
        return entry if unseen else None

    def _routine(
        self, found: _Found, at: int, stop: int, last_decode: list[int]
    ) -> list[tuple[int, Entry]]:
        """Where the routine lines begin that are passed on of a stretch, with their entries."""
        passed: dict[int, Entry] = {}
        places = [each[bisect_left(each, at) : bisect_left(each, stop)] for each in found.routine]
        cut = max(last_decode, default=0)
        for sort, mine in zip(self._sorts, places, strict=True):
            last = _entries(sort, found.block, reversed(mine), 1)
            passed |= last
            if sort.resets:
                cut = max((cut, *last))
        for sort, mine in zip(self._sorts, places, strict=True):
            if sort.most > 1 and len(mine) > 1:
                after = mine[bisect_left(mine, cut) :]
                passed |= _entries(sort, found.block, mine, 1)
                passed |= _entries(sort, found.block, after, sort.most)
                passed |= _entries(sort, found.block, reversed(after), sort.most)
        return sorted(passed.items())

    def _recall(self, block: bytes, start: int) -> None:
        """Show the parser the line of text that an indented one at `start` may continue."""
        begin = start
        for _ in range(_RECALLED):
            if begin == 0:
                return  # in a block before, which showed its last one
            begin = block.rfind(b"\n", 0, begin - 1) + 1
            if block[begin : begin + 1] not in _NO_HEAD:
                self._lines.feed(block[begin : block.find(b"\n", begin)])
                return


def _entries(sort: Routine, block: bytes, places: Iterable[int], most: int) -> dict[int, Entry]:
    """The first `most` of the lines at `places` that are of this sort, by where they begin."""
    found: dict[int, Entry] = {}
    for place in places:
        begin = block.rfind(b"\n", 0, place) + 1
        entry = entry_from_line(block[begin : block.find(b"\n", place)])
        if sort.accepts(entry.message):
            found[begin] = entry
        if len(found) == most:
            break
    return found


def _without(text: bytes, block: bytes) -> bytes:
    """`block.replace(text, …)` by an empty field, in half the time: bytes.replace turns to
    another algorithm for long texts, which is slow where they are found often."""
    key, rest = text[:_KEY], text[_KEY:]
    head, *parts = block.split(key)
    kept = [b'"":""' + part[len(rest) :] if part.startswith(rest) else key + part for part in parts]
    return b"".join((head, *kept))
