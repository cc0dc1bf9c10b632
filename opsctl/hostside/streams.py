"""What a streaming operation is given: a way to send items, and the word to stop."""

from __future__ import annotations

import threading
from typing import Any, Callable


class Stream:
    def __init__(self, send: Callable[[Any], None]) -> None:
        self.send = send
        self.cancelled = threading.Event()
