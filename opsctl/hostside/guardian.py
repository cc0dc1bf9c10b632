"""The guard's process: wait for the lock, and put the service right if its holder was lost.

What it does when it gets the lock and the terms still stand:

- The generation on disk is concluded already: the client died after its last word. Nothing.
- The new version is loading, within its budget: wait, since another client may come back and
  confirm it, and a load is never cut short. Unconfirmed when the budget is over, or dead: restore.
- Anything else (stopped, half swapped, dead): restore at once.

To restore is: stop, put the recorded generation back, start, and see it answer. One that does not
come up gives way to the terms' fallback. A step that fails, on a full disk say, is tried again
until it succeeds. After a reboot the files are put
back before the service starts, which waits for this unit for as long as they are a mixture.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import socket
import sys
import threading
import time
from typing import Any, Callable, Dict, Optional, Tuple

from . import audit, guard, notice, probe, tools
from . import install as installed
from . import unit as units
from .errors import HostFault
from .holder import end_holder
from .state import Lock, Record, State, lock_holder
from .swap import differs, swap

WHO = "the guard on this host"

# Seconds.
_POLL = 0.25
_RETRY = 10.0
_TELLING_TURN = 3  # a step that fails so often needs somebody
_STOP_BOUND = 600.0
_JOB_BOUND = 60.0
_GRACE = 30.0  # past the load's budget, for a client that comes back to confirm
_CONCLUDED = ("confirmed", "unconfirmed")
# Faults that trying again does not mend, nor time.
_UNKNOWN = ("state_damaged", "generation_missing")
# With an API key the server answers so, and it answers only when it is up.
_ANSWERS = (200, 401, 403)


class Guardian:
    """One run of the guard's unit, for the service whose state folder is `root`."""

    def __init__(self, root: str, say: Callable[[str], None]) -> None:
        folder, service = os.path.split(os.path.normpath(root))
        self._state = State(folder, service)
        self._lock = Lock()
        self._say = say
        self._located: Optional[Tuple[Any, Dict[str, Any]]] = None
        self._rebooted = self._is_ready = False
        self._swapped = 0.0  # when, by the monotonic clock

    def run(self) -> int:
        """Until the rollout has ended or its service is put right; the exit status."""
        terms = guard.terms(self._state)
        self._rebooted = terms is not None and terms["boot_id"] != probe.boot_id()
        if not self._rebooted:
            self._ready()
        while True:
            why = self._await_lock()
            if why is None:
                self._ready()
                return 0
            terms = guard.terms(self._state)
            if terms is None or self._concluded(terms):
                guard.disarm(self._state)
                self._lock.release()
                self._ready()
                return 0
            if self._is_ready and self._may_load(terms):
                self._lock.release()
                time.sleep(1.0)
                continue
            self._put_right(terms, why)
            return 0

    def _ready(self) -> None:
        """From here on the service may start; at a boot it waits for this."""
        if not self._is_ready:
            self._is_ready = True
            _notify("READY=1")

    def _await_lock(self) -> Optional[str]:
        """Why the guard has the lock now, or None when the rollout has ended."""
        began = time.monotonic()
        why = "the host rebooted" if self._rebooted else "its client was lost"
        while True:
            if not guard.wanted(self._state):
                return None
            try:
                self._take()
                return why
            except (HostFault, OSError):
                pass
            if self._whole():
                self._ready()
            terms = guard.terms(self._state)
            if terms is not None and time.monotonic() > self._deadline(terms, began):
                why = "its client gave no sign of life"
                end_holder(self._state, self._token(terms))
            time.sleep(_POLL)

    def _deadline(self, terms: Record, began: float) -> float:
        """The terms' own is by the clock of their boot."""
        return float(began + terms["within"] if self._rebooted else terms["deadline"])

    def _token(self, terms: Record) -> Optional[str]:
        """Of the holder that counts as hung; after a reboot that is nobody the terms know."""
        if not self._rebooted:
            return str(terms["token"])
        return (lock_holder(self._state) or {}).get("token")

    def _whole(self) -> bool:
        """Whether the files are of one version, whichever."""
        try:
            return self._state.swap_under_way() is None
        except HostFault:
            return False

    def _take(self) -> None:
        self._lock.take(self._state, {"who": WHO, "why": "a rollout was lost", "token": WHO})

    def _concluded(self, terms: Record) -> bool:
        if not self._whole():
            return False
        try:
            current = self._state.current()
        except HostFault:
            return False
        if current is None or current["number"] != terms.get("target"):
            return False
        return current["status"] in _CONCLUDED

    def _may_load(self, terms: Record) -> bool:
        """Whether the new version is loading or serving, and its budget is not over yet."""
        if not self._whole() or not self._differs(terms, self._locate_once):
            return False
        shown = units.show(terms["site"]["unit"])
        if not _loads(shown) or int(shown.get("NRestarts") or 0) > 0:
            return False  # it died once already
        return bool(time.monotonic() < _started(shown) + terms["budget"] + _GRACE)

    def _differs(self, terms: Record, locate: Callable[[Record], Dict[str, Any]]) -> bool:
        """Whether the disk is not the generation to restore. `locate` finds the package."""
        if terms["to"] is None:
            return False
        try:
            return differs(self._state, locate(terms), terms["to"])
        except HostFault:
            return True

    def _locate_once(self, terms: Record) -> Dict[str, Any]:
        """For the looks of one holding-off: they are a second apart, each would start the
        service's Python beside a load, and the package does not move meanwhile."""
        if self._located is None or self._located[0] != terms.get("armed"):
            self._located = (terms.get("armed"), self._install(terms))
        return self._located[1]

    @staticmethod
    def _install(terms: Record) -> Dict[str, Any]:
        site = terms["site"]
        found = installed.locate(site["python"], site["distribution"], site["package"])
        return dict(found, python=site["python"], unit=site["unit"])

    # -- putting it right ----------------------------------------------------------------

    def _put_right(self, terms: Record, why: str) -> None:
        began = time.monotonic()
        self._say("acting for %s: %s" % (terms["site"]["unit"], why))
        audit.note(self._state, "guard.acts", who=WHO, why=why, lost=terms.get("who"))
        content: Record = {
            "why": why,
            "token": terms["token"],
            "who": terms.get("who"),
            "command": terms.get("command"),
            "from": self._recorded(),
            "to": terms["to"],
            "gave_up": None,  # a generation that did not come up
            "left": "",  # why the files were left as they were
            "at": time.time(),
            "serving": terms["serving"],
            "healthy": None,
            "error": "",
        }
        self._bring_up(terms, content)
        fallback = terms.get("fallback")
        if content["healthy"] is False and fallback is not None:
            self._say("generation %s does not come up, so back to %s" % (terms["to"], fallback))
            content.update(to=fallback, gave_up=terms["to"])
            self._bring_up(dict(terms, to=fallback), content)
        content["seconds"] = round(time.monotonic() - began, 1)
        self._finish(terms, content)

    def _bring_up(self, terms: Record, content: Record) -> None:
        """The files of the terms' generation in place and, if it has to, the service up on them."""
        unit = terms["site"]["unit"]
        if terms["to"] is not None:
            self._again(terms, content, lambda: self._restore_or_leave(terms, content))
        self._ready()
        invocation = ""
        if terms["serving"]:
            self._again(terms, content, lambda: _start(unit, self._swapped))
            invocation = str(units.show(unit).get("InvocationID"))
        self._conclude(terms, content)
        if terms["serving"]:
            content["healthy"] = self._see_healthy(terms, invocation)

    def _restore_or_leave(self, terms: Record, content: Record) -> None:
        """With its records damaged nobody can say how to go back: what is whole serves as it is."""
        try:
            self._restore_files(terms)
        except HostFault as fault:
            if fault.code not in _UNKNOWN or not self._whole():
                raise
            self._say("the files are left as they are: %s" % fault.message)
            content.update(to=None, left=fault.message)

    def _restore_files(self, terms: Record) -> None:
        if self._state.swap_under_way() is None and not self._differs(terms, self._install):
            return
        _stop(terms["site"]["unit"])
        done = swap(self._state, self._install(terms), terms["to"])
        self._swapped = time.monotonic()
        self._say("generation %s is back: %d files" % (terms["to"], len(done["changed"])))
        if done["starting"]:
            self._say("these may have imported of both versions: pid %s" % done["starting"])

    def _again(self, terms: Record, content: Record, action: Callable[[], None]) -> None:
        """Until it works. What stands in the way is in the report meanwhile, and told once."""
        for turn in itertools.count(1):
            try:
                action()
            except (HostFault, OSError) as error:
                text = error.message if isinstance(error, HostFault) else str(error)
                self._say("not yet: %s" % text)
                if self._whole():
                    self._ready()
                if content["error"] != text:
                    content["error"] = text
                    with contextlib.suppress(OSError):
                        guard.write_report(self._state, content)
                if turn == _TELLING_TURN:
                    kept = notice.stored(self._state)
                    notice.tell_of_guard(self._state, kept, terms, content, self._say)
                time.sleep(_RETRY)
            else:
                content["error"] = ""
                return

    def _see_healthy(self, terms: Record, invocation: str) -> bool:
        """Whether the server answers within its budget, in the start that this guard made."""
        site = terms["site"]
        deadline = time.monotonic() + terms["budget"]
        while time.monotonic() < deadline:
            shown = units.show(site["unit"])
            state = shown.get("ActiveState")
            if state == "failed" or shown.get("InvocationID") != invocation:
                self._say("it died again: %s is %s" % (site["unit"], state))
                return False
            if state == "active" and _answers(site["listen"], site["port"]):
                return True
            time.sleep(1.0)
        return False

    def _recorded(self) -> Optional[int]:
        with contextlib.suppress(HostFault):
            current = self._state.current()
            return None if current is None else int(current["number"])
        return None

    def _conclude(self, terms: Record, content: Record) -> None:
        """The lost deploy's generation did not stay, and its record says so."""
        target = terms.get("target")
        if target is None or target == terms["to"]:
            return
        with contextlib.suppress(HostFault, OSError):
            record = self._state.generation(target)
            if record["status"] == "staged":
                reason = "the guard put generation %s back: %s" % (terms["to"], content["why"])
                verdict = {"verdict": "fail", "code": "guard", "reasons": [reason]}
                record.update(status="rolled_back", verdict=verdict)
                self._state.save(record)

    def _finish(self, terms: Record, content: Record) -> None:
        with contextlib.suppress(OSError):
            guard.write_report(self._state, content)
        details = {k: content[k] for k in ("from", "to", "gave_up", "healthy", "seconds", "why")}
        audit.note(self._state, "guard.done", who=WHO, **details)
        kept = notice.stored(self._state)
        guard.disarm(self._state)
        # Under the lock still, so that the report is this rollout's.
        if notice.tell_of_guard(self._state, kept, terms, content, self._say):
            with contextlib.suppress(OSError):
                guard.write_report(self._state, content)
        self._lock.release()
        self._say("done: %s" % details)


