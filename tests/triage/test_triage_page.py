"""The page: one screen, whatever is in it; and what differs since it last worked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from triage_samples import DOWN, HOUR, NOW, facts, failed, kernel, machine, place, start, unit

from opsctl.journal import Entry
from opsctl.journal.diagnosis import Diagnosis
from opsctl.triage import Facts, judge, page, space
from opsctl.triage.differences import differences
from opsctl.triage.starts import starts

LONG = "the-longest-word-that-anybody-ever-wrote-into-a-journal-" * 8


def shown(found: Facts, summary: str = "well") -> list[str]:
    from opsctl.rollout.triaging import data_of

    return page.text(page.rows(data_of(found, judge(found)), summary)).splitlines()


@pytest.mark.parametrize(
    "found",
    [
        facts(),
        facts(unit=None, starts=(), machine={}, missing={"unit": LONG, "machine": LONG}),
        facts(
            unit=unit(**DOWN),
            http="silent",
            http_text=LONG,
            starts=[failed("python_error", LONG, LONG, LONG, invocation=str(n)) for n in range(6)],
            machine=kernel(*[f"NVRM: Xid (PCI:0): 79, {LONG}"] * 50),
            orphans=[
                {"pid": n, "user": LONG, "why": [LONG], "left": LONG, "port": 1} for n in range(50)
            ],
            drift=[LONG] * 50,
            lock={"who": LONG, "why": LONG, "held_s": 1e9},
            generations=[
                {"number": n, "status": "x", "set": None, "created": NOW, "who": LONG, "why": ""}
                for n in range(9)
            ],
            missing={str(n): LONG for n in range(20)},
        ),
    ],
)
def test_it_fits_a_screen(found: Facts) -> None:
    lines = shown(found)
    assert max(map(len, lines)) <= page.WIDTH
    assert len(lines) <= 50


def test_the_cause_and_the_command_come_first() -> None:
    found = facts(machine=machine(filesystems={"tmp": place(free=0)}))
    lines = shown(found)
    assert lines[0].startswith("LIKELY CAUSE / is full: 0 B of 100.0 GiB free")
    assert lines[1] == "RUN          opsctl runbook run disk-full ct200"


def test_a_file_changed_by_hand_has_the_command_that_puts_it_back() -> None:
    lines = shown(facts(drift=["srt/models/dflash.py"]))
    assert lines[0] == "LIKELY CAUSE srt/models/dflash.py was changed by hand: not as generation 2"
    assert "RUN          opsctl rollback ct200 2" in lines[:4]


def test_without_a_cause_it_says_so() -> None:
    assert shown(facts(), "nothing is wrong")[0] == "VERDICT      nothing is wrong"


# -- what differs ----------------------------------------------------------------------------------

WORKED = start("before", NOW - 30 * HOUR, arguments={"tp_size": "8", "random_seed": "1"})
DEAD = replace(failed("unknown"), arguments={"tp_size": "4", "random_seed": "2", "page_size": "1"})


def what_differs(**changes: Any) -> dict[str, str]:
    found = facts(**{"unit": unit(**DOWN), "starts": (DEAD, WORKED), **changes})
    return {each["what"]: each["text"] for each in differences(found)}


def test_arguments_by_their_own_lines() -> None:
    assert what_differs()["arguments"] == "page_size - -> 1, tp_size 8 -> 4"


def test_generation_boot_files_and_packages() -> None:
    found = what_differs(
        audit=[{"event": "swap", "time": NOW - HOUR, "number": 2, "who": "ann@laptop"}],
        machine=machine(
            boot={"id": "b", "booted": NOW - HOUR, "uptime_s": HOUR},
            changed={"/etc/systemd/system/x": NOW - 60, "/var/log/dpkg.log": NOW - 50},
        ),
        drift=["a.py"],
    )
    assert found["generation"].startswith("2 (ddtree 1.1.0), put there")
    assert found["generation"].endswith("by ann@laptop")
    assert found["boot"].startswith("the host came up")
    assert found["package files"] == "changed by hand: a.py"
    assert found["unit files"].startswith("/etc/systemd/system/x written")
    assert found["packages"].startswith("/var/log/dpkg.log written")


def test_what_was_there_before_is_no_difference() -> None:
    found = what_differs(
        audit=[{"event": "swap", "time": NOW - 40 * HOUR, "number": 2}],
        machine=machine(changed={"/etc/systemd/system/x": NOW - 40 * HOUR}),
    )
    assert set(found) == {"arguments"}


def test_without_a_start_that_worked_nothing_is_said() -> None:
    assert what_differs(starts=(DEAD,)) == {}


# -- starts and space ------------------------------------------------------------------------------


def entry(at: float, text: str, invocation: str) -> Entry:
    return Entry(at, text, pid=7, invocation=invocation)


def test_starts_of_a_journal() -> None:
    ready = "[2026-11-30 03:00:00] The server is fired up and ready to roll!"
    decode = (
        "[2026-11-30 03:00:01] Decode batch, #running-req: 1, #token: 9, token usage: 0.01, "
        "accept len: {}, accept rate: 0.5, cuda graph: True, gen throughput (token/s): 9.0, "
        "#queue-req: 0"
    )
    entries = [
        entry(1.0, "[2026-11-30 02:59:00] server_args=ServerArgs(tp_size=8, api_key='sk-x')", "a"),
        entry(2.0, ready, "a"),
        entry(3.0, decode.format("3.00"), "a"),
        entry(4.0, decode.format("5.00"), "a"),
        entry(9.0, "boom", "b"),
        Entry(9.5, "a line of nobody's"),
    ]
    given: dict[str, int] = {}

    def diagnose(of_start: Any, invocation: str) -> Diagnosis:
        given[invocation] = len(of_start)
        return Diagnosis(incident=invocation == "b", kind="x")

    newest, before = starts(entries, diagnose)
    assert given == {"a": 4, "b": 1}
    assert (newest.invocation, newest.ready_at, newest.diagnosis.incident) == ("b", None, True)
    assert (before.ready_at, before.batch_at, before.ended) == (2.0, 4.0, 4.0)
    assert (before.decode_lines, before.accept_len) == (2, 4.0)
    assert before.arguments == {"tp_size": "8"}


@pytest.mark.parametrize(
    ("changes", "trouble"),
    [
        ({}, None),
        ({"free": 0}, "full"),
        ({"free": 60 << 20}, "full"),
        ({"size": 64 << 20, "free": 60 << 20}, None),
        ({"size": 64 << 20, "free": 1 << 20}, "full"),
        ({"size": 64 << 20, "free": 3 << 20}, "full"),
        ({"free": 1 << 30}, "tight"),
        ({"size": 10 << 40, "free": 100 << 30}, None),
        ({"inodes_free": 1}, "no_inodes"),
        ({"inodes_free": 30}, "tight"),
        ({"inodes": 0, "inodes_free": 0}, None),
        ({"read_only": True}, "read_only"),
        ({"fault": "gave no answer"}, "dead"),
    ],
)
def test_a_file_system(changes: dict[str, Any], trouble: str | None) -> None:
    found = space.troubles({"tmp": place(**changes)})
    assert [each.trouble for each in found] == ([trouble] if trouble else [])


def test_a_full_file_system_of_weights_alone_fails_nothing() -> None:
    assert space.troubles({"target": place(free=0, read_only=True)}) == []


def test_a_file_system_is_named_once() -> None:
    (found,) = space.troubles({"tmp": place(free=0), "state": place(free=0)})
    assert found.roles == ("tmp", "state")
