"""The guard's decisions, with a scripted systemctl; the lab's tests have the real one."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from guard_tools import Host
from hostside_tools import put_tool

from opsctl.errors import Refused
from opsctl.hostside import guard, guardian, install, probe
from opsctl.hostside import swap as swapping
from opsctl.hostside.errors import HostFault
from opsctl.hostside.guardian import Guardian
from opsctl.hostside.state import Lock, lock_holder
from opsctl.rollout import guard_text
from opsctl.transport import local
from opsctl.transport.bundle import guard_program

pytest_plugins = ["guard_fixtures", "hostside_fixtures"]


def assert_settled(host: Host) -> None:
    assert guard.terms(host.env.state) is None
    assert lock_holder(host.env.state) is None
    assert host.env.state.swap_under_way() is None


def test_a_stopped_service_is_put_right_at_once(host: Host) -> None:
    host.arm()
    assert host.guard() == 0
    assert host.restored()
    assert_settled(host)
    assert host.told[-1] == "--no-block start -- serve.service"
    assert host.report["healthy"] is True
    assert (host.report["from"], host.report["to"], host.report["token"]) == (host.new, 0, "t")
    assert "lost" in host.report["why"]


def test_the_lost_generation_says_so(host: Host) -> None:
    record = host.env.state.generation(host.new)
    host.env.state.save(dict(record, status="staged"))
    host.arm()
    host.guard()
    record = host.env.state.generation(host.new)
    assert (record["status"], record["verdict"]["code"]) == ("rolled_back", "guard")


def test_a_half_swapped_package_is_made_whole(host: Host) -> None:
    marker = {"from": 0, "to": host.new, "mixed": [host.new]}
    Path(host.env.state.path("swap")).write_text(json.dumps(marker))
    host.arm()
    host.guard()
    assert host.restored()
    assert_settled(host)


def test_a_client_that_lives_keeps_the_guard_waiting(host: Host) -> None:
    host.arm()
    thread = threading.Thread(target=host.guard)
    with local() as remote:
        remote.call("lock", site=host.site, who="ann@laptop", why="", token="t")
        thread.start()
        time.sleep(0.5)
        assert not host.restored()
        assert guard.terms(host.env.state) is not None
    thread.join(20)
    assert host.restored()
    assert host.report["why"] == "its client was lost"


def test_a_client_that_ends_well_disarms_it(host: Host) -> None:
    host.arm()
    thread = threading.Thread(target=host.guard)
    with local() as remote:
        remote.call("lock", site=host.site, who="ann@laptop", why="", token="t")
        thread.start()
        remote.call("disarm_guard", site=host.site)
        thread.join(20)
        assert not thread.is_alive()
    assert not host.restored()
    assert guard.report(host.env.state) is None


def test_a_hung_client_is_ended_at_the_deadline(host: Host) -> None:
    host.arm(deadline=time.monotonic() + 0.5)
    with local() as remote:
        remote.call("lock", site=host.site, who="ann@laptop", why="", token="t")
        assert host.guard() == 0
    assert host.restored()
    assert "no sign of life" in host.report["why"]


def test_a_load_within_its_budget_is_not_cut_short(host: Host) -> None:
    began = time.monotonic()
    host.unit("active", InactiveExitTimestampMonotonic=str(int(began * 1e6)), NRestarts="0")
    host.arm(budget=1.5)
    thread = threading.Thread(target=host.guard)
    thread.start()
    time.sleep(0.8)
    assert not host.restored()
    lock = Lock()
    lock.take(host.env.state, {"who": "bob", "why": "to confirm"})  # another client may come back
    lock.release()
    thread.join(20)
    assert time.monotonic() - began > 1.5
    assert host.restored()


@pytest.mark.parametrize(
    ("state", "detail", "loads"),
    [
        ("active", "running", True),
        ("activating", "start", True),  # Type=notify
        ("activating", "start-pre", True),
        ("activating", "start-post", True),
        ("activating", "auto-restart", False),
        ("active", "exited", False),
        ("deactivating", "stop-sigterm", False),
        ("inactive", "dead", False),
    ],
)
def test_a_load_by_the_unit_s_state(host: Host, state: str, detail: str, loads: bool) -> None:
    now = str(int(time.monotonic() * 1e6))
    host.unit(state, SubState=detail, InactiveExitTimestampMonotonic=now, NRestarts="0")
    host.arm(budget=60.0)
    terms = guard.terms(host.env.state)
    assert terms is not None
    watching = Guardian(host.env.state.root, host.said.append)
    assert watching._may_load(terms) is loads


def test_a_load_is_watched_without_starting_python_each_time(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Located once for each holding-off; a location that failed is tried again."""
    host.unit("active", InactiveExitTimestampMonotonic=str(int(time.monotonic() * 1e6)))
    host.arm(budget=60.0)
    terms = guard.terms(host.env.state)
    assert terms is not None
    located: list[str] = []
    answers = [HostFault("python_missing", "not now")]

    def locate(*_: str) -> dict[str, Any]:
        located.append("")
        if answers:
            raise answers.pop()
        return host.env.install

    monkeypatch.setattr(install, "locate", locate)
    watching = Guardian(host.env.state.root, host.said.append)
    assert all(watching._may_load(terms) for _ in range(5))
    assert len(located) == 2
    assert watching._may_load({**terms, "armed": 1.0}), "of another rollout"
    assert len(located) == 3


