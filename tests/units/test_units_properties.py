"""What `systemctl show` prints, as typed values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsctl.units.properties import Unit, parse_exec, parse_span

# As systemd 252 prints it.
SHOWN: dict[str, object] = {
    "Id": "sglang.service",
    "LoadState": "loaded",
    "ActiveState": "active",
    "SubState": "running",
    "Result": "success",
    "InvocationID": "0123456789abcdef0123456789abcdef",
    "NRestarts": "2",
    "MainPID": "4242",
    "ExecMainStatus": "0",
    "NeedDaemonReload": "no",
    "FragmentPath": "/etc/systemd/system/sglang.service",
    "DropInPaths": "/etc/systemd/system/sglang.service.d/a.conf /run/systemd/x.conf",
    "StartLimitBurst": "5",
    "StartLimitIntervalUSec": "1h",
    "TimeoutStartUSec": "infinity",
    "TimeoutStopUSec": "1min 30s",
    "LogRateLimitIntervalUSec": "0",
    "Type": "exec",
    "Restart": "on-failure",
    "ExecStart": "{ path=/opt/py ; argv[]=/opt/py -m sglang.launch_server --port 30001 ; "
    "ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }",
    "ActiveEnterTimestampMonotonic": "5000000",
    "monotonic_us": 65_000_000,
    "time": 1_700_000_000.5,
    "read_bytes": 12345,
}


def test_a_whole_unit() -> None:
    unit = Unit.from_show(SHOWN)
    assert (unit.name, unit.state, unit.active, unit.down) == (
        "sglang.service",
        "active (running)",
        True,
        False,
    )
    assert (unit.n_restarts, unit.main_pid, unit.read_bytes) == (2, 4242, 12345)
    assert unit.drop_in_paths == (
        "/etc/systemd/system/sglang.service.d/a.conf",
        "/run/systemd/x.conf",
    )
    assert (unit.start_limit_burst, unit.start_limit_interval) == (5, 3600.0)
    assert (unit.timeout_start, unit.timeout_stop, unit.log_rate_limit_interval) == (None, 90, 0)
    assert unit.argv == ("/opt/py", "-m", "sglang.launch_server", "--port", "30001")
    assert unit.active_for == 60.0
    assert unit.time == 1_700_000_000.5
    assert unit.need_daemon_reload is False


def test_a_unit_that_there_is_not() -> None:
    unit = Unit.from_show({"Id": "x.service", "LoadState": "not-found", "ActiveState": "inactive"})
    assert not unit.exists
    assert unit.down
    assert (unit.argv, unit.drop_in_paths, unit.active_for, unit.main_pid) == ((), (), None, 0)


@pytest.mark.parametrize(
    ("active", "sub", "result", "state", "is_active", "down"),
    [
        ("active", "running", "success", "active (running)", True, False),
        ("active", "exited", "success", "active (exited)", False, False),
        ("activating", "auto-restart", "exit-code", "activating (auto-restart)", False, False),
        ("deactivating", "stop-sigterm", "success", "deactivating (stop-sigterm)", False, False),
        ("inactive", "dead", "success", "inactive (dead)", False, True),
        ("failed", "failed", "start-limit-hit", "failed (start-limit-hit)", False, True),
    ],
)
def test_states(
    active: str, sub: str, result: str, state: str, is_active: bool, down: bool
) -> None:
    unit = Unit.from_show({**SHOWN, "ActiveState": active, "SubState": sub, "Result": result})
    assert (unit.state, unit.active, unit.down) == (state, is_active, down)


@pytest.mark.parametrize(
    ("entered", "now", "seconds"),
    [("0", 5, None), ("", 5, None), ("2000000", 5_000_000, 3.0), ("9000000", 5_000_000, None)],
)
def test_how_long_it_is_active(entered: str, now: int, seconds: float | None) -> None:
    shown = {**SHOWN, "ActiveEnterTimestampMonotonic": entered, "monotonic_us": now}
    assert Unit.from_show(shown).active_for == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("infinity", None),
        ("", None),
        ("[not set]", None),
        ("0", 0.0),
        ("90s", 90.0),
        ("1min 30s", 90.0),
        ("15min", 900.0),
        ("1h 30min", 5400.0),
        ("1d 2h", 93600.0),
        ("1month 2d", 2_802_600.0),
        ("1y 1w", 32_162_400.0),
        ("250ms", 0.25),
        ("1s 500ms", 1.5),
        ("100us", 0.0001),
        ("1.5s", 1.5),
    ],
)
def test_spans(text: str, seconds: float | None) -> None:
    assert parse_span(text) == (None if seconds is None else pytest.approx(seconds))


@given(st.integers(1, 59), st.integers(0, 59), st.integers(1, 999))
def test_spans_add_up(minutes: int, seconds: int, millis: int) -> None:
    text = f"{minutes}min {f'{seconds}s ' if seconds else ''}{millis}ms"
    assert parse_span(text) == pytest.approx(minutes * 60 + seconds + millis / 1000)


@given(st.text(max_size=30))
def test_any_text_is_a_span_or_none(text: str) -> None:
    seconds = parse_span(text)
    assert seconds is None or seconds >= 0


@pytest.mark.parametrize("text", ["x", "1.5", "²", "--1", "[not set]", "18446744073709551615 "])
def test_a_number_that_is_none_is_zero(text: str) -> None:
    assert Unit.from_show({**SHOWN, "NRestarts": text}).n_restarts == 0


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("", ()),
        ("{ path=/x ; argv[]=/x ; ignore_errors=no ; }", ("/x",)),
        ("{ path=/x ; argv[]=/x --a  b=c --d='e' ; flags= ; }", ("/x", "--a", "b=c", "--d='e'")),
        ("{ path=/x ; argv[]=/x 1 ; pid=0 } ; { path=/y ; argv[]=/y 2 ; pid=0 }", ("/x", "1")),
    ],
)
def test_arguments(text: str, argv: tuple[str, ...]) -> None:
    assert parse_exec(text) == argv
