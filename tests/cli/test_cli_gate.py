"""What `opsctl gate` writes beside its report, and when it writes nothing."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cli_tools import invoker

from opsctl.errors import Refused, Unreachable
from opsctl.gate import GateCheck, GateResult
from opsctl.report import Report
from opsctl.rollout import gating, locking

EVIL = "wrong\n::error::not ours"


def result() -> GateResult:
    return GateResult(
        host="alpha", service="serve", outcome="fail", ending="rolled back", exit_code=10,
        summary=EVIL, started_at=1.8e9, duration_s=3.0, patch_set="ddtree@1.1.0",
        checks=(GateCheck("smoke", "lossless", "fail", EVIL, kind="verify_divergence"),),
    )  # fmt: skip


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr(locking, "settle", lambda session, chosen: chosen)
    made = SimpleNamespace(patchset=SimpleNamespace(label="ddtree 1.1.0"))
    monkeypatch.setattr(gating, "plan", lambda *_: made)
    report = Report(command="gate", verdict="fail", exit_code=10, summary="wrong")
    monkeypatch.setattr(gating, "gate", lambda *_: gating.Gated(report, result()))
    monkeypatch.setattr("opsctl.cli.gate.describe", lambda *_: None)
    run = invoker(tmp_path, monkeypatch)
    return lambda *argv: run("gate", "alpha", "--yes", *argv)


def test_every_file_that_is_asked_for(invoke: Callable[..., Any], tmp_path: Path) -> None:
    junit, page = tmp_path / "j.xml", tmp_path / "p.html"
    done = invoke("--json", "--junit", str(junit), "--html", str(page), "--github")
    assert done.exit_code == 10
    assert json.loads(done.stdout)["exit_code"] == 10, "stdout is the report's alone"
    cases = ET.parse(junit).getroot().iter("testcase")
    assert [case.get("name") for case in cases] == ["lossless"]
    assert "verify_divergence" in page.read_text()
    assert "lossless" in (tmp_path / "GITHUB_STEP_SUMMARY").read_text()
    assert "ending=rolled back" in (tmp_path / "GITHUB_OUTPUT").read_text()


def test_github_takes_no_command_of_a_servers(invoke: Callable[..., Any]) -> None:
    """Between stop-commands and the token's own line the runner takes no command."""
    token, stopped, taken = "", False, []
    for line in invoke("--github").stdout.splitlines():
        if line.startswith("::stop-commands::"):
            token, stopped = line.removeprefix("::stop-commands::"), True
        elif line == f"::{token}::":
            stopped = False
        elif line.startswith("::") and not stopped:
            taken.append(line)
    assert stopped, "nor after ours"
    assert len(token) >= 16
    assert taken
    assert all("title=" in line for line in taken), "ours, each with a title"
    assert not any(line.startswith("::error::not ours") for line in taken)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Refused("no", remedy="do", code="x"), 3),
        (Unreachable("gone"), 5),
        (KeyboardInterrupt(), 130),
    ],
)
@pytest.mark.parametrize("where", ["plan", "gate"])
def test_one_that_could_not_begin_leaves_its_files(
    invoke: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    where: str,
    error: BaseException,
    status: int,
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(gating, where, fail)
    path = tmp_path / "j.xml"
    done = invoke("--junit", str(path), "--github")
    assert done.exit_code == status
    (case,) = ET.parse(path).getroot().iter("testcase")
    assert case.get("name") == "begun"
    assert f"exit_code={status}" in (tmp_path / "GITHUB_OUTPUT").read_text()


def test_a_file_that_will_not_be_written_is_said_before_anything(
    invoke: Callable[..., Any], tmp_path: Path
) -> None:
    done = invoke("--html", str(tmp_path / "no" / "p.html"), "--junit", str(tmp_path / "j.xml"))
    assert done.exit_code == 2
    assert f"cannot write {tmp_path / 'no' / 'p.html'}" in done.stderr
    assert not (tmp_path / "j.xml").exists()


def test_a_file_that_cannot_be_written_in_the_end_is_said(
    invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "p.html"
    ended: gating.Gated = cast(Any, gating.gate)()

    def gate(*_: Any) -> gating.Gated:
        page.mkdir()  # meanwhile
        return ended

    monkeypatch.setattr(gating, "gate", gate)
    done = invoke("--html", str(page), "--junit", str(tmp_path / "j.xml"))
    assert done.exit_code == 10, "the host's end state decides"
    assert f"cannot write {page}" in done.stderr
    assert (tmp_path / "j.xml").exists()


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["--soak", "soon"], "--soak"),
        (["--policy", "/none/p.yaml"], "/none/p.yaml"),
        (["--budget", "-1"], "--budget"),
    ],
)
def test_a_mistake_is_told_before_anything(
    invoke: Callable[..., Any], argv: list[str], named: str, tmp_path: Path
) -> None:
    done = invoke(*argv, "--junit", str(tmp_path / "j.xml"))
    assert done.exit_code == 2
    assert named in done.stderr
    assert not (tmp_path / "j.xml").exists()


def test_the_policy_to_start_from(invoke: Callable[..., Any], tmp_path: Path) -> None:
    done = invoke("--show-policy")
    assert done.exit_code == 0
    path = tmp_path / "policy.yaml"
    path.write_text(done.stdout)
    assert invoke("--policy", str(path)).exit_code == 10