def test_a_load_that_died_is_not_waited_for(host: Host) -> None:
    began = time.monotonic()
    now = str(int(began * 1e6))
    host.unit("active", InactiveExitTimestampMonotonic=now, NRestarts="1")
    host.arm(budget=60.0)
    host.guard()
    assert host.restored()
    assert time.monotonic() - began < 20


def test_what_was_confirmed_stays(host: Host) -> None:
    """The client died between its last word and disarming the guard."""
    record = host.env.state.generation(host.new)
    host.env.state.save(dict(record, status="confirmed"))
    host.arm()
    assert host.guard() == 0
    assert not host.restored()
    assert_settled(host)
    assert guard.report(host.env.state) is None


# -- after a reboot: READY lets the service start --------------------------------------------


@pytest.fixture
def told_ready(host: Host, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """At each word to systemd: whether the files are those of the generation to restore."""
    seen: list[bool] = []
    monkeypatch.setattr(guardian, "_notify", lambda text: seen.append(host.restored()))
    return seen


def cut_off(host: Host) -> None:
    marker = {"from": 0, "to": host.new, "mixed": [host.new]}
    Path(host.env.state.path("swap")).write_text(json.dumps(marker))


def test_after_a_reboot_the_files_are_back_before_the_service_starts(
    host: Host, told_ready: list[bool]
) -> None:
    host.arm(boot_id="another", deadline=0.0)
    assert host.guard() == 0
    assert told_ready == [True]
    assert host.report["why"] == "the host rebooted"
    assert host.report["healthy"] is True


def test_after_a_reboot_a_mixture_waits_for_whoever_has_the_lock(
    host: Host, told_ready: list[bool]
) -> None:
    cut_off(host)
    host.arm(boot_id="another", deadline=0.0)
    lock = Lock()
    lock.take(host.env.state, {"who": "bob", "why": "at the boot", "token": "b"})
    thread = threading.Thread(target=host.guard)
    thread.start()
    time.sleep(0.5)
    assert thread.is_alive()
    assert told_ready == []
    lock.release()
    thread.join(20)
    assert told_ready == [True]
    assert_settled(host)


def test_after_a_reboot_a_hung_holder_is_ended(host: Host, told_ready: list[bool]) -> None:
    cut_off(host)
    host.arm(boot_id="another", deadline=0.0, within=0.5)
    with local() as remote:
        remote.call("lock", site=host.site, who="bob", why="", token="b")
        assert host.guard() == 0
    assert told_ready == [True]


def test_after_a_reboot_whole_files_wait_for_nobody(host: Host, told_ready: list[bool]) -> None:
    host.arm(boot_id="another", deadline=0.0)
    with local() as remote:
        remote.call("lock", site=host.site, who="bob", why="", token="b")
        thread = threading.Thread(target=host.guard)
        thread.start()
        time.sleep(0.5)
        assert told_ready == [False]
    thread.join(20)
    assert host.restored()
    assert told_ready == [False], "said once"


def test_after_a_reboot_files_that_cannot_be_put_back_do_not_hold_up_what_is_whole(
    host: Host, told_ready: list[bool]
) -> None:
    digest = host.env.state.generation(0)["files"]["a.py"]["sha256"]
    path = Path(host.env.state.path("objects", digest))
    content = path.read_bytes()
    path.unlink()
    host.arm(boot_id="another", deadline=0.0)
    thread = threading.Thread(target=host.guard)
    thread.start()
    deadline = time.monotonic() + 20
    while not told_ready and time.monotonic() < deadline:
        time.sleep(0.02)
    path.write_bytes(content)
    thread.join(20)
    assert told_ready == [False]
    assert host.restored()


def test_a_service_that_was_down_stays_down(host: Host) -> None:
    host.arm(serving=False)
    host.guard()
    assert host.restored()
    assert not any("start" in line for line in host.told)
    assert host.report["healthy"] is None


def test_a_restart_is_finished(host: Host) -> None:
    host.arm(to=None, target=None, command="restart")
    host.guard()
    assert not host.restored(), "a restart changes no file"
    assert host.told == ["reset-failed -- serve.service", "--no-block start -- serve.service"]
    assert host.report["healthy"] is True


def test_what_stands_in_the_way_is_tried_again(host: Host) -> None:
    """The content of the old generation cannot be read, until somebody mends that."""
    record = host.env.state.generation(0)
    digest = record["files"]["a.py"]["sha256"]
    path = Path(host.env.state.path("objects", digest))
    content = path.read_bytes()
    path.unlink()
    host.arm()
    thread = threading.Thread(target=host.guard)
    thread.start()
    deadline = time.monotonic() + 20
    while guard.report(host.env.state) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert "missing" in host.report["error"]
    assert "seconds" not in host.report, "not done"
    assert guard.terms(host.env.state) is not None
    path.write_bytes(content)
    thread.join(20)
    assert host.restored()
    assert host.report["error"] == ""


@pytest.mark.parametrize("damaged", ["generations/0.json", "generations/{new}.json", "current"])
def test_with_damaged_records_what_is_whole_serves(host: Host, damaged: str) -> None:
    """It was stopped, and nobody can say how to go back: down is the one end that helps nobody."""
    path = Path(host.env.state.path(damaged.format(new=host.new)))
    path.write_text("{")
    files = host.env.tree()
    host.arm()
    assert host.guard() == 0
    assert host.env.tree() == files
    assert_settled(host)
    report = host.report
    assert (report["to"], report["healthy"]) == (None, True)
    assert "is damaged" in report["left"]
    assert "left the files as they were (" in guard_text.describe(report)


@pytest.mark.parametrize("after", [False, True])
def test_a_start_by_somebody_else_counts_if_it_was_after_the_swap(
    host: Host, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """One before may have imported what was replaced then."""

    def swap(*args: Any) -> dict[str, Any]:
        done = swapping.swap(*args)
        at = time.monotonic() + (3600.0 if after else -1.0)
        host.unit("active", InactiveExitTimestampMonotonic=str(int(at * 1e6)))
        return done

    monkeypatch.setattr(guardian, "swap", swap)
    host.arm()
    host.guard()
    assert host.restored()
    ours = "--no-block start -- serve.service" in host.told
    assert (host.told.count("stop -- serve.service"), ours) == ((1, False) if after else (2, True))


def test_with_damaged_records_a_mixture_does_not_serve(host: Host) -> None:
    cut_off(host)
    path = Path(host.env.state.path("current"))
    content = path.read_text()
    path.write_text("{")
    host.arm()
    thread = threading.Thread(target=host.guard)
    thread.start()
    time.sleep(1.0)
    assert not any("start" in line for line in host.told)
    path.write_text(content)
    thread.join(20)
    assert host.restored()


def test_a_service_that_does_not_come_up_is_reported(host: Host) -> None:
    script = (host.env.root / "bin" / "systemctl").read_text()
    put_tool(host.env.root / "bin", "systemctl", script.replace("State=active", "State=failed"))
    host.arm(budget=1.0)
    host.guard()
    assert host.report["healthy"] is False


def test_one_that_does_not_come_up_gives_way_to_the_fallback(host: Host) -> None:
    """A lost rollback to a generation that does not load any more: better back than down."""
    put_tool(
        host.env.root / "bin",
        "systemctl",
        f"""\
state() {{ printf 'ActiveState=%s\\nSubState=running\\nInvocationID=%s\\n' $1 $2; }}
case "$1 $2" in
  show*) cat {host.env.root}/unit ;;
  stop*) state inactive i1 > {host.env.root}/unit ;;
  "--no-block start") if grep -q fixed {host.env.package_dir}/a.py
    then state active i2; else state failed i3; fi > {host.env.root}/unit ;;
esac
echo "$@" >> {host.env.root}/told
""",
    )
    host.arm(to=0, fallback=host.new, target=None, command="rollback")
    assert host.guard() == 0
    assert not host.restored()
    assert_settled(host)
    report = host.report
    assert (report["to"], report["gave_up"], report["healthy"]) == (host.new, 0, True)


# -- arming ----------------------------------------------------------------------------------

GIVEN = {"to": 0, "target": 1, "serving": True, "budget": 5.0, "within": 60.0, "token": "t"}


def test_arming_installs_what_it_needs_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = host.env.root / "units"
    folder.mkdir()
    monkeypatch.setattr(guard, "UNITS", str(folder))
    for _ in range(2):
        guard.arm(host.env.state, host.site, GIVEN, guard_program())
    name = "opsctl-guard-serve.service"
    assert host.told == [
        *("daemon-reload", f"-q enable -- {name}"),
        *(f"restart -- {name}", f"restart -- {name}"),
    ]
    text = (folder / name).read_text()
    assert "Before=serve.service" in text
    assert f"ConditionPathExists={host.env.state.root}/guard.json" in text
    terms = guard.terms(host.env.state)
    assert terms is not None
    assert terms["deadline"] == pytest.approx(time.monotonic() + 60, abs=10)
    for private in (guard.TERMS, guard.PROGRAM):
        assert Path(host.env.state.path(private)).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("loaded", "enabled", "expected"),
    [
        ("LoadState=loaded\nNeedDaemonReload=no\n", "disabled", ["-q enable -- {}"]),
        ("LoadState=loaded\nNeedDaemonReload=yes\n", "enabled", ["daemon-reload"]),
    ],
)
def test_arming_mends_what_a_cut_off_one_left(
    host: Host, monkeypatch: pytest.MonkeyPatch, loaded: str, enabled: str, expected: list[str]
) -> None:
    """The unit was written, and its host program ended or systemctl failed right after it."""
    folder = host.env.root / "units"
    folder.mkdir()
    monkeypatch.setattr(guard, "UNITS", str(folder))
    name = "opsctl-guard-serve.service"
    text = guard.unit_text("serve.service", host.env.state.root, sys.executable)
    (folder / name).write_text(text)
    (host.env.root / "loaded").write_text(loaded)
    (host.env.root / "enabled").write_text(enabled)
    guard.arm(host.env.state, host.site, GIVEN, guard_program())
    assert host.told == [*(line.format(name) for line in expected), f"restart -- {name}"]


ODD = '/var/lib/o p$HOME ${x} 100%/a "q" \\\\ ä\'/serve'


def test_the_state_folder_may_have_any_name() -> None:
    lines = guard.unit_text("serve.service", ODD, "/opt/my py%/bin/python3").splitlines()
    word = '"/var/lib/o p$HOME ${x} 100%%/a \\"q\\" \\\\\\\\ ä\'/serve"'
    assert f"RequiresMountsFor={word}" in lines
    # Takes all of its line, and would take quotes for a part of the path.
    assert f"ConditionPathExists={ODD.replace('%', '%%')}/guard.json" in lines
    argument = word.replace("$", "$$")
    program = argument.replace('/serve"', '/serve/guard.py"')
    assert f'ExecStart="/opt/my py%%/bin/python3" -I {program} {argument}' in lines


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("root", ["/var/lib/opsctl/serve", ODD])
def test_systemd_reads_the_guards_unit(tmp_path: Path, root: str) -> None:
    path = tmp_path / "opsctl-guard-serve.service"
    path.write_text(guard.unit_text("serve.service", root, sys.executable))
    argv = ["systemd-analyze", "verify", "--man=no", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_guard_that_does_not_start_is_no_guard(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = host.env.root / "units"
    folder.mkdir()
    monkeypatch.setattr(guard, "UNITS", str(folder))
    put_tool(host.env.root / "bin", "systemctl", 'case "$1" in restart) echo no >&2; exit 1;; esac')
    with pytest.raises(HostFault) as caught:
        guard.arm(host.env.state, host.site, GIVEN, guard_program())
    assert caught.value.code == "guard_failed"
    assert guard.terms(host.env.state) is None


def test_a_renewal_that_fails_leaves_what_was_armed(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = host.env.root / "units"
    folder.mkdir()
    monkeypatch.setattr(guard, "UNITS", str(folder))
    host.arm(token="ann's")
    put_tool(host.env.root / "bin", "systemctl", 'case "$1" in restart) echo no >&2; exit 1;; esac')
    with pytest.raises(HostFault):
        guard.arm(host.env.state, host.site, GIVEN, guard_program())
    assert (guard.terms(host.env.state) or {})["token"] == "ann's"


def test_the_terms_of_another_boot_are_renewed_before_the_guard_reads_them(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the old ones it would wait for the lock of the very program that starts it."""
    folder = host.env.root / "units"
    folder.mkdir()
    monkeypatch.setattr(guard, "UNITS", str(folder))
    host.arm(boot_id="another")
    script = (host.env.root / "bin" / "systemctl").read_text().removeprefix("#!/bin/sh\n")
    copy = f"cp {host.env.state.root}/guard.json {host.env.root}/seen"
    put_tool(host.env.root / "bin", "systemctl", f'case "$1" in restart) {copy};; esac\n{script}')
    guard.arm(host.env.state, host.site, GIVEN, guard_program())
    assert json.loads((host.env.root / "seen").read_text())["boot_id"] == probe.boot_id()


def test_it_shows_that_it_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        guardian._show_life()
        began = time.monotonic()
        assert [manager.recv(64) for _ in range(5)] == [b"WATCHDOG=1"] * 5
        assert time.monotonic() - began >= 0.1
        monkeypatch.delenv("NOTIFY_SOCKET")


def test_it_needs_the_lock(host: Host) -> None:
    with local() as remote, pytest.raises(Refused) as caught:
        remote.call("arm_guard", site=host.site, given=GIVEN, program="")
    assert caught.value.code == "lock_not_held"


def test_silence_ends_a_host_program_that_was_promised_life(host: Host) -> None:
    with local() as remote:
        remote.call("lock", site=host.site, who="ann", why="", token="t")
        remote.keep_alive(every=3600, patience=0.3)
        deadline = time.monotonic() + 10
        while lock_holder(host.env.state) is not None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert lock_holder(host.env.state) is None


def test_a_client_that_speaks_is_kept(host: Host) -> None:
    with local() as remote:
        remote.call("lock", site=host.site, who="ann", why="", token="t")
        remote.keep_alive(every=0.1, patience=1.5)
        time.sleep(3.0)
        assert lock_holder(host.env.state) is not None


def test_a_stop_under_way_is_not_taken_for_the_new_start(host: Host) -> None:
    """The client died right after it had queued the stop: the old start is on show for a while."""
    host.unit("deactivating")
    put_tool(
        host.env.root / "bin",
        "systemctl",
        f"""\
case "$1 $2" in
  show*) cat {host.env.root}/unit ;;
  "--no-block start") (sleep 0.5
    printf 'ActiveState=active\\nSubState=running\\nInvocationID=i2\\n' > {host.env.root}/unit) \
    >&- 2>&- & ;;
esac
echo "$@" >> {host.env.root}/told
""",
    )
    host.arm(to=None)
    assert host.guard() == 0
    assert host.report["healthy"] is True


def test_a_program_that_ends_while_it_arms_leaves_nothing(host: Host) -> None:
    """Between the guard's start and its terms nothing has been changed yet."""
    Path(host.env.state.path(guard.TERMS)).write_text('{"arming": true}')
    thread = threading.Thread(target=host.guard)
    with local() as remote:
        remote.call("lock", site=host.site, who="ann@laptop", why="", token="t")
        thread.start()
        time.sleep(0.3)
        assert thread.is_alive(), "it waits for the terms"
        assert remote.call("lock_state", site=host.site)["terms"] is None
    thread.join(20)
    assert not host.restored()
    assert not Path(host.env.state.path(guard.TERMS)).exists()
    assert guard.report(host.env.state) is None
