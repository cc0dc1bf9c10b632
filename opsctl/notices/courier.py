"""Notices on their way while the work goes on: a thread a webhook, in order, each bounded."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from opsctl.inventory.notices import Webhook
from opsctl.notices.model import Happening, Notice, body
from opsctl.notices.sender import THREADS, NotDelivered, post

Post = Callable[[str, bytes], None]


def named(webhooks: Sequence[Webhook]) -> list[tuple[str, Webhook]]:
    """Each with what it is called in a message, by its place in the inventory's list."""
    return [
        (f"webhook {number} ({webhook.label})", webhook)
        for number, webhook in enumerate(webhooks, 1)
    ]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one notice to one webhook. `error` is empty where it was accepted."""

    webhook: str
    event: Happening
    error: str
    seconds: float


@dataclass(slots=True)
class _Lane:
    """One webhook's notices. A receiver that hangs holds up nobody else's."""

    label: str
    webhook: Webhook
    waiting: queue.SimpleQueue[Notice | None] = field(default_factory=queue.SimpleQueue)
    sent: list[Happening] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    thread: threading.Thread | None = None

    def put(self, notice: Notice, post: Post) -> None:
        if self.thread is None:
            self.thread = threading.Thread(
                target=self._run, args=(post,), name=THREADS, daemon=True
            )
            self.thread.start()
        self.sent.append(notice.event)
        self.waiting.put(notice)

    def _run(self, post: Post) -> None:
        while (notice := self.waiting.get()) is not None:
            began = time.monotonic()
            error = self._deliver(notice, post)
            seconds = round(time.monotonic() - began, 3)
            self.outcomes.append(Outcome(self.label, notice.event, error, seconds))

    def _deliver(self, notice: Notice, post: Post) -> str:
        try:
            post(self.webhook.address(), body(notice, self.webhook.form))
        except LookupError as error:  # names the reference, never the URL
            return str(error)
        except NotDelivered as error:
            return error.reason
        except Exception as error:  # whose text may hold the URL
            return f"a bug: {type(error).__name__}"
        return ""


class Courier:
    """Sends to `webhooks`. No method raises, and only `close` takes time."""

    def __init__(self, webhooks: Sequence[Webhook], post: Post = post) -> None:
        self._post = post
        self._lanes = [_Lane(label, webhook) for label, webhook in named(webhooks)]

    def send(self, notice: Notice) -> None:
        """To every webhook that wants to know of such; returns at once."""
        for lane in self._lanes:
            if notice.event == "test" or notice.event in lane.webhook.on:
                lane.put(notice, self._post)

    def close(self, within: float) -> list[Outcome]:
        """Wait for what is under way, `within` seconds at most and not past a Ctrl-C.

        One outcome for each notice to each webhook, by webhook.
        """
        deadline = time.monotonic() + within
        with contextlib.suppress(KeyboardInterrupt):
            for lane in self._lanes:
                lane.waiting.put(None)
            for lane in self._lanes:
                if lane.thread is not None:
                    lane.thread.join(max(0.0, deadline - time.monotonic()))
        return [outcome for lane in self._lanes for outcome in self._all_of(lane, within)]

    @staticmethod
    def _all_of(lane: _Lane, within: float) -> list[Outcome]:
        done = list(lane.outcomes)
        late = lane.sent[len(done) :]
        unknown = f"not known to have arrived {within:.0f} s after the end"
        return [*done, *(Outcome(lane.label, event, unknown, within) for event in late)]
