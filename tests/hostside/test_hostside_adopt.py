"""Changes by hand: refused with a diff, or adopted and returned to the byte."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest
from hostside_tools import WHEEL, Environment, sha256

from opsctl import patchset as ps
from opsctl.errors import Refused
from opsctl.hostside.state import client_address
from opsctl.inventory import Host, Service, Ssh
from opsctl.journal import redact
from opsctl.rollout import commands, drift
from opsctl.rollout.plan import Plan, make_plan
from opsctl.rollout.session import Connect, Session
from opsctl.transport import local

pytest_plugins = ["hostside_fixtures"]

FIXED = b"VALUE = 'fixed'\n"
PRINTED = FIXED + b"print('left by a hand')\n"

MANIFEST = """\
name: fix
version: {version}
description: For a test
for:
  distribution: demo-dist
  version: "1.0"
  package: demo_pkg
  wheels:
    - filename: demo_dist-1.0-py3-none-any.whl
      sha256: {sha256}
restart: true
"""
PATCH = """\
Description: Change one value
Author: A Tester <tester@example.org>
Forwarded: no
Last-Update: 2026-11-29
---
--- a/a.py
+++ b/a.py
@@ -1 +1 @@
-VALUE = 'wheel'
+VALUE = '{value}'
"""


def patch_set(folder: Path, version: str, value: str) -> ps.PatchSet:
    folder.mkdir()
    (folder / "patchset.yaml").write_text(MANIFEST.format(version=version, sha256="ab" * 32))
    (folder / "0001-value.patch").write_text(PATCH.format(value=value))
    (folder / "series").write_text("0001-value.patch\n")
    return ps.load(folder)


@pytest.fixture
def first(tmp_path: Path) -> ps.PatchSet:
    return patch_set(tmp_path / "first", "1.0.0", "fixed")


@pytest.fixture
def second(tmp_path: Path) -> ps.PatchSet:
    return patch_set(tmp_path / "second", "2.0.0", "better")


@pytest.fixture
def session(env: Environment, tools: Path) -> Iterator[Session]:
    service = Service.model_validate(
        {
            "unit": "serve.service",
            "python": str(env.python),
            "port": 1,
            "distribution": "demo-dist",
            "state_dir": str(env.root / "state"),
            "model": {"path": "/m", "served_name": "tiny"},
        }
    )
    host = Host(ssh=Ssh(address="a"), services={"serve": service})
    host._name = "alpha"
    found = Session(host, host.services["serve"], cast(Connect, local), package="demo_pkg")
    found.lock("test")
    yield found
    found.close()


def carry_out(session: Session, plan: Plan) -> dict[str, Any]:
    record: dict[str, Any] = session.call(
        "stage",
        target={**plan.target, "who": "ann", "why": "test"},
        contents=plan.contents,
        seen=plan.seen,
        found_set=plan.installed,
        adopted=list(plan.adopted),
    )
    session.call("swap", number=record["number"])
    return record


def by_hand(env: Environment, path: str, data: bytes) -> None:
    (env.package_dir / path).write_bytes(data)


def test_a_plan_looks_at_the_host_once(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look starts the service's Python; and two could tell of two hosts."""
    (tmp_path / "patches" / "demo-dist-1.0").mkdir(parents=True)
    patch_set(tmp_path / "patches" / "demo-dist-1.0" / "fix", "1.0.0", "fixed")
    called: list[str] = []
    real = Session.call

    def call(self: Session, op: str, **params: Any) -> Any:
        called.append(op)
        return real(self, op, **params)

    monkeypatch.setattr(Session, "call", call)
    made = commands.plan(session, tmp_path / "patches", "fix")
    assert [change.path for change in made.changes] == ["a.py"]
    assert called == ["inspect", "read"]


def test_prints_in_a_deployed_file(
    env: Environment, session: Session, first: ps.PatchSet, second: ps.PatchSet
) -> None:
    signer = ps.Signer("ann@example.org", "ED25519 SHA256:x")
    deployed = carry_out(session, make_plan(session, first, session.inspect(), signer=signer))
    assert "from" in deployed
    assert env.state.generation(deployed["number"])["signed"] == asdict(signer)
    by_hand(env, "a.py", PRINTED)
    with pytest.raises(Refused) as caught:
        make_plan(session, second, session.inspect())
    assert caught.value.code == "drift"
    assert caught.value.message == (
        "drift on the host: a.py: it was changed by hand:\n"
        "--- a.py  recorded (generation 1)\n"
        "+++ a.py  on the host\n"
        "@@ -1 +1,2 @@\n"
        " VALUE = 'fixed'\n"
        "+print('left by a hand')\n"
    ), "its own lines, and not the set's"
    assert caught.value.remedy == drift.remedy("alpha", 1)

    plan = make_plan(session, second, session.inspect(), adopt=True)
    assert plan.adopted == ("a.py",)
    assert plan.installed is not None
    assert plan.installed["version"] == "1.0.0"
    assert "-print('left by a hand')" in plan.diff
    record = carry_out(session, plan)
    assert env.tree()["a.py"] == b"VALUE = 'better'\n"
    found = env.state.generation(record["predecessor"])
    assert (found["status"], found["adopted"], found["who"]) == ("found", ["a.py"], "ann")
    assert found["files"]["a.py"] == {
        "sha256": sha256(PRINTED),
        "pristine_sha256": sha256(WHEEL["a.py"]),
    }
    assert env.state.get(sha256(PRINTED)) == PRINTED
    session.call("swap", number=found["number"])
    assert env.tree()["a.py"] == PRINTED


