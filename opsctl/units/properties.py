"""What a unit's properties mean: `systemctl show` as typed values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

from opsctl.hostside import plain

_SPAN_UNITS = {
    "y": 31557600.0,
    "month": 2629800.0,
    "w": 604800.0,
    "d": 86400.0,
    "h": 3600.0,
    "min": 60.0,
    "s": 1.0,
    "ms": 0.001,
    "us": 0.000001,
}
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(month|min|ms|us|[ywdhs])")


def parse_span(text: str) -> float | None:
    """A time span as systemd prints it, `1min 30s`, in seconds; None for infinity or nothing."""
    if text.strip() == "0":  # systemd prints no unit then
        return 0.0
    parts = _SPAN.findall(text)
    if not parts:
        return None
    return sum(float(number) * _SPAN_UNITS[unit] for number, unit in parts)


def _int(text: str) -> int:
    return int(text) if re.fullmatch(r"-?[0-9]+", text) else 0


@dataclass(frozen=True, slots=True)
class Unit:
    """One look at a unit. `time` is the host's clock, Unix seconds; timeouts are seconds."""

    name: str
    load_state: str
    active_state: str
    sub_state: str
    result: str
    invocation_id: str
    n_restarts: int
    main_pid: int
    exec_main_status: int
    need_daemon_reload: bool
    fragment_path: str
    drop_in_paths: tuple[str, ...]
    type: str
    restart: str
    start_limit_burst: int
    start_limit_interval: float | None
    timeout_start: float | None
    timeout_stop: float | None
    log_rate_limit_interval: float | None
    argv: tuple[str, ...]
    time: float
    active_for: float | None  # seconds in the active state
    read_bytes: int = 0  # by the unit's processes, from disk, so far

    @classmethod
    def from_show(cls, shown: Mapping[str, object]) -> Unit:
        """From the host program's `unit_state`."""

        def text(key: str) -> str:
            return str(shown.get(key) or "")

        entered = _int(text("ActiveEnterTimestampMonotonic"))
        now = _int(text("monotonic_us"))
        return cls(
            name=text("Id"),
            load_state=text("LoadState"),
            active_state=text("ActiveState"),
            sub_state=text("SubState"),
            result=text("Result"),
            invocation_id=text("InvocationID"),
            n_restarts=_int(text("NRestarts")),
            main_pid=_int(text("MainPID")),
            exec_main_status=_int(text("ExecMainStatus")),
            need_daemon_reload=text("NeedDaemonReload") == "yes",
            fragment_path=text("FragmentPath"),
            drop_in_paths=tuple(text("DropInPaths").split()),
            type=text("Type"),
            restart=text("Restart"),
            start_limit_burst=_int(text("StartLimitBurst")),
            start_limit_interval=parse_span(text("StartLimitIntervalUSec")),
            timeout_start=parse_span(text("TimeoutStartUSec")),
            timeout_stop=parse_span(text("TimeoutStopUSec")),
            log_rate_limit_interval=parse_span(text("LogRateLimitIntervalUSec")),
            argv=parse_exec(text("ExecStart")),
            time=float(str(shown.get("time") or 0.0)),
            active_for=(now - entered) / 1e6 if entered and now >= entered else None,
            read_bytes=_int(text("read_bytes")),
        )

    @property
    def exists(self) -> bool:
        return self.load_state not in {"not-found", ""}

    @property
    def active(self) -> bool:
        return self.active_state == "active" and self.sub_state == "running"

    @property
    def plain(self) -> bool:
        """It was started without speculative decoding (`opsctl restart --plain`)."""
        return any(PurePath(path).name == plain.NAME for path in self.drop_in_paths)

    @property
    def down(self) -> bool:
        """Stopped for good, or until somebody starts it."""
        return self.active_state in {"inactive", "failed"}

    @property
    def state(self) -> str:
        """As systemctl shows it: `active (running)`, `failed (exit-code)`."""
        detail = self.result if self.active_state == "failed" else self.sub_state
        return f"{self.active_state} ({detail})"


def parse_exec(text: str) -> tuple[str, ...]:
    """The argument list of an ExecStart property, split at blanks as systemctl joined it."""
    match = re.search(r"argv\[\]=(.*?) ; ", text)
    return tuple(match[1].split()) if match else ()
