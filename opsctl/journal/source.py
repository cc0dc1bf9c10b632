"""Where a journal is read from: plain or packed bytes, in blocks of whole lines."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, cast

from opsctl.errors import UsageError

# Read and searched at once. Larger ones are no faster; memory is a small multiple of it.
BLOCK: Final = 4 << 20
# journald's own limit for a field is far below (LineMax=48K, and 64 MiB for native senders).
LONGEST_LINE: Final = 16 << 20
_SNIFFED: Final = 1 << 16

_PACKED: Final = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\x00", lzma.open))
_CUT: Final = (EOFError, OSError, zlib.error, lzma.LZMAError)
_VERBOSE: Final = re.compile(rb"[A-Z][a-z]{2} \d{4}-\d\d-\d\d [\d:.]+ \S+ \[s=[0-9a-f]+;")


class Source:
    """`stream`, unpacked if it is packed. `broken` once a packed one turned out to end early.

    Raises:
        UsageError: these bytes are a journal in a form that is not read here.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.broken = False
        self._ahead, self._read = b"", stream.read
        head = self.read(_SNIFFED)
        for magic, unpack in _PACKED:
            if head.startswith(magic):
                packed = io.BufferedReader(_Rejoined(head, stream), _SNIFFED)
                # read1 gives what there is before it fails where the file breaks off.
                self._read = cast(io.BufferedReader, unpack(cast(BinaryIO, packed), "rb")).read1
                head = self.read(_SNIFFED)
                break
        _refuse(head)
        self._ahead = head

    def read(self, size: int) -> bytes:
        """`size` bytes, fewer only at the end; waits for them."""
        parts = [self._ahead[:size]] if self._ahead else []
        self._ahead = self._ahead[size:]
        size -= sum(map(len, parts))
        while size > 0 and not self.broken:
            try:
                data = self._read(size)
            except _CUT:
                self.broken = True
                break
            if not data:
                break
            parts.append(data)
            size -= len(data)
        return b"".join(parts)


class _Rejoined(io.RawIOBase):
    """A stream of which `head` was read already."""

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        self._head, self._stream = head, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._head[: len(buffer)] or self._stream.read(len(buffer))
        self._head = self._head[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def _refuse(head: bytes) -> None:
    again = "journalctl --all --output=json"
    if head.startswith(b"LPKSHHRH"):
        raise UsageError("this is journald's own file", remedy=f"{again} --file=FILE")
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        raise UsageError("this file is packed by zstd", remedy="zstd -dc FILE, and a pipe")
    if head.startswith((b"__CURSOR=", b"__REALTIME_TIMESTAMP=")):
        raise UsageError("this is journalctl's export format", remedy=again)
    if _VERBOSE.match(head) or head.startswith(b"{\n"):
        raise UsageError("one entry takes several lines here", remedy=again)


def blocks(source: Source) -> Iterator[tuple[bytes, bool]]:
    """(whole lines, each with its newline; whether the last of them was cut short).

    The last line of all is cut where a packed stream breaks off, and any line is where it is
    longer than `LONGEST_LINE`; a newline takes the place of what is missing.
    """
    rest = b""
    while data := source.read(BLOCK):
        whole = data.rfind(b"\n") + 1
        if whole:
            yield b"".join((rest, memoryview(data)[:whole])), False  # copied once
            rest = data[whole:]
        else:
            rest += data
        if len(rest) > LONGEST_LINE:
            yield rest[:LONGEST_LINE] + b"\n", True
            rest = _to_line_end(source)
    if rest or source.broken:
        yield rest + b"\n", source.broken


def _to_line_end(source: Source) -> bytes:
    """Skip the rest of a line; returns what was read of those after it."""
    while data := source.read(BLOCK):
        _, newline, after = data.partition(b"\n")
        if newline:
            return after
    return b""