def test_the_same_set_over_the_prints(
    env: Environment, session: Session, first: ps.PatchSet
) -> None:
    carry_out(session, make_plan(session, first, session.inspect()))
    by_hand(env, "a.py", PRINTED)
    plan = make_plan(session, first, session.inspect(), adopt=True)
    assert not plan.noop
    carry_out(session, plan)
    assert env.tree()["a.py"] == FIXED


def test_a_file_that_no_set_touches_is_left_alone(
    env: Environment, session: Session, first: ps.PatchSet
) -> None:
    by_hand(env, "b.py", b"print('here')\n")
    plan = make_plan(session, first, session.inspect())
    assert plan.adopted == ()
    carry_out(session, plan)
    assert env.tree()["b.py"] == b"print('here')\n"
    audit = session.inspect(audit=True)["install"]["audit"]
    assert audit == {"modified": ["a.py", "b.py"], "missing": [], "extra": []}


def test_before_the_first_deploy_the_wheel_itself_is_asked(
    env: Environment, session: Session, first: ps.PatchSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing on the host has the wheel's content of the file any more."""
    by_hand(env, "a.py", b"VALUE = 'by hand'\n")
    fetched = {"a.py": WHEEL["a.py"]}
    monkeypatch.setattr(ps, "fetch", lambda patchset, emit: Path("wheel"))
    monkeypatch.setattr(ps, "read_sources", lambda wheel, package, paths: (fetched, {}))
    with pytest.raises(Refused, match="neither the wheel's nor of a known set") as caught:
        make_plan(session, first, session.inspect())
    assert "--adopt" in caught.value.remedy
    plan = make_plan(session, first, session.inspect(), adopt=True)
    assert (plan.adopted, plan.installed) == (("a.py",), None)
    record = carry_out(session, plan)
    session.call("swap", number=record["predecessor"])
    assert env.tree()["a.py"] == b"VALUE = 'by hand'\n"
    fetched["a.py"] = b"another wheel"
    by_hand(env, "a.py", b"once more\n")
    env.reinstall({**WHEEL, "a.py": b"VALUE = 'rebuilt'\n"})
    by_hand(env, "a.py", b"once more\n")
    with pytest.raises(Refused, match="neither the wheel's"):
        make_plan(session, first, session.inspect(), adopt=True)


def test_after_a_reinstall_the_recorded_set_is_not_named(
    env: Environment, session: Session, first: ps.PatchSet, second: ps.PatchSet
) -> None:
    carry_out(session, make_plan(session, first, session.inspect()))
    assert make_plan(session, second, session.inspect()).installed is not None
    env.reinstall()
    plan = make_plan(session, second, session.inspect())
    assert plan.installed is None
    assert plan.new_patches == ("0001-value.patch",)
    record = carry_out(session, plan)
    found = env.state.generation(record["predecessor"])
    assert (found["status"], found["set"], found["adopted"]) == ("found", None, [])


def test_a_set_put_there_by_other_means_is_named(
    env: Environment, session: Session, first: ps.PatchSet
) -> None:
    by_hand(env, "a.py", FIXED)
    plan = make_plan(session, first, session.inspect())
    assert plan.noop
    assert plan.installed is not None
    assert plan.installed["name"] == "fix"


def test_damaged_records_are_listed_as_such(
    env: Environment, session: Session, first: ps.PatchSet
) -> None:
    carry_out(session, make_plan(session, first, session.inspect()))
    Path(env.state.path("generations", "0.json")).write_text("{")
    assert [g["number"] for g in session.call("generations")] == [1]
    damaged, good = session.call("generations", damaged=True)
    assert damaged["number"] == 0
    assert "0.json is damaged" in damaged["fault"]["message"]
    assert good["number"] == 1


def test_what_a_killed_swap_leaves_is_found(env: Environment, session: Session) -> None:
    copy = env.site_packages / ".opsctl-next-demo_pkg"
    copy.mkdir()
    by_hand(env, ".opsctl-x7", b"half")
    install = session.inspect(audit=True)["install"]
    assert install["leftovers"] == [str(copy)]
    assert install["audit"]["extra"] == [".opsctl-x7"]


def test_where_a_client_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """sudo drops SSH_CONNECTION; the process that started it has it still."""
    code = (
        "import os, subprocess, sys\n"
        "e = dict(os.environ); e.pop('SSH_CONNECTION')\n"
        "c = 'from opsctl.hostside.state import client_address as a; print(a())'\n"
        "sys.exit(subprocess.call([sys.executable, '-c', c], env=e))\n"
    )
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.9 50022 10.0.0.1 22")
    assert client_address() == "10.0.0.9"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "10.0.0.9\n"


def test_a_recorded_command_line_has_no_key() -> None:
    argv = ("/x", "--api-key", "sk-1", "--admin-api-key=sk-2", "--port", "1")
    assert redact(" ".join(argv)).split() == [
        *("/x", "--api-key", "[redacted]", "--admin-api-key=[redacted]", "--port", "1")
    ]
