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
_MOST: Final = 10_000


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
        for feed in self._feeds:
            feed.join(1.0)

    def take(self, wait: float = 0.0) -> int:
        """Take in all that has been heard; where that is nothing yet, wait for it so many seconds.
        How many events it was."""
        count = 0
        models = {model.name: model for model in self.models}
        try:
            heard = self._queue.get(timeout=wait) if wait else self._queue.get_nowait()
            while True:
                models[heard.host].feed(heard.what, heard.at)
                count += 1
                heard = self._queue.get_nowait()
        except queue.Empty:
            return count

    def settle(self, timeout: float) -> None:
        """Take in what a first look can find out, of every host that answers in time (seconds)."""
        deadline = time.monotonic() + timeout
        while not all(model.settled for model in self.models):
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self.take(min(left, 0.2))
