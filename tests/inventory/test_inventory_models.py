"""Durations and the models' own rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from opsctl.inventory import Service, Ssh, parse_duration


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (90, 90.0),
        (0.5, 0.5),
        ("90", 90.0),
        ("90s", 90.0),
        ("15m", 900.0),
        ("1.5h", 5400.0),
        ("250ms", 0.25),
        (" 2 m ", 120.0),
    ],
)
def test_a_duration_in_seconds(value: object, seconds: float) -> None:
    assert parse_duration(value) == seconds


@pytest.mark.parametrize(
    "value",
    ["", "m", "-5s", "1m30s", "1,5h", "5 M", "1e3", "0", "0ms", 0, -1, True, None, [], "٣s"],
)
def test_what_is_no_duration(value: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(value)


@pytest.mark.parametrize(
    "value",
    [
        *("24.1h", "86401", 86401, 1e300, 10**400, "9" * 400, "9" * 400 + "h"),
        *(float("inf"), "inf", "nan", float("nan"), "-1", -1.0, "0h"),
    ],
)
def test_what_no_load_or_wait_takes(value: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(value)
    assert parse_duration("24h") == 86400


@given(st.integers(1, 24), st.sampled_from([("ms", 0.001), ("s", 1), ("m", 60), ("h", 3600)]))
def test_every_unit_scales(number: int, unit: tuple[str, float]) -> None:
    assert parse_duration(f"{number}{unit[0]}") == pytest.approx(number * unit[1])


@given(st.text(max_size=12))
def test_any_text_is_a_duration_up_to_a_day_or_a_value_error(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert 0 < seconds <= 86400


@pytest.mark.parametrize(
    ("listen", "connect"),
    [("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("", "127.0.0.1"), ("10.0.0.5", "10.0.0.5")],
)
def test_the_address_to_connect_to(listen: str, connect: str) -> None:
    service = Service.model_validate(
        {
            "unit": "a.service",
            "python": "/p",
            "port": 1,
            "model": {"path": "/m", "served_name": "m"},
            "listen": listen,
        }
    )
    assert service.connect_host == connect


def test_values_are_frozen() -> None:
    ssh = Ssh(address="a")
    with pytest.raises(ValidationError, match="frozen"):
        ssh.address = "b"


SERVICE = {
    "unit": "serve.service",
    "python": "/p",
    "port": 1,
    "model": {"path": "/m", "served_name": "m"},
}


@pytest.mark.parametrize(
    "change",
    [
        {"unit": "serve.service\n"},
        {"distribution": "sglang\n"},
        {"patch_set": "ddtree\n"},
        {"state_dir": "/var/lib/opsctl\n"},
        {"endpoint": "ssh\n"},
        {"launch": {"drop_ins": {"a.conf\n": ""}}},
    ],
)
def test_a_newline_at_the_end_is_no_part_of_a_name(change: dict[str, object]) -> None:
    Service.model_validate(SERVICE)
    with pytest.raises(ValidationError):
        Service.model_validate(SERVICE | change)
