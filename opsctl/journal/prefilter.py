"""The lines of a block that can matter, found without parsing the others."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Final

from opsctl.journal.decode import DecodeRun, own_lines
from opsctl.journal.entry import READ, Entry
from opsctl.journal.lines import Lines, entry_from_line
from opsctl.journal.matcher import DECODE, Hits, Matcher

Item = tuple[int, Entry | DecodeRun]  # with the number of its (first) line in the input, from 0

# Lines of one process after a head that are passed on, unless so many in a row begin with a tag
# of their own: then its traceback is over.
WINDOW: Final = 400
SETTLED: Final = 20
# … and of all processes together: one that fell silent is not waited for.
WINDOW_OF_ALL: Final = 4000

TRACEBACK: Final = "Traceback (most recent call last)"
# More than a hit in so many bytes is a sign of hits outside of messages; so many fields are kept.
_DENSE: Final = 4000
_FIELDS: Final = 50
_KEY: Final = 32
_SHARED: Final = 50  # a field is learned if one line in so many has the same
_FIELD: Final = re.compile(rb'"([A-Z_0-9]+)" ?: ?"(?:[^"\\]|\\.)*"')
# Lines that journalctl's indented ones do not continue, and how many are looked back through.
_NO_HEAD: Final = {b" ", b"{", b"\n", b"\r"}
_RECALLED: Final = 100
_RECORD: Final = re.compile(r"\[\d{4}-\d\d-\d\d |INFO: ")


@dataclass(frozen=True, slots=True)
class Last:
    """Lines of which only the last counts, such as signs of life: those that contain `needle`
    and whose message `holds`."""

    needle: str
    holds: Callable[[str], bool]

    def accepts(self, message: str) -> bool:
        return self.needle in message and self.holds(message)


@dataclass(frozen=True, slots=True)
class Selection:
    """What matters: a line that contains one of `needles` as it is, or one of `caseless` (in
    lower case) in any case; lines after one of `heads` in the same process, which may be a
    traceback's frames; and decode lines.

    `routine` are texts, as they stand in the input, that lines of a healthy server are full of:
    a needle that is part of one does not count there. Of the lines under `last` the last one
    before anything else that matters, and the last in each block, are passed on all the same.
    """

    needles: Sequence[str] = ()
    caseless: Sequence[str] = ()
    heads: Sequence[str] = (TRACEBACK,)
    routine: Sequence[str] = ()
    last: Sequence[Last] = ()


@dataclass(slots=True)
class _Windows:
    """The processes that said something of late, whose next lines are wanted too."""

    _left: dict[int | None, int] = field(default_factory=dict)
    _settled: dict[int | None, int] = field(default_factory=dict)  # own records in a row
    _left_of_all: int = 0

    def __bool__(self) -> bool:
        return bool(self._left)

    def open(self, pid: int | None) -> None:
        self._left[pid], self._settled[pid], self._left_of_all = WINDOW, 0, WINDOW_OF_ALL

    def wants(self, entry: Entry) -> bool:
        """Whether the next line of all, which is `entry`, is in the window of its process."""
        self._left_of_all -= 1
        left = self._left.get(entry.pid)
        if left is not None:
            settled = self._settled[entry.pid] + 1 if _RECORD.match(entry.message) else 0
            self._left[entry.pid], self._settled[entry.pid] = left - 1, settled
            if left == 1 or settled == SETTLED:
                del self._left[entry.pid]
        if self._left_of_all <= 0:
            self._left.clear()
        return left is not None


class Prefilter:
    """Fed block by block, in order. `parse` gives the entry of a line, by number and bytes.

    Entries come in the order of their lines. A run of decode lines comes at its first line;
    the last of their sort (`Selection.last`) stand between its lines, and come after it.
    """

    def __init__(
        self, selection: Selection, lines: Lines, parse: Callable[[int, bytes], Entry | None]
    ) -> None:
        needles = (*selection.needles, *selection.heads)
        self._selection = selection
        self._fields: tuple[bytes, ...] = ()  # beside the message, that contain a needle
        self._matcher = Matcher(needles, selection.caseless, selection.routine)
        self._lines, self._parse = lines, parse
        self._windows = _Windows()

    def read(self, block: bytes, line: int) -> Generator[Item, None, int]:
        """What matters of whole lines, of which the first is number `line` of the input.

        Returns the number of the line after them.
        """
        block, hits = self._without_fields(block)
        decode = own_lines(block, hits.decode)
        odd = () if len(decode) == len(hits.decode) else set(hits.decode).difference(decode)
        at = 0  # all before it is done
        for end in sorted(hits.looked_for.union(odd)):
            if end <= at:
                continue  # in the line of the hit before
            start = max(block.rfind(b"\n", at, end) + 1, at)
            line = yield from self._between(block, at, start, line, decode)
            at = block.find(b"\n", start) + 1
            if block[start : start + 1] == b" ":
                self._recall(block, start)
            entry = self._judged(line, block[start : at - 1])
            if entry is not None:
                yield line, entry
            line += 1
        line = yield from self._between(block, at, len(block), line, decode)
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

    def _between(
        self, block: bytes, at: int, stop: int, line: int, decode: list[int]
    ) -> Generator[Item, None, int]:
        """Lines without a hit; returns the number of the line at `stop`."""
        while at < stop and self._windows:
            end = block.find(b"\n", at)
            entry = self._judged(line, block[at:end])
            if entry is not None:
                yield line, entry
            at, line = end + 1, line + 1
        places = decode[bisect_left(decode, at) : bisect_left(decode, stop)]
        if places:
            yield line, DecodeRun(line, at, block, places)
        for begin, entry in self._last_ones(block, at, stop):
            yield line + block.count(b"\n", at, begin), entry
        return line + block.count(b"\n", at, stop)

    def _judged(self, line: int, raw: bytes) -> Entry | None:
        """The entry of a line, if it matters by what its message says, or follows what does."""
        entry = self._parse(line, raw)
        if entry is None:
            return None
        message = entry.message
        follows = bool(self._windows) and self._windows.wants(entry)
        if any(head in message for head in self._selection.heads):
            self._windows.open(entry.pid)
            return entry
        if follows or self._matcher.matches(message) or DECODE in message:
            return entry
        return entry if any(last.accepts(message) for last in self._selection.last) else None

    def _last_ones(self, block: bytes, at: int, stop: int) -> list[tuple[int, Entry]]:
        found: list[tuple[int, Entry]] = []
        for last in self._selection.last:
            needle, end = last.needle.encode(), stop
            while (place := block.rfind(needle, at, end)) >= 0:
                end = max(block.rfind(b"\n", at, place) + 1, at)
                entry = entry_from_line(block[end : block.find(b"\n", place)])
                if last.accepts(entry.message):
                    found.append((end, entry))
                    break
        return sorted(found, key=lambda each: each[0])

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


def _without(text: bytes, block: bytes) -> bytes:
    """`block.replace(text, …)` by an empty field, in half the time: bytes.replace turns to
    another algorithm for long texts, which is slow where they are found often."""
    key, rest = text[:_KEY], text[_KEY:]
    head, *parts = block.split(key)
    kept = [b'"":""' + part[len(rest) :] if part.startswith(rest) else key + part for part in parts]
    return b"".join((head, *kept))
