"""The operations over the real conversation: the host program is a process of its own."""

from __future__ import annotations

import base64
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from hostside_tools import WHEEL, Environment, sha256

from opsctl.errors import HostProgramError, LockHeld, Refused, Unreachable
from opsctl.transport import local

pytest_plugins = ["hostside_fixtures"]

NEW = b"VALUE = 'fixed'\n"


def holder_of(remote: Any, env: Environment) -> Any:
    return remote.call("inspect", site=env.site)["lock"]


@pytest.mark.usefixtures("tools")
def test_a_deploy_from_plan_to_confirmation(env: Environment) -> None:
    site, files = env.site, {"a.py": NEW}
    with local() as remote:
        facts = remote.call("inspect", site=site, audit=True)
        assert (facts["generation"], facts["generations"], facts["loads"]) == (None, [], [])
        assert facts["install"]["version"] == "1.0"
        assert facts["install"]["files"] == {}, "no generation names any"
        assert facts["install"]["audit"] == {"modified": [], "missing": [], "extra": []}
        assert facts["disk"]["state"]["free"] > 0
        assert facts["host"]["systemd"] == "252"
        assert not (env.root / "state").exists(), "looking changes nothing"
        remote.call("lock", site=site, who="ann@laptop", why="fix")
        record = remote.call(
            "stage",
            site=site,
            target=env.target(files),
            contents=env.contents(files),
            seen=env.seen(files),
        )
        number = record["number"]
        assert remote.call("swap", site=site, number=number)["changed"] == ["a.py"]
        remote.call(
            "conclude",
            site=site,
            number=number,
            status="confirmed",
            verdict={"verdict": "pass"},
            load_seconds=12.5,
        )
        remote.call("record_load", site=site, seconds=13.5)
        facts = remote.call("inspect", site=site)
        recorded = remote.call("recorded", site=site)
        assert recorded.pop("lock")["who"] == "ann@laptop"
        assert recorded == {key: facts[key] for key in recorded}, "a part of it"
        assert recorded["loads"] == [12.5, 13.5]
        assert facts["generation"]["number"] == number
        assert facts["install"]["files"]["a.py"]["sha256"] == sha256(NEW), "of the generation"
        assert facts["loads"] == [12.5, 13.5]
        statuses = [g["status"] for g in remote.call("generations", site=site)]
        assert statuses == ["found", "confirmed"]
        read = remote.call(
            "read",
            site=site,
            install=facts["install"],
            paths=["a.py", "gone.py"],
            objects=[sha256(WHEEL["a.py"]), "0" * 64],
        )
        assert {k: v and base64.b64decode(v) for k, v in read["paths"].items()} == {
            "a.py": NEW,
            "gone.py": None,
        }
        assert read["record"] == {"a.py": sha256(WHEEL["a.py"]), "gone.py": None}
        assert base64.b64decode(read["objects"][sha256(WHEEL["a.py"])]) == WHEEL["a.py"]
        assert read["objects"]["0" * 64] is None
    assert env.tree()["a.py"] == NEW


@pytest.mark.usefixtures("tools")
def test_an_install_that_is_gone_is_a_finding_and_no_failure(env: Environment) -> None:
    with local() as remote:
        facts = remote.call("inspect", site={**env.site, "python": "/nonexistent"})
    assert facts["install"]["fault"]["code"] == "python_missing"
    assert "package" not in facts["disk"]


@pytest.mark.parametrize("state", ["active", "activating", "deactivating", ""])
@pytest.mark.usefixtures("tools")
def test_a_swap_under_a_unit_that_is_not_down_is_refused(env: Environment, state: str) -> None:
    (env.root / "unit").write_text(f"ActiveState={state}\n")
    number = env.stage({"a.py": NEW})["number"]
    with local() as remote:
        remote.call("lock", site=env.site, who="ann", why="fix")
        with pytest.raises(Refused) as caught:
            remote.call("swap", site=env.site, number=number)
    assert caught.value.code == "unit_running"
    assert env.tree() == WHEEL


