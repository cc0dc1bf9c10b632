"""The unit's own files as a generation: put in place under a running service, and secrets."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hostside_tools import Environment, sha256

from opsctl.hostside import plain, unitfiles
from opsctl.hostside import swap as module
from opsctl.hostside.errors import HostFault

pytest_plugins = ["hostside_fixtures"]

UNIT = "serve.service"
SECRET = b'A_KEY="s3cret"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "system"
    found.mkdir()
    monkeypatch.setattr(unitfiles, "FOLDER", str(found))
    return found


def stage(env: Environment, files: Mapping[str, bytes | None]) -> int:
    """A generation of these of the unit's files alone."""
    contents = {sha256(d): base64.b64encode(d).decode() for d in files.values() if d is not None}
    unit = {path: None if d is None else sha256(d) for path, d in files.items()}
    target: dict[str, Any] = {"set": None, "files": {}, "unit": unit}
    record = module.stage(env.state, env.install, target, contents, seen={}, found_set=None)
    return int(record["number"])


@pytest.mark.usefixtures("tools")
def test_secrets_are_written_for_root_alone_and_never_read(env: Environment, folder: Path) -> None:
    path = Path(unitfiles.beside(UNIT, unitfiles.SECRETS))
    conf = folder / f"{UNIT}.d" / "10-x.conf"
    number = stage(env, {str(path): SECRET, str(conf): b"[Service]\n"})
    module.swap(env.state, env.install, number, live=True)
    assert (stat.S_IMODE(path.stat().st_mode), path.read_bytes()) == (0o600, SECRET)
    assert stat.S_IMODE(conf.stat().st_mode) == 0o644
    facts = unitfiles.facts(UNIT)
    assert facts["secrets"] == sha256(SECRET)
    assert list(facts["files"]) == [str(conf)]
    record = env.state.path("generations", f"{number}.json")
    assert "s3cret" not in Path(record).read_text(encoding="utf-8")
    stored = Path(env.state.path("objects", sha256(SECRET)))
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600

    module.swap(env.state, env.install, 0, live=True)
    assert not path.exists()
    assert unitfiles.facts(UNIT)["secrets"] is None


@pytest.mark.usefixtures("tools")
def test_under_a_running_service_its_package_stays(env: Environment, folder: Path) -> None:
    fragment = folder / UNIT
    number = stage(env, {str(fragment): b"[Service]\nExecStart=/new\n"})
    code = env.stage({"a.py": b"VALUE = 'fixed'\n"})["number"]
    before = env.tree()
    with pytest.raises(HostFault) as caught:
        module.swap(env.state, env.install, code, live=True)
    assert caught.value.code == "changed_since_plan"
    assert env.state.swap_under_way() is None
    assert not fragment.exists()
    done = module.swap(env.state, env.install, number, live=True)
    assert done["changed"] == [str(fragment)]
    assert (fragment.exists(), env.tree()) == (True, before)
    current = env.state.current()
    assert current is not None
    assert current["number"] == number


@pytest.mark.usefixtures("tools")
def test_the_services_user_can_read_the_check(env: Environment, folder: Path) -> None:
    path = folder / f"{UNIT}.d" / unitfiles.PRESTART
    number = stage(env, {str(path): b"pass\n"})
    before = os.umask(0o077)
    try:
        module.swap(env.state, env.install, number, live=True)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)]
    assert modes == [0o644, 0o755]


def test_no_other_file_is_the_units(folder: Path) -> None:
    for name in ("opsctl-prestart.py", "opsctl-secrets.env", "20-x.conf"):
        path = unitfiles.beside(UNIT, name)
        assert unitfiles.check(UNIT, path) == path
    for path in (
        unitfiles.beside(UNIT, "other.py"),
        unitfiles.beside(UNIT, "../opsctl-secrets.env"),
        unitfiles.beside("sshd.service", "opsctl-prestart.py"),
        str(folder / "opsctl-prestart.py"),
    ):
        with pytest.raises(HostFault):
            unitfiles.check(UNIT, path)


def test_a_start_without_speculation_is_checked_without_the_drafter() -> None:
    arguments = "--model-path /m --speculative-draft-model-path /d --port 1"
    text = f"[Service]\nExecStartPre=/p /check {arguments}\nExecStart=/p -m x {arguments}\n"
    lines = plain.without_speculation(text).splitlines()
    assert lines[-4:] == [
        "ExecStart=",
        "ExecStartPre=",
        "ExecStartPre=/p /check --model-path /m --port 1",
        "ExecStart=/p -m x --model-path /m --port 1",
    ]
    other = f"[Service]\nExecStartPre=/bin/true\nExecStart=/p -m x {arguments}\n"
    assert "ExecStartPre" not in plain.without_speculation(other)
