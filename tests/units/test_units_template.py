"""The unit that production and the lab share, and systemd's quoting in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsctl import resources
from opsctl.errors import UsageError
from opsctl.inventory.models import Service
from opsctl.units import template
from opsctl.units.template import render_dropin, render_unit

TEMPLATES = resources.bundled("unit-templates")


def service(**changes: Any) -> Service:
    fields: dict[str, Any] = {
        "unit": "sglang-k26-ddtree.service",
        "python": "/root/sglang/.venv/bin/python",
        "port": 30001,
        "model": {"path": "/root/models/Kimi-K2.6", "served_name": "kimi-k2.6"},
        "load": {"budget": "15m"},
        "launch": {
            "environment": {"HF_HUB_OFFLINE": "1"},
            "args": ["--tp-size=8", "--page-size=1"],
        },
    }
    return Service.model_validate({**fields, **changes})


def settings(unit: str) -> dict[str, list[str]]:
    """A unit's settings, continuation lines joined; comments left out."""
    found: dict[str, list[str]] = {}
    for line in re.sub(r"\\\n\s*", "", unit).splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def unquote(text: str) -> list[str]:
    """A systemd setting's words, after systemd.syntax(7), with specifiers and $$ resolved."""
    words = []
    for quoted, plain in re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', text):
        word = plain or re.sub(
            r"\\(.)", lambda m: {"n": "\n", "t": "\t", "r": "\r"}.get(m[1], m[1]), quoted
        )
        words.append(word.replace("%%", "%"))
    return words


def test_command_line_of_production() -> None:
    (command,) = settings(render_unit(service(), TEMPLATES))["ExecStart"]
    assert command == (
        "/root/sglang/.venv/bin/python -m sglang.launch_server "
        "--model-path /root/models/Kimi-K2.6 --served-model-name kimi-k2.6 "
        "--host 0.0.0.0 --port 30001 --tp-size=8 --page-size=1 $OPSCTL_EXTRA_ARGS"
    )


def test_one_argument_a_line() -> None:
    unit = render_unit(service(), TEMPLATES)
    assert "    --tp-size=8 \\\n    --page-size=1 \\\n    $OPSCTL_EXTRA_ARGS\n" in unit


def test_what_production_relies_on() -> None:
    found = settings(render_unit(service(launch={"stop_timeout": "1.5m"}), TEMPLATES))
    assert found["Type"] == ["exec"]
    assert found["SuccessExitStatus"] == ["SIGKILL"]
    assert found["KillMode"] == ["mixed"]
    assert found["TimeoutStopSec"] == ["90"]
    assert found["LogRateLimitIntervalSec"] == ["0"]
    assert found["SyslogIdentifier"] == ["sglang-k26-ddtree"]
    # Three loads of up to 900 s each, and three refusals, fit into the window that counts starts.
    assert found["StartLimitIntervalSec"] == ["3720"]
    assert found["StartLimitBurst"] == ["3"]


def test_no_launch_section_is_enough() -> None:
    unit = render_unit(service(launch={}), TEMPLATES)
    assert "    --port 30001 \\\n    $OPSCTL_EXTRA_ARGS\n" in unit
    assert settings(unit)["Environment"] == ["PYTHONUNBUFFERED=1", "OPSCTL_EXTRA_ARGS="]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", "plain"),
        ("", '""'),
        ("a b", '"a b"'),
        ("50%", "50%%"),
        ("$HOME", "$$HOME"),
        ('say "hi"', '"say \\"hi\\""'),
        ("it's", '"it\'s"'),
        ("C:\\x", '"C:\\\\x"'),
        ("two\nlines", '"two\\nlines"'),
        (";", '";"'),
        ('{"a": [1]}', '"{\\"a\\": [1]}"'),
    ],
)
def test_argument(value: str, written: str) -> None:
    assert template.argument(value) == written


def test_environment_keeps_its_dollars() -> None:
    launch = {"environment": {"PROMPT": "100% of $HOME"}}
    unit = render_unit(service(launch=launch), TEMPLATES)
    assert 'Environment="PROMPT=100%% of $HOME"' in unit.splitlines()


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=30))
def test_quoting_can_be_undone(text: str) -> None:
    assert unquote(template.quoted(text)) == [text]


@pytest.mark.parametrize(
    "changes",
    [
        {"launch": {"args": ["a\0b"]}},
        {"launch": {"environment": {"A": "\x1b[0m"}}},
        {"launch": {"environment": {"A B": "1"}}},
        {"launch": {"environment": {"": "1"}}},
        {"launch": {"user": "root\nExecStartPre=/bin/false"}},
        {"model": {"path": "/m", "served_name": "a\nExecStartPre=/bin/false"}},
    ],
)
def test_a_value_that_no_unit_can_hold(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="cannot be rendered") as caught:
        render_unit(service(**changes), TEMPLATES)
    assert "inventory.yaml" in caught.value.remedy


def test_missing_template_names_those_there() -> None:
    with pytest.raises(UsageError, match=r"no unit template 'x\.j2'") as caught:
        render_unit(service(launch={"template": "x.j2"}), TEMPLATES)
    assert "sglang.service.j2" in caught.value.remedy


def test_template_outside_the_folder() -> None:
    with pytest.raises(UsageError, match="no unit template"):
        render_unit(service(launch={"template": "../pyproject.toml"}), TEMPLATES)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{% if %}", r"x\.j2:1: "), ("{{ service.nothing }}", "no attribute 'nothing'")],
)
def test_faulty_template(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.j2").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        render_unit(service(launch={"template": "x.j2"}), tmp_path)


def test_dropin() -> None:
    dropin = render_dropin(
        TEMPLATES, lab="a", shim="/opt/x", fault_file="/run/f", arguments=["--device=cpu", "--x"]
    )
    environment = settings(dropin)["Environment"]
    assert "PYTHONPATH=/opt/x" in environment
    assert "CPU_ATTN_FAULT_FILE=/run/f" in environment
    assert '"OPSCTL_EXTRA_ARGS=--device=cpu --x"' in environment


@pytest.mark.parametrize("word", ["a b", "", "%n", "$HOME", '"'])
def test_dropin_refuses_what_would_be_split_otherwise(word: str) -> None:
    with pytest.raises(UsageError, match="extra arguments"):
        render_dropin(TEMPLATES, lab="a", shim="/x", fault_file="/f", arguments=[word])
