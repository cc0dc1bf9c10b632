"""The journal, read and filtered on the host; entries go over the wire as journalctl's JSON."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import threading
import time
from typing import Any, Dict, List, Optional

from . import probe, tools
from . import unit as units
from .errors import HostFault
from .streams import Stream

# Shipping all fields costs three times as much as these.
FIELDS = (
    "MESSAGE,PRIORITY,SYSLOG_IDENTIFIER,_PID,_SYSTEMD_INVOCATION_ID,INVOCATION_ID,"
    "_SOURCE_REALTIME_TIMESTAMP"
)
BASE = ["journalctl", "--output=json", "--output-fields=" + FIELDS, "--all", "--no-pager", "-q"]

# What journalctl says of a regular expression that it cannot compile, with PCRE2's reason.
_BAD_PATTERN = re.compile(r'Bad pattern "(.*)": (.+)', re.DOTALL)
# SD_MESSAGE_JOURNAL_DROPPED (sd-messages.h); its text since systemd 209 (journald-server.c).
DROPPED = "a596d6fe7bfa4994828e72309e95d61e"
_SUPPRESSED = re.compile(r"Suppressed (\d+) messages from (\S+)")

Entry = Dict[str, Any]


def scope(unit: str, invocation: Optional[str]) -> List[str]:
    """The matches for one start, PID 1's own lines about it included, or for the unit.

    `_SYSTEMD_INVOCATION_ID` alone misses "Main process exited, status=9/KILL".
    """
    if invocation:
        return ["_SYSTEMD_INVOCATION_ID=" + invocation, "+", "INVOCATION_ID=" + invocation]
    return ["--unit=" + unit]


def read(
    unit: str,
    invocation: Optional[str] = None,
    lines: int = 20000,
    telling: Optional[str] = None,
) -> Dict[str, Any]:
    """The last `lines` entries of a start, as `entries`; as `facts` whether that is all there was.

    Of the entries before those, up to as many that match the regular expression `telling` come
    along: a long-running server's journal is filtered here, since JSON of all of it takes
    minutes. `left_out`: whether there were others.
    """
    entries = query(unit, invocation, lines)
    left_out = len(entries) >= lines
    if left_out and telling is not None:
        latest = {entry.get("__CURSOR") for entry in entries}
        early = query(unit, invocation, lines, telling)
        entries = [entry for entry in early if entry.get("__CURSOR") not in latest] + entries
    return {"entries": entries, "facts": facts(unit, invocation), "left_out": left_out}


def first(unit: str, invocation: Optional[str], grep: Optional[str] = None) -> Optional[Entry]:
    """The first entry, or the first that matches; None without one.

    From the start on, and not further than need be: what a start says once, such as that it
    is ready, it says near its beginning, and --grep with --lines would read from the end.
    """
    # Into a pipe journalctl writes 4 KiB at a time: one match would come when it ends.
    argv = [*(["stdbuf", "--output=L"] if shutil.which("stdbuf") else []), *BASE]
    if grep is not None:
        argv.append("--grep=" + grep)
    argv += scope(unit, invocation)
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        timer = threading.Timer(50.0, process.kill)
        timer.start()
        try:
            for line in process.stdout:
                if line.startswith(b"{"):
                    return dict(json.loads(line))
            return None
        finally:
            timer.cancel()
            process.kill()


def facts(
    unit: str, invocation: Optional[str] = None, since: Optional[float] = None
) -> Dict[str, Any]:
    """How much of a start the journal still has. Times are Unix seconds on this host.

    {started: when the unit's main process began, None unless `invocation` is the present one;
    begins: the time of its first entry that is left, None without any; suppressed: what the
    rate limit dropped, [{time, count}]}. journald says that in its own log, not in the unit's,
    and only with the unit's next line after the drop: of a process that died, perhaps never.
    """
    began = first(unit, invocation)
    begins = seconds_of(began)
    argv = ["journalctl", "--output=json", "--output-fields=MESSAGE,_TRANSPORT", "--no-pager", "-q"]
    after = begins if since is None else since
    if after is not None:
        argv.append("--since=@%.6f" % after)
    argv.append("MESSAGE_ID=" + DROPPED)
    suppressed: List[Dict[str, Any]] = []
    for entry in _entries(argv):
        found = _SUPPRESSED.match(str(entry.get("MESSAGE")))
        # Whoever can write to the journal could say the same.
        if found and found.group(2) == unit and entry.get("_TRANSPORT") == "driver":
            suppressed.append({"time": seconds_of(entry), "count": int(found.group(1))})
    return {"started": _started(unit, invocation), "begins": begins, "suppressed": suppressed}


def _started(unit: str, invocation: Optional[str]) -> Optional[float]:
    argv = ["systemctl", "show", "--property=InvocationID,ExecMainStartTimestampMonotonic"]
    done = tools.run([*argv, "--", unit])
    shown = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    ticks = shown.get("ExecMainStartTimestampMonotonic", "")
    if not ticks.isdigit() or ticks == "0" or invocation not in (None, shown.get("InvocationID")):
        return None
    return time.time() - (time.monotonic() - int(ticks) / 1e6)


def seconds_of(entry: Optional[Entry]) -> Optional[float]:
    """When journald took the entry in."""
    stamp = str((entry or {}).get("__REALTIME_TIMESTAMP", ""))
    return int(stamp) / 1e6 if stamp.isdigit() else None


def query(
    unit: str,
    invocation: Optional[str] = None,
    lines: int = 20000,
    grep: Optional[str] = None,
    since: Optional[float] = None,
) -> List[Entry]:
    """The last `lines` entries, oldest first; `since` is Unix time in seconds on this host.

    Raises:
        HostFault: `grep` is no regular expression (`bad_pattern`), or the journal cannot be read.
    """
    argv = [*BASE, "--lines=%d" % lines]
    if since is not None:
        argv.append("--since=@%.6f" % since)
    if grep is not None:
        # With --grep and --lines journalctl would reverse the order by itself.
        argv += ["--grep=" + grep, "--reverse"]
    entries = _entries([*argv, *scope(unit, invocation)])
    return entries if grep is None else entries[::-1]


def _entries(argv: List[str]) -> List[Entry]:
    done = tools.run(argv, timeout=50)
    # --grep without a match exits 1 and says nothing.
    bad = _BAD_PATTERN.match(done.stderr.strip())
    if done.returncode != 0 and bad and any(word.startswith("--grep=") for word in argv):
        raise HostFault(
            "bad_pattern",
            "%r is not a regular expression: %s" % (bad.group(1), bad.group(2)),
            "a sign that stands for itself needs a backslash, such as '\\['",
        )
    if done.returncode != 0 and done.stderr.strip():
        raise HostFault("journal_failed", "journalctl failed: %s" % done.stderr.strip())
    return [json.loads(line) for line in done.stdout.split("\n") if line.startswith("{")]


class Follower:
    """`journalctl --follow` of one start, read without blocking; of what stands after the
    cursor `after`, if one is named."""

    def __init__(self, unit: str, invocation: str, after: str = "") -> None:
        argv = [*BASE, "--follow", "--lines=all"]
        argv += ["--after-cursor=" + after] if after else []
        argv += scope(unit, invocation)
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=tools.environment(),
        )
        assert self._process.stdout is not None
        self._descriptor = self._process.stdout.fileno()
        self._rest = b""

    def read(self, timeout: float) -> List[Entry]:
        """Entries that arrive within `timeout` seconds; returns at the first batch."""
        ready, _, _ = select.select([self._descriptor], [], [], timeout)
        if not ready:
            return []
        data = os.read(self._descriptor, 1 << 20)
        if not data:
            # journalctl ended (vacuumed away, killed): the unit's state still speaks.
            time.sleep(timeout)
            return []
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in whole if line.startswith(b"{")]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def watch(
    stream: Stream,
    unit: str,
    ignore: str = "",
    interval: float = 0.5,
    heartbeat: float = 1.0,
    *,
    after: str = "",
) -> None:
    """Send {"unit": properties} at each change of state and at least every `heartbeat` s,
    and {"entries": [...]} of the invocation of the moment as they are written.

    Entries come as soon as journald has them; the state is looked at every `interval` s and
    at once after a line of PID 1, which is what a start, an exit or a restart writes.
    The entries of the invocation `ignore`, which may be weeks of them, are not sent, nor those
    up to the cursor `after`.
    """
    follower: Optional[Follower] = None
    invocation = ""
    shown: Dict[str, Any] = {}
    shown_at = looked_at = 0.0
    try:
        while not stream.cancelled.is_set():
            now = time.monotonic()
            if now - looked_at >= interval:
                looked_at = now
                state = units.show(unit)
                if _differs(state, shown) or now - shown_at >= heartbeat:
                    shown, shown_at = state, now
                    state["read_bytes"] = probe.read_bytes_of(str(state.get("ControlGroup") or ""))
                    stream.send({"unit": state})
                if state.get("InvocationID", "") != invocation:
                    if follower is not None:
                        _drain(stream, follower)
                        follower.close()
                    invocation = state.get("InvocationID", "")
                    wanted = invocation not in ("", ignore)
                    follower = Follower(unit, invocation, after) if wanted else None
            if follower is None:
                stream.cancelled.wait(min(interval, 0.1))
                continue
            entries = follower.read(min(interval, 0.25))
            if entries:
                stream.send({"entries": entries, "time": time.time()})
                if any(entry.get("INVOCATION_ID") for entry in entries):
                    looked_at = 0.0
    finally:
        if follower is not None:
            follower.close()


def _drain(stream: Stream, follower: Follower) -> None:
    """The last words of a start that is over."""
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        entries = follower.read(0.1)
        if not entries:
            return
        stream.send({"entries": entries, "time": time.time()})


def _differs(now: Dict[str, Any], before: Dict[str, Any]) -> bool:
    keys = ("ActiveState", "SubState", "InvocationID", "NRestarts", "Result", "MainPID")
    return any(now.get(key) != before.get(key) for key in keys)
