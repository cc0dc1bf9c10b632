"""Where a journal is read from: plain or packed bytes, in blocks of whole lines."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final, cast

from opsctl.errors import UsageError

# Read and searched at once. Larger ones are no faster; memory is a small multiple of it.
BLOCK: Final = 4 << 20
# journald's own limit for a field is far below (LineMax=48K, and 64 MiB for native senders).
LONGEST_LINE: Final = 16 << 20
_SNIFFED: Final = 1 << 16

_PACKED: Final[tuple[tuple[bytes, Callable[[BinaryIO], object]], ...]] = (
    (b"\x1f\x8b", lambda stream: gzip.GzipFile(fileobj=stream)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
)
_CUT: Final = (EOFError, OSError, zlib.error, lzma.LZMAError)
_VERBOSE: Final = re.compile(rb"^[A-Z][a-z]{2} \d{4}-\d\d-\d\d [\d:.]+ \S+ \[s=[0-9a-f]+;", re.M)


def opened(stream: BinaryIO) -> BinaryIO:
    """`stream`, unpacked if it is packed, and readable by `Reader`.

    Raises:
        UsageError: these bytes are a journal in a form that is not read here.
    """
    ahead = cast("io.BufferedReader", _peekable(stream))
    head = ahead.peek(8)
    for magic, unpack in _PACKED:
        if head.startswith(magic):
            ahead = cast("io.BufferedReader", _peekable(cast(BinaryIO, unpack(ahead))))
            break
    try:
        head = ahead.peek(_SNIFFED)[:_SNIFFED]
    except _CUT:
        head = b""
    _refuse(head)
    return cast(BinaryIO, ahead)


def _peekable(stream: BinaryIO) -> BinaryIO:
    if hasattr(stream, "peek") and isinstance(stream, io.BufferedReader):
        return stream
    return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, stream), _SNIFFED))


def _refuse(head: bytes) -> None:
    again = "journalctl --all --output=json"
    if head.startswith(b"LPKSHHRH"):
        raise UsageError("this is journald's own file", remedy=f"{again} --file=FILE")
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        raise UsageError("this file is packed by zstd", remedy="zstd -dc FILE, and a pipe")
    if head.startswith(b"__CURSOR=") or b"\n__REALTIME_TIMESTAMP=" in head:
        raise UsageError("this is journalctl's export format", remedy=again)
    if _VERBOSE.match(head) or head.startswith(b"{\n"):
        raise UsageError("one entry takes several lines here", remedy=again)


def blocks(stream: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """(whole lines, each with its newline; whether the last of them was cut short).

    The last line of all is cut where the packed stream breaks off, and any line is where it is
    longer than `LONGEST_LINE`; a newline takes the place of what is missing.
    """
    rest, broken = b"", False
    while not broken:
        try:
            data = stream.read(BLOCK)
        except _CUT:  # a packed file that ends early: what came before is whole
            data, broken = b"", True
        if not data:
            break
        whole = data.rfind(b"\n") + 1
        if whole:
            yield b"".join((rest, memoryview(data)[:whole])), False  # copied once
            rest = data[whole:]
        else:
            rest += data
        if len(rest) > LONGEST_LINE:
            yield rest[:LONGEST_LINE] + b"\n", True
            rest = _to_line_end(stream)
    if rest or broken:
        yield rest + b"\n", broken


def _to_line_end(stream: BinaryIO) -> bytes:
    """Skip the rest of a line; returns what was read of those after it."""
    while data := stream.read(BLOCK):
        _, newline, after = data.partition(b"\n")
        if newline:
            return bytes(after)
    return b""
