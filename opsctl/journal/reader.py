"""A journal of any size and form as entries, in constant memory; those that matter, if told so.

With a `Selection` most lines are never parsed: each block of bytes is searched for all needles
at once, and decode lines, which are most lines of a long journal, come as a `DecodeRun`.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Final

from opsctl.journal.entry import Entry
from opsctl.journal.gaps import NEEDLES, Clock, Gap, told_by
from opsctl.journal.lines import Lines, entry_from_line
from opsctl.journal.prefilter import Item, Prefilter, Selection
from opsctl.journal.source import Source, blocks
from opsctl.journal.text import ANSI_BYTES

_SERVING: Final = re.compile(rb"Decode batch|Prefill batch")
_STARTING: Final = (b"server_args=", b"Load weight begin", b"Started ")
_TAIL: Final = 1 << 16  # bytes
_REALTIME: Final = re.compile(rb'"__REALTIME_TIMESTAMP" ?: ?"(\d+)"')
_MONOTONIC: Final = re.compile(rb'"__MONOTONIC_TIMESTAMP" ?: ?"(\d+)"')
_BOOT: Final = re.compile(rb'"_BOOT_ID" ?: ?"([0-9a-f]+)"')


@dataclass(slots=True)
class Reader:
    """Iterated once. `lines` and `size` (bytes, unpacked) count what has been read so far, and
    `gaps` are what the input is known to lack.

    Raises:
        UsageError: when iterated: the input is a journal in a form that is not read here.
    """

    stream: BinaryIO
    selection: Selection | None = None
    lines: int = 0
    size: int = 0
    gaps: list[Gap] = field(default_factory=list)
    _parser: Lines = field(default_factory=Lines)
    _clock: Clock = field(default_factory=Clock)
    _tail: bytes = b""
    _begun: bool = False  # whether it is known if the start's first lines are there

    def __iter__(self) -> Iterator[Item]:
        read = self._all
        if self.selection is not None:
            wanted = replace(self.selection, needles=(*self.selection.needles, *NEEDLES))
            read = Prefilter(wanted, self._parser, self._entry).read
        for raw, cut in blocks(Source(self.stream)):
            block = ANSI_BYTES.sub(b"", raw) if b"\x1b" in raw else raw
            self._look(block)
            self._tail = (self._tail + block)[-_TAIL:] if len(block) < _TAIL else block[-_TAIL:]
            self.lines = yield from read(block, self.lines)
            self.size += len(raw)
            if cut:
                text = "the input breaks off, or a line is too long to read"
                self.gaps.append(Gap("cut", self.lines - 1, text))

    def backwards(self) -> Iterator[Entry]:
        """The last entries of what was read, the last one first: whatever they say, they tell
        how long it went on."""
        for raw in reversed(self._tail.split(b"\n")[1:-1]):
            if (entry := entry_from_line(raw)).message:
                yield entry

    def _all(self, block: bytes, line: int) -> Generator[Item, None, int]:
        for raw in block[:-1].split(b"\n"):
            entry = self._entry(line, raw)
            if entry is not None:
                yield line, entry
            line += 1
        return line

    def _entry(self, line: int, raw: bytes) -> Entry | None:
        """The entry of a line, its gaps noted; None where it is none."""
        cut = self._parser.cut
        entry = self._parser.feed(raw)
        if self._parser.cut > cut:
            self.gaps.append(Gap("cut", line, "a line of JSON breaks off"))
        if entry is not None:
            self.gaps.extend(told_by(line, entry))
        return entry

    def _look(self, block: bytes) -> None:
        """For gaps that no line tells of."""
        self._look_at_clock(block[: block.find(b"\n")])  # once a block is often enough
        if self._begun:
            return
        serving = _SERVING.search(block)
        stop = len(block) if serving is None else serving.start()
        starting = any(block.find(text, 0, stop) >= 0 for text in _STARTING)
        self._begun = starting or serving is not None
        if serving is not None and not starting:
            line = self.lines + block.count(b"\n", 0, stop)
            text = "the first lines of the start are not in it"
            self.gaps.append(Gap("midway", line, text))

    def _look_at_clock(self, head: bytes) -> None:
        realtime, monotonic = _REALTIME.search(head), _MONOTONIC.search(head)
        if realtime is None or monotonic is None:
            return
        boot = _BOOT.search(head)
        name = boot[1].decode("ascii") if boot else ""
        gap = self._clock.see(self.lines, name, int(realtime[1]), int(monotonic[1]))
        if gap is not None:
            self.gaps.append(gap)
