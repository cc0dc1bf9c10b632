"""The hosts of one watch: their feeds in the background, their models here."""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from opsctl.rollout.session import Session
from opsctl.watch.feed import Feed
from opsctl.watch.heard import Heard
from opsctl.watch.model import HostModel

# What waits to be taken in; a feed that is further ahead waits, too, and so does its host.
_MOST: Final = 1000
# Whoever shows it wants to go on; whoever leaves does not wait for a host that is not there.
_TURN: Final = 0.3
_LEAVE: Final = 1.0


@dataclass(slots=True)
class Board:
    """Use it as a context: the feeds run within. Models change in `take` alone, in the thread of
    whoever calls it."""

    sessions: Sequence[Session]
    models: list[HostModel] = field(init=False)
    _feeds: list[Feed] = field(init=False)
    _queue: queue.Queue[Heard] = field(default_factory=lambda: queue.Queue(_MOST))

    def __post_init__(self) -> None:
        self.models = [
            HostModel(each.host.name, each.service.name, each.service.load.budget)
            for each in self.sessions
        ]
        self._feeds = [Feed(each.host.name, each, self._queue.put) for each in self.sessions]

    def __enter__(self) -> Board:
        for feed in self._feeds:
            feed.start()
        return self

    def __exit__(self, *exc: object) -> None:
        for feed in self._feeds:
            feed.end()
        deadline = time.monotonic() + _LEAVE
        for feed in self._feeds:
            feed.join(max(deadline - time.monotonic(), 0.0))

    def take(self, wait: float = 0.0) -> int:
        """Take in what has been heard, for no longer than `_TURN`; where that is nothing yet, wait
        for it so many seconds. How many events it was."""
        count, until = 0, time.monotonic() + wait + _TURN
        models = {model.name: model for model in self.models}
        while time.monotonic() < until:
            try:
                first = wait and not count
                heard = self._queue.get(timeout=wait) if first else self._queue.get_nowait()
            except queue.Empty:
                break
            models[heard.host].feed(heard.what, heard.at)
            count += 1
        return count

    def settle(self, timeout: float) -> None:
        """Take in what a first look can find out, of every host that answers in time (seconds)."""
        deadline = time.monotonic() + timeout
        while not all(model.settled for model in self.models):
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self.take(min(left, 0.2))
