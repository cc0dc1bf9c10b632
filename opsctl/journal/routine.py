"""What a healthy server's journal is full of, and so must not be parsed line by line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from opsctl.journal.prefilter import Last, Selection

# As they stand in a journal: JSON escapes the quotes of an access line. A needle inside of them
# ("batch", "accept", "post /", "inf") does not count. Other paths than these are looked at.
_REQUESTS: Final = (
    "POST /v1/chat/completions HTTP/1.1",
    "POST /v1/completions HTTP/1.1",
    "POST /generate HTTP/1.1",
)
_QUOTES: Final = ('"', r"\"")
ROUTINE: Final = (
    "INFO:     ",
    "Prefill batch",
    ", accept len: ",
    ", accept rate: ",
    *(f"{quote}{request}{quote} 200 OK" for request in _REQUESTS for quote in _QUOTES),
)
# Signs of life: an answer, and a batch.
LAST: Final = (
    Last("POST /", lambda message: message.rstrip().endswith("200 OK")),
    Last("Prefill batch", lambda message: True),
)


def selection(needles: Iterable[str]) -> Selection:
    """Of a rule base's needles: lower-case texts, one of which is in each line that matters."""
    return Selection(caseless=tuple(needles), routine=ROUTINE, last=LAST)