@pytest.mark.parametrize(
    ("op", "params"),
    [
        ("stage", {"target": {}, "contents": {}, "seen": {}}),
        ("swap", {"number": 1}),
        ("conclude", {"number": 1, "status": "confirmed", "verdict": {}}),
        ("record_load", {"seconds": 1.0}),
    ],
)
def test_every_change_needs_the_lock(env: Environment, op: str, params: dict[str, Any]) -> None:
    with local() as remote:
        with pytest.raises(Refused) as caught:
            remote.call(op, site=env.site, **params)
        assert caught.value.code == "lock_not_held"
        remote.call("lock", site={**env.site, "service": "other"}, who="ann", why="fix")
        with pytest.raises(Refused):
            remote.call(op, site=env.site, **params)


@pytest.mark.usefixtures("tools")
def test_a_second_deploy_is_refused_with_the_holders_name(env: Environment) -> None:
    with local() as first, local() as second:
        first.call("lock", site=env.site, who="ann@laptop", why="the fix")
        with pytest.raises(LockHeld) as caught:
            second.call("lock", site=env.site, who="bob", why="mine")
        assert caught.value.message.startswith("ann@laptop holds the lock of this service for ")
        assert caught.value.message.endswith(": the fix")
        assert holder_of(second, env)["who"] == "ann@laptop"
        first.call("unlock")
        assert holder_of(second, env) is None
        second.call("lock", site=env.site, who="bob", why="mine")


@pytest.mark.usefixtures("tools")
def test_a_killed_holder_holds_nothing(env: Environment) -> None:
    with local() as first, local() as second:
        first.call("lock", site=env.site, who="ann@laptop", why="the fix")
        pid = holder_of(second, env)["pid"]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(Unreachable):
            first.call("generations", site=env.site)
        lock = Path(env.root / "state" / "serve" / "lock")
        assert "ann@laptop" in lock.read_text(), "its name is still there, and does not count"
        assert holder_of(second, env) is None
        second.call("lock", site=env.site, who="bob", why="mine")


@pytest.mark.usefixtures("tools")
def test_a_lost_connection_does_not_lock_its_own_client_out(env: Environment) -> None:
    """Frozen, as a program whose sshd has not noticed yet that nobody is there."""
    with local() as first, local() as second:
        first.call("lock", site=env.site, who="ann@laptop", why="the fix", token="mine")
        os.kill(holder_of(second, env)["pid"], signal.SIGSTOP)
        with pytest.raises(LockHeld):
            second.call("lock", site=env.site, who="bob", why="mine", token="another")
        second.call("lock", site=env.site, who="ann@laptop", why="restoring", token="mine")


@pytest.mark.usefixtures("tools")
def test_a_client_that_goes_away_frees_its_lock(env: Environment) -> None:
    with local() as second:
        with local() as first:
            first.call("lock", site=env.site, who="ann@laptop", why="the fix")
        second.call("lock", site=env.site, who="bob", why="mine")


def test_what_has_no_such_name_is_a_fault_of_the_program(env: Environment) -> None:
    with local() as remote, pytest.raises(HostProgramError) as caught:
        remote.call("inspekt", site=env.site)
    assert caught.value.code == "unknown_operation"


