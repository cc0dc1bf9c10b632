"""Which lines of a journal say nothing to who looks at its tail."""

from __future__ import annotations

import re
from typing import Final

from opsctl.journal.silence import ACCESS

# Calls that went well: a busy server prints several a second, and this very command some. What
# /get_load says of itself at each call goes with them (http_server.py:655 in 0.5.12.post1).
_DEPRECATED: Final = re.compile(r"Endpoint '/get_load' is deprecated")


def is_routine(message: str) -> bool:
    """Whether each line is a call that was answered with 2xx, or nothing at all."""
    return all(_says_nothing(line.strip()) for line in message.split("\n"))


def _says_nothing(line: str) -> bool:
    found = ACCESS.match(line)
    if found is not None:
        return found["status"].startswith("2")
    return not line or _DEPRECATED.search(line) is not None
