"""The doctor: facts in, findings out."""

from __future__ import annotations

from typing import Any

import pytest
from rollout_tools import SERVICE, facts

from opsctl import patchset
from opsctl.errors import OpsctlError, Refused
from opsctl.resources import bundled
from opsctl.rollout.doctor import examine

GENERATION = {
    "number": 4,
    "set": {"name": "ddtree", "version": "1.0.0"},
    "files": {"a.py": {"sha256": "aa"}, "new.py": {"sha256": "bb"}, "gone.py": {"sha256": None}},
}
AUDIT = {"modified": ["a.py"], "missing": ["gone.py"], "extra": ["new.py"]}
ON_DISK = {"a.py": {"sha256": "aa"}, "new.py": {"sha256": "bb"}, "gone.py": {"sha256": None}}

# (what differs from a healthy host, the findings that are not ok, words of their messages)
TABLE: list[tuple[dict[str, Any], dict[str, str], str]] = [
    ({}, {}, ""),
    ({"unit.LoadState": "not-found"}, {"unit": "fail"}, "does not exist on the host (not-found)"),
    ({"unit.LoadState": ""}, {"unit": "fail"}, "does not exist on the host (not found)"),
    ({"unit.LoadState": "masked"}, {"unit": "fail"}, "serve.service is masked"),
    ({"unit.LoadState": "bad-setting"}, {"unit": "fail"}, "serve.service is bad-setting"),
    ({"unit.NeedDaemonReload": "yes"}, {"daemon_reload": "fail"}, "edited and not reloaded"),
    ({"unit.Result": "start-limit-hit"}, {"start_limit": "warn"}, "crashed too often"),
    ({"unit.StartLimitBurst": "0"}, {"start_limit": "warn"}, "a crash loop never ends"),
    ({"unit.StartLimitIntervalUSec": "0"}, {"start_limit": "warn"}, "a crash loop never ends"),
    ({"unit.StartLimitIntervalUSec": "infinity"}, {}, ""),
    ({"unit.StartLimitBurst": "0", "unit.Restart": "no"}, {}, ""),
    ({"unit.TimeoutStopUSec": "infinity"}, {"stop_timeout": "fail"}, "TimeoutStopSec is infinite"),
    (
        {"unit.Type": "notify", "unit.TimeoutStartUSec": "1min 30s"},
        {"start_timeout": "fail"},
        "Type=notify with TimeoutStartSec=90: systemd would kill a load of up to 900 s",
    ),
    ({"unit.Type": "notify-reload", "unit.TimeoutStartUSec": "30min"}, {}, ""),
    ({"unit.Type": "exec", "unit.TimeoutStartUSec": "1min 30s"}, {}, ""),
    (
        {"install": {"fault": {"code": "python_missing", "message": "no python", "remedy": "set"}}},
        {"install": "fail"},
        "no python",
    ),
    ({"install.editable": True}, {"install": "fail"}, "editable install"),
    (
        {"install.audit.modified": ["b.py"]},
        {"record": "fail"},
        "files differ from the wheel's RECORD and from the recorded generation: modified: b.py",
    ),
    ({"install.audit.missing": ["b.py"]}, {"record": "fail"}, "missing: b.py"),
    ({"install.audit.extra": ["b.py"]}, {"record": "warn"}, "extra: b.py"),
    (
        {"install.audit.modified": [f"{n}.py" for n in range(7)]},
        {"record": "fail"},
        "modified: 0.py, 1.py, 2.py, 3.py, 4.py …",
    ),
    ({"generation": GENERATION, "install.audit": AUDIT, "install.files": ON_DISK}, {}, ""),
    (
        {
            "generation": GENERATION,
            "install.audit": AUDIT,
            "install.files": {**ON_DISK, "a.py": {"sha256": "edited"}},
        },
        {"record": "fail"},
        "modified: a.py",
    ),
    (
        {
            "generation": GENERATION,
            "install.audit": {**AUDIT, "missing": ["a.py"], "modified": []},
            "install.files": {**ON_DISK, "a.py": {"sha256": None}},
        },
        {"record": "fail"},
        "missing: a.py",
    ),
    ({"disk.state.free": 5 << 20}, {"space_state": "fail"}, "5 MiB free at /var/lib/opsctl"),
    ({"disk.state.writable": False}, {"disk_state": "fail"}, "/var/lib/opsctl is not writable"),
    ({"disk.package.writable": False}, {"disk_package": "fail"}, "sglang is not writable"),
    ({"port": None}, {"port": "warn"}, "nothing listens at 0.0.0.0:30001 (yet)"),
    ({"port": None, "unit.ActiveState": "inactive", "unit.SubState": "dead"}, {}, ""),
    (
        {"port": {"pid": 9, "command": "nc -l 30001", "own": False}},
        {"port": "fail"},
        "port 30001 is taken by pid 9 (nc -l 30001), which is not serve.service",
    ),
    (
        {"port": {"pid": 9, "command": "python --api-key sk-1 --port 1", "own": False}},
        {"port": "fail"},
        "(python --api-key [redacted] --port 1)",
    ),
    (
        {"port": {"pid": None, "command": None, "own": False}},
        {"port": "fail"},
        "taken by a process outside this container",
    ),
    (
        {"strays": [{"pid": 8, "command": "x"}, {"pid": 9, "command": "y"}]},
        {"leftovers": "fail"},
        "server processes outside the unit: 8, 9",
    ),
    ({"gpu": None}, {}, ""),
    ({"gpu": [{"pid": 8, "command": "x", "memory_mib": 5, "own": True}]}, {}, ""),
    (
        {"gpu": [{"pid": 8, "command": "x", "memory_mib": None, "own": False}]},
        {"gpu": "warn"},
        "pid 8 ? MiB",
    ),
    ({"lock": {"who": "ann", "why": "fix"}}, {"lock": "fail"}, "ann holds the lock"),
    (
        {"swap": {"from": 3, "to": 4}},
        {"swap": "fail"},
        "a swap from generation 3 to 4 was cut off",
    ),
]


