"""Lines that count for what came before them in their process: a traceback's frames and its
exception, and what goes on of a user's text that had newlines in it.

The reader passes them on, whatever they say, and the diagnosis takes what comes after them for
something else: both by this one rule, so that what was left out makes no difference.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from opsctl.journal.entry import Entry
from opsctl.journal.redact import without_user_text

# Entries of one process after a head, unless so many in a row begin with a tag of their own:
# then its traceback is over.
WINDOW: Final = 400
SETTLED: Final = 20
# … and of all processes together: one that fell silent is not waited for.
WINDOW_OF_ALL: Final = 4000

TRACEBACK: Final = "Traceback (most recent call last)"
# One of these is in each entry that the next ones may belong to: a traceback, one whose head is
# not in the input, and those whose words before it tell that somebody handles it.
HEADS: Final = (
    TRACEBACK, '  File "', "ASGI application", "Task exception was never retrieved",
    "Exception ignored in",
)  # fmt: skip
_RECORD: Final = re.compile(r"\[\d{4}-\d\d-\d\d |INFO: ")


def opens(message: str) -> bool:
    """Whether the next lines of its process count, whatever they say."""
    if any(head in message for head in HEADS):
        return True
    return any(without_user_text(line)[1] for line in message.split("\n"))


@dataclass(slots=True)
class Windows:
    """Fed with entries in their order; true while a process is within its window."""

    _left: dict[int | None, int] = field(default_factory=dict)
    _settled: dict[int | None, int] = field(default_factory=dict)  # own records in a row
    _left_of_all: int = 0

    def __bool__(self) -> bool:
        return bool(self._left)

    def holds(self, pid: int | None) -> bool:
        """Whether the next entry of this process is in its window."""
        return pid in self._left

    def feed(self, entry: Entry) -> bool:
        """Take in the next entry. True if it is in the window of its process, or opens one."""
        follows = bool(self._left) and self._follows(entry)
        if opens(entry.message):
            self._left[entry.pid], self._settled[entry.pid] = WINDOW, 0
            self._left_of_all = WINDOW_OF_ALL
            return True
        return follows

    def _follows(self, entry: Entry) -> bool:
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
