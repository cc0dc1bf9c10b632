"""What the guard tells of what it did: a POST from the host itself, as its client is gone.

The receivers are stored while the guard is armed, in a file of their own: the terms are shown to
whoever asks for them, and a webhook's URL is a secret.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import threading
import time
from typing import Any, Callable, Dict, List, Optional
from urllib.parse import urlsplit

from . import notice_form
from .errors import HostFault
from .install import read_bytes
from .state import Record, State, write_atomically

FILE = "guard-notices.json"

# Seconds: for all receivers together, for one silence, between two tries.
BOUND = 6.0
_SILENCE = 3.0
_PAUSE = 1.0

_ACCEPTED = range(200, 300)
_TOO_MANY, _OWN_FAULT = 429, 500


def store(state: State, terms: Optional[Record]) -> None:
    """Keep {host, next, hooks}, or nothing. `hooks` are {url, form, label} each.

    A disk that is too full for it is no reason not to arm the guard.
    """
    forget(state)
    if terms:
        with contextlib.suppress(OSError):
            write_atomically(state.path(FILE), json.dumps(terms).encode())


def stored(state: State) -> Record:
    """What `store` kept; empty where there is nothing, or it is damaged."""
    with contextlib.suppress(ValueError):
        found = json.loads(read_bytes(state.path(FILE)) or b"{}")
        if isinstance(found, dict) and isinstance(found.get("hooks"), list):
            found["hooks"] = [each for each in found["hooks"] if isinstance(each, dict)]
            return found
    return {}


def forget(state: State) -> None:
    with contextlib.suppress(OSError):
        os.unlink(state.path(FILE))


def tell_of_guard(
    state: State, kept: Record, terms: Record, report: Record, say: Callable[[str], None]
) -> bool:
    """Post what the guard did to whoever is in `kept`, and note in `report` what came of that.

    False where nobody is to be told. A notice that fails changes nothing else.
    """
    if not kept.get("hooks"):
        return False
    report["notices"] = tell(kept["hooks"], of_guard(state, kept, terms, report))
    for outcome in report["notices"]:
        if outcome["error"]:
            say("no notice to %(label)s: %(error)s" % outcome)
    return True


def of_guard(state: State, kept: Record, terms: Record, report: Record) -> Record:
    """The notice of what the guard did, by its `report`, in the terms of `notice_form`."""
    wanted, target = report.get("to"), terms.get("target")
    goal = wanted if target is None else target
    return {
        "event": "guard",
        "at": report.get("at"),
        "command": report.get("command"),
        "host": kept.get("host"),
        "service": terms["site"]["service"],
        "from": _side(state, report.get("from")),
        "to": _side(state, goal),
        "generation": wanted if wanted is not None else report.get("from"),
        "who": report.get("who"),
        "why": terms.get("why"),
        "verdict": "fail",
        "duration_s": report.get("seconds"),
        "code": "guard",
        "cause": _cause(report),
        "summary": _outcome(report),
        "remedy": "the host needs nothing" if report.get("healthy") else "look at the host now",
        "next": kept.get("next"),
    }


def _side(state: State, number: Optional[int]) -> Record:
    name = None
    if number is not None:
        with contextlib.suppress(HostFault):
            of = state.generation(number)["set"]
            name = "%s %s" % (of["name"], of["version"]) if of else None
    return {"generation": number, "set": name}


def _cause(report: Record) -> str:
    return "%s; %s" % (report["why"], _outcome(report))


def _outcome(report: Record) -> str:
    did = "the files are as they were"
    if report["to"] is not None:
        did = "generation %s was made sure of" % report["to"]
    if report.get("gave_up") is not None:
        did += " after generation %s had not come up" % report["gave_up"]
    if report.get("error"):
        return "%s is not done yet: %s" % (did, report["error"])
    if not report["serving"]:
        return "%s; the unit was down before and stays so" % did
    if report["healthy"]:
        return "%s, and the service answers" % did
    return "%s, and the service did NOT come up again" % did


def tell(hooks: List[Record], notice: Record) -> List[Dict[str, str]]:
    """Post to all of them at once; [{label, error}], where an empty error means accepted.

    Takes `BOUND` seconds at most and raises nothing. No error holds a URL.
    """
    outcomes = [{"label": str(each.get("label")), "error": "no answer in time"} for each in hooks]
    deadline = time.monotonic() + BOUND

    def post_one(hook: Record, outcome: Dict[str, str]) -> None:
        try:
            sent = notice_form.body(notice, hook["form"])
            outcome["error"] = _post_in_time(hook["url"], sent, deadline)
        except Exception as error:  # of a damaged file; its text may hold the URL
            outcome["error"] = "cannot be sent: %s" % type(error).__name__

    threads = [
        threading.Thread(target=post_one, args=(hook, outcome), daemon=True)
        for hook, outcome in zip(hooks, outcomes)  # noqa: B905 - `strict` is of Python 3.10
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [dict(outcome) for outcome in outcomes]


def _post_in_time(url: str, sent: bytes, deadline: float) -> str:
    while True:
        error, again = _post(url, sent)
        if not again or time.monotonic() + _PAUSE + _SILENCE > deadline:
            return error
        time.sleep(_PAUSE)


def _post(url: str, sent: bytes) -> "tuple[str, bool]":
    """(what went wrong or "", whether another try may mend it). A redirect is not followed."""
    parts = urlsplit(url)
    kind: Any = http.client.HTTPConnection
    if parts.scheme == "https":
        kind = getattr(http.client, "HTTPSConnection", None)
        if kind is None:
            return "the host's Python has no TLS", False
    path = (parts.path or "/") + ("?" + parts.query if parts.query else "")
    headers = {"Content-Type": "application/json", "User-Agent": "opsctl"}
    with contextlib.closing(kind(parts.hostname, parts.port, timeout=_SILENCE)) as connection:
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            # The certificate's fault is an OSError too, and no time mends it.
            if type(error).__name__ == "SSLCertVerificationError":
                return "its certificate is not trusted", False
            return "no connection", True
        try:
            connection.request("POST", path, sent, headers)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return "no answer", False  # it may have arrived
    if status in _ACCEPTED:
        return "", False
    return "HTTP %d" % status, status == _TOO_MANY or status >= _OWN_FAULT
