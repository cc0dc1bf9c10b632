"""systemctl's command lines and answers, with a stand-in for systemctl."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hostside_tools import put_tool

from opsctl.hostside import journal, unit
from opsctl.hostside import tools as hostside_tools
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


def test_a_tool_gets_no_setting_of_whoever_connects(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SYSTEMD_LOG_LEVEL", "SYSTEMD_PAGER", "SYSTEMD_COLORS", "LC_ALL", "LANGUAGE"):
        monkeypatch.setenv(name, "debug")
    put_tool(tools, "nvidia-smi", "exec env\n")
    lines = set(hostside_tools.run(["nvidia-smi"]).stdout.splitlines())
    shell_adds = {"PWD", "SHLVL", "_", "OLDPWD"}
    assert {line for line in lines if line.partition("=")[0] not in shell_adds} == {
        f"PATH={os.environ['PATH']}",
        "LC_ALL=C.UTF-8",
        "SYSTEMD_COLORS=0",
        "SYSTEMD_PAGER=",
    }
    put_tool(
        tools, "journalctl", """echo "{\\"MESSAGE\\": \\"$SYSTEMD_LOG_LEVEL,$LC_ALL\\"}"; sleep 9"""
    )
    follower = journal.Follower("x.service", "i")
    try:
        assert follower.read(9) == [{"MESSAGE": ",C.UTF-8"}]
    finally:
        follower.close()


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
        hostside_tools.run(["/nonexistent/systemctl", "show"])
    assert caught.value.code == "tool_missing"
    with pytest.raises(HostFault) as caught:
        hostside_tools.run(["sleep", "20"], timeout=0.1)
    assert (caught.value.code, caught.value.message) == (
        "tool_hangs",
        "`sleep 20` gave no answer within 0 s",
    )
