"""What a host's feed would say, made up."""

from __future__ import annotations

from typing import Any

from opsctl.journal import Entry
from opsctl.units.properties import Unit
from opsctl.watch import heard
from opsctl.watch.model import HostModel

T = 1_800_000_000.0  # by the host's clock, when NOW is by this side's
NOW = 5000.0
ARGS = (
    "server_args=ServerArgs(model_path='/m', api_key='s3cret', speculative_num_draft_tokens=8, "
    "decode_log_interval=4)"
)
READY = "The server is fired up and ready to roll!"
CRASH = (
    "Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/opt/x/site-packages/sglang/srt/managers/scheduler.py", line 9, in event_loop_normal',
    "RuntimeError: CUDA error: an illegal memory access was encountered",
)


def unit(invocation: str = "aaaa1111", at: float = 0.0, **changes: Any) -> Unit:
    """A unit that has been active for 100 s at T, `at` seconds later."""
    shown: dict[str, object] = {
        "Id": "s.service",
        "LoadState": "loaded",
        "ActiveState": "active",
        "SubState": "running",
        "InvocationID": invocation,
        "NRestarts": "0",
        "time": T + at,
        "monotonic_us": str(int((1000 + at) * 1e6)),
        "ActiveEnterTimestampMonotonic": str(int(900e6)),
    }
    return Unit.from_show(shown | changes)


def entry(message: str, at: float, invocation: str = "aaaa1111", **more: Any) -> Entry:
    cursor = f"c{at}{message[:9]}"
    return Entry(T + at, message, pid=7, invocation=invocation, cursor=cursor, **more)


def decode(
    accept: float = 4.0,
    speed: float = 200.0,
    *,
    running: int = 2,
    queue: int = 1,
    usage: float = 0.25,
    graph: bool = True,
    rank: str = "",
) -> str:
    """As 0.5.12 prints it."""
    return (
        f"[2027-01-15 08:00:00{rank}] Decode batch, #running-req: {running}, #token: 100, "
        f"token usage: {usage:.2f}, accept len: {accept:.2f}, accept rate: 0.50, "
        f"cuda graph: {graph}, gen throughput (token/s): {speed:.2f}, #queue-req: {queue}"
    )


def connected(name: str = "ct200", **recorded: Any) -> HostModel:
    """A host that has been heard, and whose journal is read."""
    model = HostModel(name, "serve", budget=900.0)
    facts = {"generation": None, "loads": [], "lock": None, **recorded}
    for what in (
        heard.Connecting(1),
        heard.Connected("root@ct200"),
        heard.Recorded(facts),
        heard.UnitSeen(unit()),
        heard.CaughtUp(),
    ):
        model.feed(what, NOW)
    return model


def say(model: HostModel, *messages: str, at: float = 0.0, invocation: str = "aaaa1111") -> None:
    """Lines of the journal, a tenth of a second apart."""
    entries = [entry(text, at + n / 10, invocation) for n, text in enumerate(messages)]
    model.feed(heard.Entries(entries), NOW + max(at, 0.0))


def serving(name: str = "ct200", **recorded: Any) -> HostModel:
    """A host that decodes."""
    model = connected(name, **recorded)
    say(model, ARGS, READY, at=-60.0)
    say(model, *(decode() for _ in range(10)), at=-1.0)
    return model


def restarted(model: HostModel, invocation: str = "bbbb2222", at: float = 5.0) -> None:
    """systemd has started it again, `at` seconds after T."""
    entered = str(int((1000 + at) * 1e6))
    seen = unit(
        invocation, at, NRestarts="1", ActiveEnterTimestampMonotonic=entered, monotonic_us=entered
    )
    model.feed(heard.UnitSeen(seen), NOW + at)


def lost(model: HostModel, at: float, message: str = "the connection was closed") -> None:
    model.feed(heard.Lost(message, "look at the network", 2.0), NOW + at)
    model.feed(heard.Connecting(2), NOW + at + 2)