def _loads(shown: Dict[str, Any]) -> bool:
    """Loading or serving. Of a unit that tells when it is ready (Type=notify), or that has an
    ExecStartPost, the load is `activating`, and so is the wait before an automatic restart."""
    state, detail = shown.get("ActiveState"), str(shown.get("SubState"))
    if state == "activating":
        return not detail.startswith("auto-restart")
    return state == "active" and detail == "running"


def _started(shown: Dict[str, Any]) -> float:
    """When the present start of a unit began, by the host's monotonic clock."""
    return int(shown.get("InactiveExitTimestampMonotonic") or 0) / 1e6


def _stop(unit: str) -> None:
    """Down, whatever it was doing; a stop that is under way already is waited for."""
    done = tools.run(["systemctl", "stop", "--", unit], timeout=_STOP_BOUND)
    if done.returncode != 0:
        raise HostFault("unit_job_failed", done.stderr.strip())


def _start(unit: str, swapped: float) -> None:
    """Up. A start by somebody else counts if it was after the files changed, at `swapped`."""
    before = units.show(unit)
    while before.get("ActiveState") in ("active", "activating", "reloading"):
        if _started(before) >= swapped:
            return
        _stop(unit)
        before = units.show(unit)
    units.control(unit, "start")
    # Queued, since before a READY at boot it would wait for this very process. Its InvocationID
    # is new once the job runs, which is after the end of a stop that the lost client had begun.
    deadline = time.monotonic() + _JOB_BOUND
    while True:
        shown = units.show(unit)
        if shown.get("InvocationID") != before.get("InvocationID"):
            return
        if shown.get("ActiveState") == "deactivating":
            deadline = time.monotonic() + _JOB_BOUND  # TimeoutStopSec bounds that
        if time.monotonic() > deadline:
            raise HostFault("unit_job_failed", "the start of %s is queued and does not run" % unit)
        time.sleep(0.1)


def _answers(listen: str, port: int) -> bool:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(listen, listen)  # noqa: S104
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", "/v1/models")
        return connection.getresponse().status in _ANSWERS
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _notify(text: str) -> None:
    """sd_notify(3), without its library."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(text.encode(), address)


def _show_life() -> None:
    """For the unit's WatchdogSec (sd_watchdog_enabled(3)), beside whatever takes its time."""
    span = float(os.environ.get("WATCHDOG_USEC") or 0) / 1e6

    def show() -> None:
        while True:
            _notify("WATCHDOG=1")
            time.sleep(span / 4)

    if span:
        threading.Thread(target=show, daemon=True).start()


def main(root: str) -> None:
    """The guard's unit; what it says goes to its journal."""

    def say(text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    _show_life()
    sys.exit(Guardian(root, say).run())
