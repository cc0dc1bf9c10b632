"""One service on one host, in conversation: what every step is given."""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from opsctl.errors import LockHeld, OpsctlError, Unreachable, UsageError
from opsctl.events import Emit, Event, ignore
from opsctl.inventory import Host, Service
from opsctl.journal import Entry, Gap, gaps
from opsctl.rollout import guard_text, lock_text
from opsctl.sglang import Completions, SglangClient
from opsctl.transport import Remote, Subscription
from opsctl.transport.threads import ThreadedTransport
from opsctl.units.properties import Unit

Connect = Callable[[], AbstractContextManager[Remote]]

# After a lost connection in mid-rollout the way back is tried for so long, seconds.
RECONNECT_FOR = 120.0
# During a rollout this side speaks so often, and after that much silence the host takes it for
# lost: a laptop that fell asleep with the service stopped must not keep it so.
_ALIVE_EVERY, _ALIVE_PATIENCE = 5.0, 60.0

# What of a long start's journal is fetched whole, and what is fetched of the lines before that:
# a start's own, and all that an incident could show in. In one round trip, filtered on the host:
# docs/performance.md says why not by every needle of the rules.
_LINES = 20_000
_TELLING = (
    r"server_args=|fired up|[Ee]rror\b|Exception|Traceback|[Oo]ut of memory|[Ww]atchdog|SIG[A-Z]{3}"
    r"|crashed|exited|[Kk]illed|NaN|Xid|timed out|Retract"
)


@dataclass(frozen=True, slots=True)
class StartJournal:
    """What the host has of a start's journal, oldest first, and what that is known to lack.
    `left_out`: lines without a word of an incident were not fetched."""

    entries: list[Entry]
    invocation: str = ""
    gaps: tuple[Gap, ...] = ()
    left_out: bool = False