def test_watch_tells_states_and_lines_of_the_new_start(env: Environment, tools: Path) -> None:
    """A journalctl that prints one line of the start that it was asked for, and follows."""
    script = tools / "journalctl"
    script.write_text(
        "#!/bin/sh\n"
        'for word; do case "$word" in _SYSTEMD_INVOCATION_ID=*) id=${word#*=};; esac; done\n'
        'printf \'{"MESSAGE": "line of %s", "_SYSTEMD_INVOCATION_ID": "%s"}\\n{"half\' $id $id\n'
        "exec sleep 30\n"
    )
    script.chmod(0o755)

    def show(state: str, invocation: str) -> None:
        (env.root / "next").write_text(
            f"ActiveState={state}\nInvocationID={invocation}\nControlGroup=/x\n"
        )
        (env.root / "next").replace(env.root / "unit")

    show("active", "old")
    seen: list[Any] = []
    with (
        local() as remote,
        remote.stream("watch", unit="serve.service", ignore="old", interval=0.05) as watch,
    ):

        def until(wanted: Any) -> None:
            deadline = time.monotonic() + 20
            while not wanted(seen[-1] if seen else {}):
                assert time.monotonic() < deadline, seen
                item = watch.get(1.0)
                if item is not None:
                    seen.append(item)

        until(lambda item: item.get("unit", {}).get("InvocationID") == "old")
        show("activating", "new")
        until(lambda item: "entries" in item)
    units = [item["unit"] for item in seen if "unit" in item]
    assert [unit["InvocationID"] for unit in units][-1] == "new"
    assert all(unit["read_bytes"] == 0 and unit["time"] > 0 for unit in units)
    assert seen[-1]["entries"] == [{"MESSAGE": "line of new", "_SYSTEMD_INVOCATION_ID": "new"}]
    assert abs(seen[-1]["time"] - time.time()) < 60


def test_the_units_journal_and_its_control(env: Environment, tools: Path) -> None:
    script = tools / "journalctl"
    script.write_text(f'#!/bin/sh\necho "$@" >> {env.root}/asked\necho \'{{"MESSAGE": "m"}}\'\n')
    script.chmod(0o755)
    with local() as remote:
        assert remote.call("unit_state", unit="serve.service")["ActiveState"] == "inactive"
        assert remote.call("unit_control", site=env.site, verb="start", who="ann")
        assert remote.call("journal", unit="serve.service", invocation="i1", lines=5) == [
            {"MESSAGE": "m"}
        ]
    told = (env.root / "told").read_text().splitlines()
    assert [line for line in told if not line.startswith("show")] == [
        "reset-failed -- serve.service",
        "--no-block start -- serve.service",
    ]
    asked = (env.root / "asked").read_text()
    assert asked.endswith("--lines=5 _SYSTEMD_INVOCATION_ID=i1 + INVOCATION_ID=i1\n")


@pytest.mark.usefixtures("tools")
def test_the_log_names_the_signer_and_a_swap_to_what_nobody_signed(env: Environment) -> None:
    signed = {"principal": "ann@example.org", "key": "ED25519 SHA256:x"}
    files = {"a.py": NEW}
    with local() as remote:
        remote.call("lock", site=env.site, who="ann", why="fix")
        record = remote.call(
            "stage",
            site=env.site,
            target={**env.target(files), "signed": signed},
            contents=env.contents(files),
            seen=env.seen(files),
        )
        assert record["signed"] == signed
        remote.call("swap", site=env.site, number=record["number"])
        remote.call("swap", site=env.site, number=0, unsigned=True, why="it died")
        entries = {e["event"]: e for e in remote.call("audit_log", site=env.site)}
        first, second = (e for e in remote.call("audit_log", site=env.site) if e["event"] == "swap")
    assert entries["stage"]["signed"] == "ann@example.org"
    assert ("unsigned" in first, second["unsigned"]) == (False, True)
    assert (first["who"], second["who"], second["why"]) == ("ann", "ann", "it died")


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("word", [True, False])
def test_the_log_has_the_end_of_a_lock_and_what_was_adopted(env: Environment, word: bool) -> None:
    """Whether the client gives it back, or is gone and the program ends."""
    files = {"a.py": NEW}
    with local() as remote:
        remote.call("lock", site=env.site, who="ann", why="fix")
        remote.call(
            "stage",
            site=env.site,
            target=env.target(files),
            contents=env.contents(files),
            seen=env.seen(files),
            adopted=["a.py"],
        )
        if word:
            remote.call("unlock")
    with local() as remote:
        deadline = time.monotonic() + 20
        while holder_of(remote, env) is not None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        entries = remote.call("audit_log", site=env.site)
    assert [entry["event"] for entry in entries] == ["lock", "stage", "unlock"]
    assert entries[1]["adopted"] == "a.py"
    assert entries[2]["who"] == "ann"
