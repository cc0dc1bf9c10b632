"""Where a block of raw bytes needs a look: many literals in one pass, by Hyperscan.

JSON writes some characters otherwise than the message has them, so a literal is searched for
by its longest part that every writer leaves alone; lines that could still hide it (a message
given as a list of bytes, escapes below U+0100) are `opaque`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

# Outside of it: quotes, backslashes, non-ASCII, and what Go and others escape for HTML.
_SAFE: Final = re.compile(r"[^\"\\<>&/\x00-\x1f\x7f-\U0010ffff]+")
# `journalctl -o json` before systemd 236 had blanks around the colon.
_OPAQUE: Final = (
    *(f'"MESSAGE"{colon}{value}' for colon in (":", " : ") for value in ("[", "null")),
    r"\u00",
    r"\/",
)
DECODE: Final = "Decode batch"
_NEEDLE, _OPAQUE_ID, _DECODE_ID = range(3)


@dataclass(slots=True)
class Hits:
    """Where matches end in a block, in order."""

    needles: list[int] = field(default_factory=list)
    opaque: list[int] = field(default_factory=list)
    decode: list[int] = field(default_factory=list)  # mentions of a decode line


class Matcher:
    """Compiled once, in milliseconds. A match is no proof: it says where to look.

    Raises:
        ValueError: a literal has no part to search for.
    """

    def __init__(self, needles: Iterable[str], caseless: Iterable[str] = ()) -> None:
        import hyperscan  # native, and of no use to most commands

        wanted = [(_part(text), _NEEDLE, 0) for text in needles]
        wanted += [(_part(text), _NEEDLE, hyperscan.HS_FLAG_CASELESS) for text in caseless]
        wanted += [(text, _OPAQUE_ID, 0) for text in _OPAQUE]
        wanted += [(DECODE, _DECODE_ID, 0)]
        unique = list(dict.fromkeys(wanted))
        self._database = hyperscan.Database()
        self._database.compile(
            expressions=[text.encode() for text, _, _ in unique],
            ids=[kind for _, kind, _ in unique],
            elements=len(unique),
            flags=[flag for _, _, flag in unique],
            literal=True,
        )

    def hits(self, block: bytes) -> Hits:
        """All matches. Their number, not the block's size, is what costs."""
        found = Hits()
        lists = (found.needles, found.opaque, found.decode)

        def note(kind: int, begin: int, end: int, flags: int, context: object) -> None:
            lists[kind].append(end)

        self._database.scan(block, match_event_handler=note)
        for each in lists:
            each.sort()  # already so, as a rule; Hyperscan promises nothing
        return found

    def matches(self, text: str) -> bool:
        """Whether a literal is in `text`, as far as its searched part goes."""
        return bool(self.hits(text.encode()).needles)


def _part(text: str) -> str:
    parts = _SAFE.findall(text)
    if not parts:
        raise ValueError(f"nothing to search for in {text!r}")
    return str(max(parts, key=len))
