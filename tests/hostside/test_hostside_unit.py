"""systemctl's command lines and answers, with a stand-in for systemctl."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostside_tools import put_tool

from opsctl.hostside import unit
from opsctl.hostside.errors import HostFault

pytest_plugins = ["hostside_fixtures"]


def told(root: Path) -> list[str]:
    return [
        line for line in (root / "told").read_text().splitlines() if not line.startswith("show")
    ]


@pytest.mark.parametrize(
    ("verb", "commands"),
    [
        ("start", ["reset-failed -- s.service", "--no-block start -- s.service"]),
        ("restart", ["reset-failed -- s.service", "--no-block restart -- s.service"]),
        ("stop", ["--no-block stop -- s.service"]),
        ("reset-failed", ["--no-block reset-failed -- s.service"]),
        ("daemon-reload", ["daemon-reload"]),
    ],
)
def test_control(tmp_path: Path, tools: Path, verb: str, commands: list[str]) -> None:
    assert tools.is_dir()
    assert unit.control("s.service", verb)["ActiveState"] == "inactive"
    assert told(tmp_path) == commands


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("verb", ["kill", "mask", "", "start; rm"])
def test_no_other_verb(tmp_path: Path, verb: str) -> None:
    with pytest.raises(HostFault) as caught:
        unit.control("s.service", verb)
    assert caught.value.code == "unknown_verb"
    assert not (tmp_path / "told").exists()


def test_show_keeps_systemds_names(tmp_path: Path, tools: Path) -> None:
    assert tools.is_dir()
    (tmp_path / "unit").write_text(
        "ActiveState=active\nExecStart={ path=/x ; argv[]=/x --a=b ; }\nodd\n\n"
    )
    shown = unit.show("-s.service")
    assert shown["ExecStart"] == "{ path=/x ; argv[]=/x --a=b ; }"
    assert "odd" not in shown
    assert shown["monotonic_us"] > 0
    line = (tmp_path / "told").read_text().strip()
    assert line.endswith(" -- -s.service")
    assert "InvocationID,NRestarts" in line


def test_a_job_that_systemd_refuses(tools: Path) -> None:
    put_tool(tools, "systemctl", "echo 'Unit s.service not found.' >&2; exit 5")
    with pytest.raises(HostFault) as caught:
        unit.control("s.service", "start")
    assert (caught.value.code, caught.value.message) == (
        "unit_job_failed",
        "Unit s.service not found.",
    )
    with pytest.raises(HostFault) as caught:
        unit.show("s.service")
    assert caught.value.code == "systemd_unreachable"
    assert caught.value.remedy


def test_a_tool_that_is_missing_or_hangs() -> None:
    with pytest.raises(HostFault) as caught:
        unit.run(["/nonexistent/systemctl", "show"])
    assert caught.value.code == "tool_missing"
    with pytest.raises(HostFault) as caught:
        unit.run(["sleep", "20"], timeout=0.1)
    assert (caught.value.code, caught.value.message) == (
        "tool_hangs",
        "`sleep 20` gave no answer within 0 s",
    )