@pytest.mark.parametrize(("changes", "expected", "said"), TABLE)
def test_findings(changes: dict[str, Any], expected: dict[str, str], said: str) -> None:
    findings = examine(facts(changes), SERVICE, None, "alpha")
    odd = [finding for finding in findings if finding.status != "ok"]
    assert {finding.name: finding.status for finding in odd} == expected
    assert said in " ".join(finding.message for finding in odd)
    assert all(finding.remedy for finding in odd), "each with its remedy"
    names = [finding.name for finding in findings]
    assert len(names) == len(set(names)), "one finding a name"


def test_a_healthy_host_is_told_at_length() -> None:
    findings = examine(facts({"generation": GENERATION}), SERVICE, None, "alpha")
    assert {finding.status for finding in findings} == {"ok"}
    assert [finding.name for finding in findings] == [
        *("ssh", "python", "unit", "daemon_reload", "start_limit", "stop_timeout", "install"),
        *("record", "disk_state", "disk_package", "port", "gpu", "lock", "generation"),
    ]
    assert findings[-1].message == "generation 4: ddtree 1.0.0"


def test_a_set_that_is_not_for_this_version() -> None:
    wrong = Refused("ddtree is for 0.5.12.post1", remedy="install it", code="wrong_version")
    found = {finding.name: finding for finding in examine(facts(), SERVICE, wrong, "alpha")}
    assert (found["patch_set"].status, found["patch_set"].message) == ("fail", wrong.message)


@pytest.mark.parametrize(
    ("argv", "status"),
    [("all of them", None), ("--tp-size 8", "fail"), ("", None)],
)
def test_what_a_set_needs_of_the_command_line(argv: str, status: str | None) -> None:
    ddtree = patchset.find(bundled("patches"), "ddtree", "sglang", "0.5.12.post1")
    if argv == "all of them":
        argv = " ".join(needs[0] for needs in ddtree.needs.arguments)
    exec_start = f"{{ path=/x ; argv[]=/x {argv} ; pid=0 }}" if argv else ""
    findings = examine(facts({"unit.ExecStart": exec_start}), SERVICE, ddtree, "alpha")
    found = {finding.name: finding.status for finding in findings}
    assert found["patch_set"] == "ok"
    assert found.get("arguments") == status


def test_the_rows_cover_every_finding() -> None:
    ddtree = patchset.find(bundled("patches"), "ddtree", "sglang", "0.5.12.post1")
    named: set[str] = set()
    sets: list[patchset.PatchSet | OpsctlError | None] = [None, ddtree]
    for expected in sets:
        named |= {finding.name for finding in examine(facts(), SERVICE, expected, "alpha")}
    told = {name for _, findings, _ in TABLE for name in findings}
    always_ok = {"ssh", "python", "generation"}
    told |= {"patch_set", "arguments"}  # by the two tests above
    assert named - always_ok <= told
