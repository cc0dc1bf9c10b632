"""Follows one host and says what it hears, for as long as it may take: a lost connection is made
again. One SSH connection a host; reads only.

Two threads a host: one waits for the unit's state and the journal, the other asks the endpoint,
which may be slow to answer or may hang.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from opsctl.errors import AuthFailed, OpsctlError, Unreachable, UsageError
from opsctl.events import Event
from opsctl.journal import Entry
from opsctl.rollout.session import Session
from opsctl.sglang import ServerError, SglangClient
from opsctl.units.properties import Unit
from opsctl.watch import heard
from opsctl.watch.asking import Endpoint

# The host looks at the unit each second, and says what it saw at least every two.
_LOOK, _HEARTBEAT = 1.0, 2.0
# None of its calls to systemd takes longer than this (`readiness.wait`), seconds.
_SILENCE: Final = 45.0
# Of a start that runs already so much of the journal is fetched: 600 bytes an entry.
_LINES: Final = 500
# Between two tries, seconds; a refusal is not asked for again and again: sshd's logs are read.
_RETRY: Final = (1.0, 2.0, 4.0, 8.0, 15.0)
_RETRY_REFUSED: Final = 60.0
# The endpoint is asked so often while the journal is silent; a busy server tells by itself.
_ASK_EVERY: Final = 10.0
_RECORDED_EVERY: Final = 30.0
_BATCH: Final = ("Decode batch", "Prefill batch")

Say = Callable[[heard.Heard], None]


@dataclass(slots=True)
class Feed:
    """`say` is called from this feed's threads, and may block to slow them down."""

    name: str
    session: Session
    say: Say
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _invocation: str = ""
    _last: Entry | None = None  # the last that was said, of that invocation
    _spoken: float = -math.inf  # monotonic: when the journal last had a batch
    _active: bool = False

    def start(self) -> None:
        self.session.emit = self._note
        self._thread = threading.Thread(target=self._run, name=f"watch-{self.name}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()

    def join(self, timeout: float) -> None:
        """Wait so many seconds for its end; one in the middle of connecting ends by itself."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        attempt = 0
        while not self._over.is_set():
            attempt += 1
            self._tell(heard.Connecting(attempt))
            fault: OpsctlError | None = None
            try:
                self._connect()
                attempt = 0
                self._follow()
            except OpsctlError as error:
                fault = error
            except Exception as error:  # else its last words would be shown as if still true
                message = f"a bug in opsctl: {type(error).__name__}: {error}"
                fault = Unreachable(message, remedy="report it", code="bug")
            finally:
                self.session.close()
            if fault is not None:
                self._wait(attempt, fault)

    def _wait(self, attempt: int, error: OpsctlError) -> None:
        refused = isinstance(error, AuthFailed) or not isinstance(error, Unreachable)
        pause = _RETRY_REFUSED if refused else _RETRY[min(max(attempt, 1), len(_RETRY)) - 1]
        self._tell(heard.Lost(error.message, error.remedy, pause))
        self._over.wait(pause)

    def _connect(self) -> None:
        where = self.session.remote.where
        self.session.keep_alive()  # a half-open connection ends, on the host as well
        self._tell(heard.Connected(where))

    def _follow(self) -> None:
        self._recorded()
        unit = self.session.unit()
        self._see(unit)
        self._catch_up(unit)
        after = self._last.cursor if self._last is not None else ""
        how: dict[str, Any] = {"interval": _LOOK, "heartbeat": _HEARTBEAT, "after": after}
        with self.session.watch(**how) as watch, self._asking():
            self._listen(watch)

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """The endpoint is asked for as long as the connection of this moment lasts."""
        gone = threading.Event()
        with contextlib.ExitStack() as stack:
            try:
                client = stack.enter_context(self.session.client())
            except UsageError as error:  # such as an API key that is not at hand: do without
                self._tell(heard.Note(f"the endpoint is not asked: {error.message}"))
            else:
                stack.callback(gone.set)
                threading.Thread(
                    target=self._ask, args=(client, gone), name=f"ask-{self.name}", daemon=True
                ).start()
            yield

    def _listen(self, watch: Any) -> None:
        spoke = recorded = time.monotonic()
        while not self._over.is_set():
            item = watch.get(0.5)
            now = time.monotonic()
            if item is None:
                if now - spoke > _SILENCE:
                    raise Unreachable(
                        f"no word from the host for {now - spoke:.0f} s", code="host_silent"
                    )
                continue
            spoke = now
            if "unit" in item:
                unit = Unit.from_show(item["unit"])
                if unit.invocation_id != self._invocation or now - recorded > _RECORDED_EVERY:
                    recorded = now
                    self._recorded()
                self._see(unit)
            else:
                self._read([Entry.from_json(entry) for entry in item["entries"]])

    def _recorded(self) -> None:
        """First, so that a start is judged with what is in place for it."""
        self._tell(heard.Recorded(self.session.call("recorded")))

    def _see(self, unit: Unit) -> None:
        self._active = unit.active
        self._tell(heard.UnitSeen(unit))
        if unit.invocation_id:
            self._invocation = unit.invocation_id

    def _catch_up(self, unit: Unit) -> None:
        """What was written before this connection: of the start that was followed before what
        came since, and of another all; its last lines, and the telling ones before those. The
        stream goes on from there."""
        last = self._last
        if last is not None:
            entries = _since(last, self.session.read(last.invocation, _LINES).entries)
            self._read(entries, earlier=True)
        if unit.invocation_id and (last is None or last.invocation != unit.invocation_id):
            self._read(self.session.read(unit.invocation_id, _LINES).entries, earlier=True)
        self._tell(heard.CaughtUp())

    def _read(self, entries: Sequence[Entry], *, earlier: bool = False) -> None:
        if not entries:
            return
        self._last = entries[-1]
        if not earlier and any(text in entry.message for entry in entries for text in _BATCH):
            self._spoken = time.monotonic()
        self._tell(heard.Entries(entries))

    def _ask(self, client: SglangClient, gone: threading.Event) -> None:
        endpoint = Endpoint(client)
        while not gone.is_set():
            if self._active and time.monotonic() - self._spoken > _ASK_EVERY:
                try:
                    answer = endpoint.ask(self._invocation)
                except ServerError as error:
                    answer = heard.Asked(fault=error.message)
                if not gone.is_set():  # else the fault is the connection's
                    self._tell(answer)
            gone.wait(_ASK_EVERY)

    def _note(self, event: Event) -> None:
        if event.message:
            self._tell(heard.Note(f"{event.step}: {event.message}"))

    def _tell(self, what: heard.What) -> None:
        if not self._over.is_set():
            self.say(heard.Heard(self.name, time.monotonic(), what))


def _since(last: Entry, entries: Sequence[Entry]) -> Sequence[Entry]:
    """What follows `last`, by its cursor, or by time where it is not among them."""
    for place, entry in enumerate(entries):
        if entry.cursor == last.cursor:
            return entries[place + 1 :]
    return [entry for entry in entries if entry.realtime > last.realtime]
