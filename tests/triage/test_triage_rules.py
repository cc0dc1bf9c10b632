"""From findings to the cause and the runbook: each rule, their order, and every kind."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from triage_samples import (
    DOWN,
    HOUR,
    LOOPING,
    NOW,
    crash,
    facts,
    failed,
    kernel,
    machine,
    place,
    start,
    unit,
)

from opsctl.journal.rules import rule_base
from opsctl.triage import Facts, judge
from opsctl.triage.kernel import messages
from opsctl.triage.kinds import BY_KIND, RUNBOOKS, WHY_NONE, runbook
from opsctl.triage.rules import RULES

BEFORE = start("before", NOW - 30 * HOUR)


def down(*starts: Any, **changes: Any) -> Facts:
    """A unit that is down after `starts`, the newest first."""
    return facts(
        **{"unit": unit(**DOWN), "starts": starts, "http": "refused", "healthy": None, **changes}
    )


def test_every_kind_is_mapped_to_a_runbook_or_deliberately_to_none() -> None:
    kinds = set(rule_base().kinds)
    assert set(BY_KIND) == kinds
    assert {kind for kind, book in BY_KIND.items() if book is None} == set(WHY_NONE)
    assert {book for book in BY_KIND.values() if book} <= set(RUNBOOKS)
    with pytest.raises(KeyError):
        runbook("no_such_kind")


def test_no_kind_is_mapped_twice() -> None:
    from opsctl.triage import kinds

    each = [
        kind for table in (kinds._FOR, kinds._NONE) for v in table.values() for kind in v.split()
    ]
    assert len(each) == len(set(each))


def test_every_runbook_is_reached_by_a_rule() -> None:
    reached = {case.values[1] for case in CASES}
    assert set(RUNBOOKS) <= reached | {"planned-restart"}


def test_nothing_is_wrong() -> None:
    found = judge(facts())
    assert (found.verdict, found.cause, found.also) == ("pass", None, ())


XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=2211, name=sglang::schedul, GPU has fallen off the bus."
KILLED = "Out of memory: Killed process 4137 (sglang::schedul) total-vm:88213404kB"
STRAY = {"pid": 9, "user": "root", "why": ["it holds port 30001"], "left": "", "port": 30001}
PATCHED = {"number": 3, "set": {"name": "ddtree", "version": "2.0.0"}, "created": NOW - HOUR}

CASES = [
    pytest.param(
        down(failed("unknown"), lock={"who": "ann", "why": "deploy", "held_s": 60.0}),
        None,
        "change_under_way",
        "inconclusive",
        id="a rollout under way explains a unit that is down",
    ),
    pytest.param(
        down(failed("unknown"), guard={"who": "ann", "to": 1}),
        None,
        "lost_rollout",
        "inconclusive",
        id="a rollout that lost its client",
    ),
    pytest.param(
        facts(unit=unit(LoadState="not-found", ActiveState="inactive"), starts=(), http="refused"),
        None,
        "no_unit",
        "fail",
        id="no unit",
    ),
    pytest.param(
        down(failed("nccl_error"), machine=kernel(XID)),
        None,
        "gpu_lost",
        "fail",
        id="a lost GPU explains NCCL's error",
    ),
    pytest.param(
        down(failed("gpu_ecc", "Xid 94")), None, "gpu_ecc", "fail", id="the journal's own GPU fault"
    ),
    pytest.param(
        down(failed("child_died"), machine=kernel(KILLED)),
        "out-of-memory",
        "host_oom_killed",
        "fail",
        id="the OOM killer explains a child that died",
    ),
    pytest.param(
        down(failed("unknown"), unit=unit(**{**DOWN, "Result": "oom-kill"})),
        "out-of-memory",
        "host_oom_killed",
        "fail",
        id="systemd's own word of it",
    ),
    pytest.param(
        down(failed("cuda_oom", "CUDA out of memory")),
        "out-of-memory",
        "cuda_oom",
        "fail",
        id="GPU memory",
    ),
    pytest.param(
        facts(machine=machine(filesystems={"tmp": place(free=0)})),
        "disk-full",
        "disk_full",
        "fail",
        id="a full disk, even while it serves",
    ),
    pytest.param(
        down(failed("python_error"), machine=machine(filesystems={"shm": place(inodes_free=0)})),
        "disk-full",
        "disk_full",
        "fail",
        id="no inodes left",
    ),
    pytest.param(
        down(failed("shm_exhausted")), "out-of-memory", "shm_exhausted", "fail", id="/dev/shm"
    ),
    pytest.param(
        down(BEFORE, machine=machine(boot={"booted": NOW - 60, "uptime_s": 60.0, "id": "c"})),
        "host-rebooted",
        "host_rebooted",
        "fail",
        id="rebooted, and not up since",
    ),
    pytest.param(
        down(
            BEFORE,
            machine=machine(
                boot={"booted": NOW - 60, "uptime_s": 60.0, "id": "c"},
                filesystems={"target": place(exists=False)},
            ),
        ),
        "host-rebooted",
        "host_rebooted",
        "fail",
        id="a mount that did not come back after a reboot",
    ),
    pytest.param(
        down(
            failed("model_path_missing"),
            BEFORE,
            machine=machine(filesystems={"target": place(weights={"files": 0})}),
        ),
        None,
        "weights_missing",
        "fail",
        id="an empty mount point",
    ),
    pytest.param(
        down(
            failed("python_error", "boom"),
            BEFORE,
            generation=PATCHED,
            audit=[{"event": "swap", "time": NOW - HOUR, "number": 3}],
        ),
        "bad-patch-set",
        "python_error",
        "fail",
        id="crashed since another generation was put there",
    ),
    pytest.param(
        down(failed("spec_config_error", "ValueError"), BEFORE, drift=["srt/models/dflash.py"]),
        None,
        "drift",
        "fail",
        id="it crashes, and a hand has changed a file",
    ),
    pytest.param(
        down(failed("python_error_after_patch", "AttributeError")),
        "bad-patch-set",
        "python_error_after_patch",
        "fail",
        id="the traceback names the patch",
    ),
    pytest.param(
        down(failed("illegal_memory_access", action="rollback_patch")),
        "bad-patch-set",
        "illegal_memory_access",
        "fail",
        id="the diagnosis says to roll back",
    ),
    pytest.param(
        down(BEFORE, swap={"from": 1, "to": 2}),
        "bad-patch-set",
        "swap_cut_off",
        "fail",
        id="a swap that was cut off",
    ),
    pytest.param(
        down(failed("port_in_use", "address already in use"), orphans=[STRAY]),
        "gpu-orphans",
        "orphan_processes",
        "fail",
        id="who holds the port",
    ),
    pytest.param(
        down(failed("unknown"), BEFORE), "service-down", "unknown", "fail", id="a crash, once"
    ),
    pytest.param(
        facts(unit=unit(**LOOPING), starts=(failed("python_error"), BEFORE), http="refused"),
        "crash-loop",
        "python_error",
        "fail",
        id="a crash, again and again",
    ),
    pytest.param(
        facts(unit=unit(**LOOPING), starts=(), http="refused"),
        "crash-loop",
        "restart_loop",
        "fail",
        id="a loop without a journal",
    ),
    pytest.param(
        facts(unit=unit(**{**DOWN, "Result": "start-limit-hit"}), starts=(), http="refused"),
        "crash-loop",
        "restart_loop",
        "fail",
        id="systemd gave up",
    ),
    pytest.param(
        facts(http="silent", healthy=None), "hung", "hung", "fail", id="accepts and never answers"
    ),
    pytest.param(
        facts(http="refused", healthy=None), "hung", "hung", "fail", id="ready, and no port"
    ),
    pytest.param(
        facts(healthy=False, starts=(start(batch_at=NOW - 300),)),
        "hung",
        "health_hang",
        "fail",
        id="a dead scheduler behind a living port",
    ),
    pytest.param(
        facts(healthy=None, starts=(start(batch_at=NOW - 300),)),
        "hung",
        "slow_health",
        "inconclusive",
        id="a slow /health is not yet a dead scheduler",
    ),
    pytest.param(
        facts(starts=(start(diagnosis=crash("watchdog_timeout")),)),
        "hung",
        "watchdog_timeout",
        "fail",
        id="the watchdog",
    ),
    pytest.param(
        facts(
            starts=(
                start(ready_at=None, began=NOW - 60, moved_at=NOW - 5, phase="loading weights"),
            ),
            unit=unit(ActiveEnterTimestampMonotonic=str(int((100 * HOUR - 60) * 1e6))),
            http="refused",
            healthy=None,
        ),
        None,
        "loading",
        "inconclusive",
        id="a load within its time",
    ),
    pytest.param(
        facts(starts=(start(ready_at=None, moved_at=NOW - 5),), http="refused", healthy=None),
        "slow-load",
        "slow_load",
        "fail",
        id="a load over its budget",
    ),
    pytest.param(
        facts(
            starts=(start(ready_at=None, moved_at=NOW - 400),),
            unit=unit(ActiveEnterTimestampMonotonic=str(int((100 * HOUR - 500) * 1e6))),
            http="refused",
            healthy=None,
        ),
        "slow-load",
        "slow_load",
        "fail",
        id="a load that does not move",
    ),
    pytest.param(
        down(BEFORE, unit=unit(ActiveState="inactive", SubState="dead")),
        "service-down",
        "stopped",
        "fail",
        id="stopped by hand",
    ),
    pytest.param(
        facts(starts=(start(accept_len=1.05),)),
        "acceptance-collapsed",
        "low_acceptance",
        "fail",
        id="below the floor",
    ),
    pytest.param(
        facts(starts=(start(diagnosis=crash("zero_acceptance", severity="degraded")),)),
        "acceptance-collapsed",
        "zero_acceptance",
        "fail",
        id="nothing is accepted",
    ),
    pytest.param(
        facts(starts=(start(diagnosis=crash("degenerate_output")),)),
        "garbage-output",
        "degenerate_output",
        "fail",
        id="garbage",
    ),
    pytest.param(
        facts(starts=(start(diagnosis=crash("nan_logits", action="rollback_patch")),)),
        "bad-patch-set",
        "nan_logits",
        "fail",
        id="NaN that a patch brought",
    ),
    pytest.param(
        facts(state_fault={"message": "current is damaged", "remedy": "restore it"}),
        None,
        "state_damaged",
        "fail",
        id="a damaged state folder",
    ),
    pytest.param(
        facts(drift=["srt/models/dflash.py"]),
        None,
        "drift",
        "fail",
        id="a file changed by hand",
    ),
    pytest.param(
        facts(unit=None, missing={"unit": "no answer"}, starts=(), http="unasked"),
        None,
        "unknown",
        "inconclusive",
        id="the host does not say",
    ),
    pytest.param(
        facts(http="unasked", missing={"http": "no answer"}),
        None,
        "unasked",
        "inconclusive",
        id="whether it answers is not known",
    ),
]


@pytest.mark.parametrize(("found", "book", "name", "verdict"), CASES)
def test_the_cause(found: Facts, book: str | None, name: str, verdict: str) -> None:
    judgement = judge(found)
    assert judgement.cause is not None
    cause = judgement.cause
    assert (cause.runbook, cause.name, judgement.verdict) == (book, name, verdict)
    assert cause.text
    assert cause.runbook or cause.command or cause.remedy or name in {"unknown", "unasked"}, (
        "what is one to do?"
    )


@pytest.mark.parametrize(
    ("found", "name"),
    [
        (facts(lock={"who": "ann", "why": "night watch", "held_s": 5.0}), "change_under_way"),
        (facts(machine=machine(filesystems={"tmp": place(free=1 << 30)})), "tight"),
        (facts(starts=(start(), failed("segfault", invocation="before"))), "crashed_before"),
        (facts(unit=unit(NeedDaemonReload="yes")), "restart_due"),
        (facts(healthy=None, drift=(), unit=unit(NeedDaemonReload="yes")), "restart_due"),
        (facts(orphans=[{**STRAY, "port": None, "gpu_memory_mib": 10}]), "orphan_processes"),
        (facts(machine=machine(filesystems={"target": place(exists=False)})), "weights_missing"),
        (facts(machine=machine(filesystems={"tmp": place(read_only=True)})), "storage_broken"),
    ],
)
def test_beside_a_service_that_works_it_is_said_and_no_failure(found: Facts, name: str) -> None:
    judgement = judge(found)
    assert judgement.verdict == "pass"
    assert name in [cause.name for cause in judgement.also]


FILE = "srt/models/dflash.py"


@pytest.mark.parametrize(
    ("found", "text", "command"),
    [
        (
            facts(drift=[FILE]),
            f"{FILE} was changed by hand: not as generation 2 recorded",
            "opsctl rollback ct200 2",
        ),
        (
            facts(drift=["a.py", "b.py"], unit_drift=["/etc/c.conf", "/etc/d.conf"]),
            "a.py, b.py, /etc/c.conf and 1 more were changed by hand: not as generation 2 recorded",
            "opsctl rollback ct200 2",
        ),
        (
            down(failed("python_error", "ValueError: boom"), BEFORE, drift=[FILE]),
            f"python_error, and {FILE} was changed by hand: not as generation 2 recorded",
            "opsctl rollback ct200 2",
        ),
        (
            down(failed("python_error_after_patch", "boom"), BEFORE, drift=[FILE]),
            f"python_error_after_patch, and {FILE} was changed by hand: not as generation 2 "
            "recorded",
            "opsctl rollback ct200 2",
        ),
        (
            facts(drift=[FILE], reinstalled=[FILE]),
            f"the wheel's own {FILE} is back, as by a reinstall",
            "opsctl rollback ct200 2",
        ),
        (
            facts(drift=[FILE], version="0.6", generation={"number": 2, "version": "0.5"}),
            "0.6 is installed, and generation 2 is of 0.5",
            "opsctl verify ct200",
        ),
    ],
)
def test_a_file_that_a_hand_changed_is_put_back_and_not_the_generation_before(
    found: Facts, text: str, command: str
) -> None:
    judgement = judge(found)
    assert judgement.cause is not None
    assert (judgement.cause.text, judgement.cause.command) == (text, command)
    assert [each for each in judgement.also if each.name == "drift"] == [], "it is said once"


def test_after_a_deploy_a_changed_file_is_not_all() -> None:
    deployed = [{"event": "swap", "number": 2, "time": NOW - HOUR}]
    crashed = failed("python_error", "boom")
    cause = judge(down(crashed, BEFORE, drift=[FILE], audit=deployed)).cause
    assert cause is not None
    assert cause.runbook == "bad-patch-set"


def test_a_lock_that_is_held_for_hours_explains_nothing() -> None:
    held = {"who": "ann", "why": "forgot", "held_s": 5 * HOUR}
    judgement = judge(down(failed("unknown"), lock=held))
    assert judgement.cause is not None
    assert judgement.cause.name == "unknown"
    assert judgement.also[0].name == "change_under_way"


def test_a_few_steps_of_a_warm_up_are_no_figure() -> None:
    few = start(accept_len=1.0, decode_lines=7, arguments={"decode_log_interval": "1"})
    assert judge(facts(starts=(few,))).verdict == "pass"
    many = start(accept_len=1.0, decode_lines=70, arguments={"decode_log_interval": "1"})
    assert judge(facts(starts=(many,))).verdict == "fail"


@pytest.mark.parametrize("text", [XID, KILLED, "I/O error, dev sda, sector 5"])
def test_old_messages_of_the_kernel_explain_no_crash_of_now(text: str) -> None:
    found = judge(down(failed("segfault"), machine=kernel(text, at=NOW - 20 * HOUR)))
    assert found.cause is not None
    assert found.cause.name == "segfault"


def test_an_xid_that_a_process_caused_is_no_fault_of_the_card() -> None:
    text = "NVRM: Xid (PCI:0000:c1:00): 31, pid=4133, name=sglang::schedul, Ch 00000012, MMU Fault"
    found = judge(down(failed("illegal_memory_access"), machine=kernel(text)))
    assert found.cause is not None
    assert found.cause.name == "illegal_memory_access"


def test_a_foreign_process_beside_a_stopped_service_is_said_with_who_must_end_it() -> None:
    foreign = {**STRAY, "left": "it is no process of this service's environment"}
    cause = judge(down(BEFORE, orphans=[foreign])).cause
    assert cause is not None
    assert cause.runbook == "gpu-orphans"
    assert "no process of this service" in cause.evidence[0]


def test_a_service_beside_it_that_holds_nothing_is_not_in_the_way() -> None:
    beside = {**STRAY, "port": None, "left": "it belongs to beside.service, which runs"}
    cause = judge(down(BEFORE, unit=unit(ActiveState="inactive"), orphans=[beside])).cause
    assert cause is not None
    assert cause.name == "stopped"


def test_all_is_missing() -> None:
    judgement = judge(Facts(host="ct200", now=NOW))
    assert judgement.verdict == "inconclusive", "missing evidence is no evidence of health"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_takes_whatever_is_missing(rule: Any) -> None:
    """Each field by itself back to what stands for `not known`."""
    nothing = Facts(host="ct200", now=NOW)
    names = [each.name for each in dataclasses.fields(Facts) if each.name not in {"host", "now"}]
    for case in CASES:
        sample: Any = case.values[0]
        for name in names:
            rule(dataclasses.replace(sample, **{name: getattr(nothing, name)}))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (XID, "gpu_lost"),
        (KILLED, "host_oom_killed"),
        (
            "Memory cgroup out of memory: Killed process 4137 (python3) total-vm:8kB",
            "host_oom_killed",
        ),
        ("I/O error, dev nvme0n1, sector 12345 op 0x0:(READ)", "storage"),
        ("EXT4-fs (vda): Remounting filesystem read-only", "storage"),
        ("nfs: server 10.0.0.9 not responding, still trying", "file_server"),
        ("INFO: task nvidia-smi:412 blocked for more than 120 seconds.", "stuck"),
        ("mce: [Hardware Error]: Machine check events logged", "hardware"),
        ("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15", None),
    ],
)
def test_the_kernel(text: str, kind: str | None) -> None:
    found = [each.kind for each in messages([{"time": NOW, "text": text}])]
    assert found == ([kind] if kind else [])
