"""Text of a journal made safe to match, show and store."""

from __future__ import annotations

import re
from typing import Final

# CSI and OSC sequences, and the two-byte escapes (ECMA-48 sections 5.3 and 5.4).
_ANSI: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
# The same in UTF-8, for whole blocks; none of them spans a line there.
ANSI_BYTES: Final = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])"
    rb"|\xc2\x9b[0-?]*[ -/]*[@-~]"
)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")


def clean(text: str) -> str:
    r"""`text` without terminal codes, one progress update a line, and safe to encode.

    `\r` ends a line (tqdm redraws with it), so each redraw becomes a line of its own;
    other control characters and lone surrogates appear as ``\xNN`` and ``\uNNNN``.
    """
    if text.isascii() and text.isprintable():  # nearly every line
        return text
    text = _ANSI.sub("", text)
    if "\r" in text:
        segments = (part.strip("\n") for part in re.split(r"\r\n?", text))
        text = "\n".join(part for part in segments if part)
    text = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