@dataclass(slots=True)
class Session:
    """A connection that can be made again, and the service it is about."""

    host: Host
    service: Service
    connect: Connect
    package: str = "sglang"
    emit: Emit = ignore
    # Tells our own lock, left by a connection that was lost, from somebody else's.
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    tells_of_guard: bool = True  # at the first use, which costs a round trip
    _remote: Remote | None = None
    _told: object = None  # the guard's report that was told already
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def remote(self) -> Remote:
        """The connection, made at the first use.

        Raises:
            Unreachable: it cannot be made.
        """
        if self._remote is None:
            self._remote = self._stack.enter_context(self.connect())
            if self.tells_of_guard:
                self._tell_of_the_guard()
        return self._remote

    def _tell_of_the_guard(self) -> None:
        """What it did while nobody was there, once; of our own rollout the engine tells."""
        with contextlib.suppress(OpsctlError):  # a real fault shows itself at the next call
            report = self.lock_state()["report"]
            told, self._told = self._told, report
            if report not in (None, told) and report.get("token") != self.token:
                self.emit(Event("guard", "warn", guard_text.describe(report)))

    def reconnect(self) -> None:
        """Drop a dead connection and make a new one, for as long as `RECONNECT_FOR`."""
        self.close()
        for attempt in Retrying(
            retry=retry_if_exception_type(Unreachable),
            stop=stop_after_delay(RECONNECT_FOR),
            wait=wait_fixed(2),
            reraise=True,
        ):
            with attempt:
                _ = self.remote

    def close(self) -> None:
        self._remote = None
        with contextlib.suppress(OSError, EOFError):
            self._stack.close()
        self._stack = contextlib.ExitStack()

    @property
    def site(self) -> dict[str, Any]:
        """The service as the host program takes it."""
        return {
            "service": self.service.name,
            "unit": self.service.unit,
            "python": self.service.python,
            "distribution": self.service.distribution,
            "package": self.package,
            "listen": self.service.listen,
            "port": self.service.port,
            "state_dir": self.service.state_dir,
        }

    def call(self, op: str, *, timeout: float = 60.0, **params: Any) -> Any:
        """A host operation about this service."""
        return self.remote.call(op, timeout=timeout, site=self.site, **params)

    def inspect(self, *, audit: bool = False) -> dict[str, Any]:
        facts: dict[str, Any] = self.call("inspect", audit=audit, timeout=180)
        return facts

    def lock(self, why: str, wait: float = 0.0) -> None:
        """Take the lock of the service, for which `wait` seconds may pass.

        Raises:
            LockHeld: somebody else has it: who, since when, and what to do about it.
        """
        self.keep_alive()  # first: a lock whose holder is cut off now must not last for hours
        deadline = time.monotonic() + wait
        told = ""
        while True:
            try:
                self.call("lock", who=whoami(), why=why, token=self.token)
                return
            except LockHeld as error:
                now = self.lock_state()
                if time.monotonic() >= deadline:
                    name = self.host.name
                    raise lock_text.held(now, name, waited=wait, said=error.message) from None
                if not told:
                    told = lock_text.describe(now["holder"])
                    self.emit(Event("lock", "info", f"waiting: {told}"))
                time.sleep(1.0)

    def lock_state(self) -> dict[str, Any]:
        """{holder, by_guard, terms, report}: who holds the lock and whether that is the guard on
        the host, what the guard waits for, and what it last did; no look at anything else."""
        found: dict[str, Any] = self.call("lock_state")
        return found

    def keep_alive(self) -> None:
        """From now on silence of this side means to the host that it is lost."""
        self.remote.keep_alive(_ALIVE_EVERY, _ALIVE_PATIENCE)

    def unit(self) -> Unit:
        return Unit.from_show(self.remote.call("unit_state", unit=self.service.unit))

    def control(self, verb: str, *, speculative: bool = True) -> Unit:
        """Queue a job of the unit's. Without speculation it is so until opsctl starts it again."""
        found = self.call("unit_control", verb=verb, who=whoami(), speculative=speculative)
        return Unit.from_show(found)

    def watch(self, ignore: str = "", **how: Any) -> Subscription:
        """Of `opsctl.hostside.journal.watch`, which takes `how` as well."""
        return self.remote.stream("watch", unit=self.service.unit, ignore=ignore, **how)

    def journal(
        self,
        invocation: str | None,
        *,
        lines: int = 20000,
        since: float | None = None,
        grep: str | None = None,
    ) -> list[Entry]:
        """Entries of one start, or of the unit without `invocation`; oldest first."""
        shown = self.remote.call(
            "journal",
            timeout=60,
            unit=self.service.unit,
            invocation=invocation,
            lines=lines,
            since=since,
            grep=grep,
        )
        return [Entry.from_json(entry) for entry in shown]

    def read(self, invocation: str, lines: int = _LINES, *, timeout: float = 120.0) -> StartJournal:
        """All that a diagnosis needs of a start's journal, or of the unit's without
        `invocation`; its gaps. Before the last `lines` only up to as many that may tell."""
        found = self.remote.call(
            "journal_read",
            timeout=timeout,
            unit=self.service.unit,
            invocation=invocation or None,
            lines=lines,
            telling=_TELLING,
        )
        entries = [Entry.from_json(entry) for entry in found["entries"]]
        told = [gap for line, entry in enumerate(entries) for gap in gaps.told_by(line, entry)]
        known = (*gaps.of_host(found["facts"]), *told)
        return StartJournal(entries, invocation, known, bool(found["left_out"]))

    def first(self, invocation: str | None, grep: str) -> Entry | None:
        """The first entry of a start that matches: looked for from its beginning."""
        found = self.remote.call(
            "journal_first",
            timeout=60,
            unit=self.service.unit,
            invocation=invocation,
            grep=grep,
        )
        return Entry.from_json(found) if found else None

    @contextlib.contextmanager
    def client(self) -> Iterator[SglangClient]:
        """The server's HTTP endpoints: directly, or through the connection.

        Raises:
            UsageError: the API key's reference cannot be read.
        """
        transport = self.remote.http() if self._through_ssh else None
        with self._checked():
            client = SglangClient(self._url, api_key=self._api_key(), transport=transport)
        try:
            yield client
        finally:
            client.close()

    def completions(self, version: str | None = None) -> Completions:
        """The same server for many requests at once. Raises as `client` does."""
        transport = ThreadedTransport(self.remote.http()) if self._through_ssh else None
        with self._checked():
            return Completions(self._url, self._api_key(), transport, version)

    @property
    def _through_ssh(self) -> bool:
        return self.service.endpoint == "ssh"

    @property
    def _url(self) -> str:
        if not self._through_ssh:
            return self.service.endpoint
        host = self.service.connect_host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.service.port}"

    def _api_key(self) -> str | None:
        if self.service.api_key is None:
            return None
        try:
            return self.service.api_key.read()
        except LookupError as error:
            raise UsageError(
                f"the API key of {self.service.name}: {error}",
                remedy="set what api_key in the inventory refers to",
                code="secret_missing",
            ) from None

    @contextlib.contextmanager
    def _checked(self) -> Iterator[None]:
        """What httpx says of an address or a key that it cannot use, as a mistake in the
        inventory."""
        try:
            yield
        except (ValueError, httpx.InvalidURL) as error:
            secret = isinstance(error, UnicodeError)  # whose text would show a part of the key
            what = "its API key is not ASCII text" if secret else f"its endpoint: {error}"
            raise UsageError(
                f"{self.service.name}: {what}",
                remedy="correct it in the inventory, or what it names",
            ) from None


def whoami() -> str:
    """Who deploys, for the lock and the record: the CI's actor, or user@machine."""
    actor = os.environ.get("GITHUB_ACTOR") or os.environ.get("GITLAB_USER_LOGIN")
    try:
        user = actor or getpass.getuser()
    except (KeyError, OSError):  # a uid without a name, as in some containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
