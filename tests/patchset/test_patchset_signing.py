"""Signatures of sets, with the real ssh-keygen."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from patchset_tools import make_diff, make_set
from typer.testing import CliRunner

from opsctl import inventory
from opsctl.cli.app import app
from opsctl.errors import OpsctlError, PatchError, Refused, UsageError
from opsctl.inventory import Service
from opsctl.patchset import load, sign, signing, verify
from opsctl.rollout.plan import find_patchset
from opsctl.rollout.session import Session

needs_ssh_keygen = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed here"
)
pytestmark = needs_ssh_keygen

PATCH = make_diff("x.py", b"x = 1\n", b"x = 2\n")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The private keys `ann` and `bob`."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ann", "bob"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name]
        subprocess.run(argv, check=True)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A set where `find` looks for it."""
    return make_set(
        tmp_path / "patches" / "demo-1.0" / "fix",
        {"0001-x.patch": PATCH},
        files={"new/y.py": b"y = 1\n"},
    )


def allow(path: Path, keys: Path, name: str = "ann", options: str = "", who: str = "") -> Path:
    kind, public, _ = (keys / f"{name}.pub").read_text().split()
    path.write_text(f"# who may\n{who or name + '@example.org'} {options} {kind} {public}\n")
    return path


@pytest.fixture
def allowed(tmp_path: Path, keys: Path) -> Path:
    return allow(tmp_path / "allowed_signers", keys)


def refused(code: str, function: Callable[..., Any], *args: Any) -> OpsctlError:
    with pytest.raises(OpsctlError) as caught:
        function(*args)
    assert caught.value.code == code
    assert caught.value.remedy
    return caught.value


def test_a_signed_set_is_known_by_its_signer(folder: Path, keys: Path, allowed: Path) -> None:
    made = sign(load(folder), keys / "ann", "ann@example.org")
    assert made.path == folder / "patchset.sig"
    assert made.path.stat().st_mode & 0o7777 == 0o644
    signer = verify(load(folder), allowed)
    assert (signer.principal, signer.key) == ("ann@example.org", made.key)
    assert signer.key.startswith("ED25519 SHA256:")
    allowed.write_text(made.line + "\n")
    assert verify(load(folder), allowed) == signer, "the printed line is one that lets it in"
    assert [p.name for p in folder.iterdir() if p.name.startswith(".")] == []


def test_a_signature_is_of_the_set_wherever_it_lies(
    folder: Path, keys: Path, allowed: Path, tmp_path: Path
) -> None:
    sign(load(folder), keys / "ann", "ann")
    there = tmp_path / "elsewhere" / "fix"
    shutil.copytree(folder, there)
    (there / "files" / "new" / "__pycache__").mkdir()
    (there / "files" / "new" / "__pycache__" / "y.cpython-311.pyc").write_bytes(b"x")
    verify(load(there), allowed)


def test_an_unsigned_set_is_refused(folder: Path, allowed: Path) -> None:
    error = refused("patch_set_unsigned", verify, load(folder), allowed)
    assert isinstance(error, Refused)
    assert error.exit_code == 3
    assert "fix 1.0.0" in error.message
    (folder / "patchset.sig").symlink_to(allowed)
    refused("patch_set_unsigned", verify, load(folder), allowed)


def change(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert data.count(old) >= 1
    path.write_bytes(data.replace(old, new, 1))


ALTERED: dict[str, Callable[[Path], object]] = {
    "manifest": lambda f: change(f / "patchset.yaml", b"A set", b"B set"),
    "version": lambda f: change(f / "patchset.yaml", b"1.0.0", b"1.0.1"),
    "target": lambda f: change(f / "patchset.yaml", b"package: demo", b"package: demp"),
    "wheel": lambda f: change(f / "patchset.yaml", b"abab", b"abac"),
    "series": lambda f: change(f / "series", b"\n", b"\n#"),
    "hunk": lambda f: change(f / "0001-x.patch", b"+x = 2", b"+x = 3"),
    "header": lambda f: change(f / "0001-x.patch", b"For a reason", b"For no reason"),
    "new file": lambda f: change(f / "files" / "new" / "y.py", b"1", b"2"),
    "file added": lambda f: (f / "files" / "z.py").write_bytes(b"z = 1\n"),
    "stray file added": lambda f: (f / "notes.txt").write_bytes(b""),
    "patch added": lambda f: (
        shutil.copy(f / "0001-x.patch", f / "0002-x.patch"),
        (f / "series").write_text("0001-x.patch\n0002-x.patch\n"),
    ),
    "file removed": lambda f: shutil.rmtree(f / "files" / "new"),
    "file renamed": lambda f: (f / "files" / "new" / "y.py").rename(f / "files" / "new" / "z.py"),
    "patch removed": lambda f: (
        shutil.move(f / "0001-x.patch", f.parent),
        (f / "series").write_text(""),
    ),
    "one byte of the signature": lambda f: change(f / "patchset.sig", b"U1NIU0", b"U1NIU1"),
    "no signature at all": lambda f: (f / "patchset.sig").write_bytes(b"\0" * 100),
}


@pytest.mark.parametrize("what", ALTERED)
def test_an_altered_set_is_refused(what: str, folder: Path, keys: Path, allowed: Path) -> None:
    sign(load(folder), keys / "ann", "ann")
    ALTERED[what](folder)
    error = refused("patch_set_altered", verify, load(folder), allowed)
    assert error.exit_code == 3


def test_what_changes_between_the_load_and_the_check_is_noticed(
    folder: Path, keys: Path, allowed: Path
) -> None:
    """What was loaded is what is deployed, so that is what must be signed."""
    sign(load(folder), keys / "ann", "ann")
    signed = (folder / "files" / "new" / "y.py").read_bytes()
    (folder / "files" / "new" / "y.py").write_bytes(b"y = 'evil'\n")
    loaded = load(folder)
    (folder / "files" / "new" / "y.py").write_bytes(signed)
    refused("patch_set_altered", verify, loaded, allowed)


def test_a_key_that_is_not_named_is_refused(folder: Path, keys: Path, allowed: Path) -> None:
    made = sign(load(folder), keys / "bob", "ann@example.org")
    error = refused("patch_set_signer_unknown", verify, load(folder), allowed)
    assert made.key in error.message
    allowed.write_text("")
    refused("patch_set_signer_unknown", verify, load(folder), allowed)
    allowed.write_text("this is no such file\n")
    refused("allowed_signers_invalid", verify, load(folder), allowed)


@pytest.mark.parametrize(
    ("options", "code", "why"),
    [
        ('valid-before="20200101"', "patch_set_signer_unknown", "valid now"),
        ('valid-after="29990101"', "patch_set_signer_unknown", "valid now"),
        ('namespaces="git"', "patch_set_signer_refused", "namespace"),
    ],
)
def test_a_key_that_may_not_now_or_not_this_is_refused(
    options: str, code: str, why: str, folder: Path, keys: Path, tmp_path: Path
) -> None:
    sign(load(folder), keys / "ann", "ann")
    allowed = allow(tmp_path / "allowed", keys, options=options)
    assert why in refused(code, verify, load(folder), allowed).message


def test_a_signature_of_another_namespace_is_refused(
    folder: Path, keys: Path, allowed: Path
) -> None:
    """Such as one of a git commit, which a key may have made of anything."""
    content = signing.manifest(load(folder))
    argv = ["ssh-keygen", "-Y", "sign", "-n", "git", "-f", str(keys / "ann")]
    done = subprocess.run(argv, input=content, capture_output=True, check=True)
    (folder / "patchset.sig").write_bytes(done.stdout)
    refused("patch_set_altered", verify, load(folder), allowed)


@pytest.mark.parametrize("who", ["*@example.org", "x@example.net,ann@example.org", "!eve,ann"])
def test_patterns_and_lists_of_names(who: str, folder: Path, keys: Path, tmp_path: Path) -> None:
    sign(load(folder), keys / "ann", "ann")
    verify(load(folder), allow(tmp_path / "allowed", keys, who=who))


def test_a_link_in_a_set_cannot_be_signed(folder: Path, keys: Path, tmp_path: Path) -> None:
    (folder / "0001-x.patch").rename(tmp_path / "0001-x.patch")
    (folder / "0001-x.patch").symlink_to(tmp_path / "0001-x.patch")
    with pytest.raises(PatchError, match="not a plain file"):
        sign(load(folder), keys / "ann", "ann")


def test_what_ssh_keygen_will_not_sign_with(folder: Path, keys: Path, tmp_path: Path) -> None:
    (tmp_path / "no key").write_text("no key\n")
    refused("not_signed", sign, load(folder), tmp_path / "no key", "ann")
    refused("usage", sign, load(folder), tmp_path / "missing", "ann")
    refused("usage", sign, load(folder), keys / "ann", "ann bob")
    assert not (folder / "patchset.sig").exists()


def test_without_ssh_keygen(
    folder: Path, keys: Path, allowed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign(load(folder), keys / "ann", "ann")
    monkeypatch.setenv("PATH", "/nonexistent")
    for error in (
        refused("ssh_keygen_missing", verify, load(folder), allowed),
        refused("ssh_keygen_missing", sign, load(folder), keys / "ann", "ann"),
    ):
        assert "openssh-client" in error.remedy


def test_an_ssh_keygen_that_hangs(
    folder: Path, keys: Path, allowed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign(load(folder), keys / "ann", "ann")
    tool = tmp_path / "bin" / "ssh-keygen"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nexec /bin/sleep 30\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))
    monkeypatch.setattr(signing, "_TIMEOUT", 0.2)
    run = signing._run
    monkeypatch.setattr(signing, "_run", lambda a, d, **k: run(a, d, timeout=0.2))
    refused("ssh_keygen_hangs", verify, load(folder), allowed)


# -- where a rollout asks --------------------------------------------------------------------

INVENTORY = """\
version: 1
defaults: {%s}
hosts:
  alpha:
    ssh: {address: 192.0.2.1}
    services:
      serve:
        unit: s.service
        python: /p
        port: 1
        model: {path: /m, served_name: m}
        distribution: demo
        patch_set: fix
"""


class FakeSession:
    """Nothing but a look at the inventory is allowed."""

    def __init__(self, service: Service) -> None:
        self.service = service


def book(tmp_path: Path, defaults: str = "", service: str = "") -> Service:
    path = tmp_path / "inventory.yaml"
    text = INVENTORY % defaults
    path.write_text(text + (f"        {service}\n" if service else ""))
    return inventory.select(inventory.load(path))[1]


def found(tmp_path: Path, service: Service) -> Any:
    session, facts = cast(Session, FakeSession(service)), {"install": {"version": "1.0"}}
    patchset, signer = find_patchset(session, tmp_path / "patches", None, facts)
    assert (signer is None) == (service.allowed_signers is None)
    assert signer is None or (signer.principal, signer.key[:15]) == (
        "ann@example.org",
        "ED25519 SHA256:",
    )
    return patchset


def test_without_allowed_signers_any_set_will_do(folder: Path, tmp_path: Path) -> None:
    service = book(tmp_path)
    assert service.allowed_signers is None
    assert found(tmp_path, service).name == "fix"


@pytest.mark.parametrize("level", ["defaults", "service"])
def test_with_allowed_signers_it_must_be_signed(
    level: str, folder: Path, tmp_path: Path, keys: Path, allowed: Path
) -> None:
    service = book(tmp_path, **{level: "allowed_signers: allowed_signers"})
    assert service.allowed_signers == allowed
    refused("patch_set_unsigned", found, tmp_path, service)
    sign(load(folder), keys / "bob", "bob")
    refused("patch_set_signer_unknown", found, tmp_path, service)
    sign(load(folder), keys / "ann", "ann")
    assert found(tmp_path, service).name == "fix"
    change(folder / "files" / "new" / "y.py", b"1", b"2")
    refused("patch_set_altered", found, tmp_path, service)
    allowed.unlink()
    refused("allowed_signers_unreadable", found, tmp_path, service)


def test_the_services_own_comes_before_the_default(tmp_path: Path) -> None:
    service = book(tmp_path, "allowed_signers: one", "allowed_signers: /etc/two")
    assert service.allowed_signers == Path("/etc/two")
    copy = service.model_copy(update={"listen": "127.0.0.2"})
    assert copy.allowed_signers == Path("/etc/two"), "a lab's copy keeps them"


# -- the commands ----------------------------------------------------------------------------


def test_sign_and_verify_as_commands(folder: Path, keys: Path, tmp_path: Path) -> None:
    root = str(tmp_path / "patches")
    run = CliRunner()
    signed = run.invoke(
        app,
        [
            *("patches", "sign", "fix", "--key", str(keys / "ann")),
            *("--identity", "ann@example.org", "--patches", root, "--json"),
        ],
    )
    assert signed.exit_code == 0, signed.output
    report = json.loads(signed.stdout)
    (tmp_path / "allowed").write_text(report["data"]["allowed_signers_line"] + "\n")
    argv = ["patches", "verify", str(folder), "--allowed-signers", str(tmp_path / "allowed")]
    good = run.invoke(app, argv)
    assert good.exit_code == 0, good.output
    assert "fix 1.0.0 is signed by ann@example.org (ED25519 SHA256:" in good.output
    listed = run.invoke(app, ["patches", "list", "--patches", root])
    assert " signed " in listed.stdout
    (tmp_path / "inventory.yaml").write_text(INVENTORY % "allowed_signers: allowed")
    by_inventory = ["-i", str(tmp_path / "inventory.yaml"), "patches", "verify", str(folder)]
    good = run.invoke(app, [*by_inventory, "--json"])
    assert good.exit_code == 0, good.output
    assert json.loads(good.stdout)["data"]["allowed_signers"] == str(tmp_path / "allowed")
    change(folder / "series", b"\n", b"\n\n")
    bad = run.invoke(app, [*argv, "--json"])
    assert bad.exit_code == 3
    (reason,) = json.loads(bad.stdout)["reasons"]
    assert reason["code"] == "patch_set_altered"


def test_one_set_is_signed_at_a_time(folder: Path, keys: Path, tmp_path: Path) -> None:
    other = make_set(tmp_path / "patches" / "demo-1.1" / "fix", {"0001-x.patch": PATCH})
    change(other / "patchset.yaml", b'version: "1.0"', b'version: "1.1"')
    change(other / "patchset.yaml", b"demo-1.0-", b"demo-1.1-")
    argv = ["patches", "sign", "fix", "--key", str(keys / "ann")]
    shown = CliRunner().invoke(app, [*argv, "--patches", str(tmp_path / "patches")])
    assert shown.exit_code == 2
    assert "several releases" in shown.output
    assert list(tmp_path.rglob("patchset.sig")) == []
    with pytest.raises(UsageError):
        sign(load(folder), tmp_path, "ann")


@pytest.mark.parametrize(
    ("defaults", "service", "said"),
    [("", "", "names none"), ("allowed_signers: one", "", ""), ("", "allowed_signers: two", "")],
)
def test_verify_takes_the_signers_of_the_inventory(
    folder: Path, tmp_path: Path, defaults: str, service: str, said: str
) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(INVENTORY % defaults + (f"        {service}\n" if service else ""))
    done = CliRunner().invoke(app, ["-i", str(path), "patches", "verify", str(folder)])
    assert done.exit_code == 2
    wanted = said or f"cannot read the allowed signers in {tmp_path / (defaults or service)[-3:]}"
    assert wanted in done.stderr


def test_a_list_says_what_is_unsigned(folder: Path, tmp_path: Path) -> None:
    argv = ["patches", "list", "--patches", str(tmp_path / "patches"), "--json"]
    (listed,) = json.loads(CliRunner().invoke(app, argv).stdout)["data"]["sets"]
    assert listed["signed"] is False


@pytest.mark.parametrize("text", ["\x00garbage\n", "ann@example.org\n", "a ssh-ed25519\n"])
def test_allowed_signers_that_name_no_key_say_so(
    folder: Path, keys: Path, allowed: Path, text: str
) -> None:
    sign(load(folder), keys / "ann", "ann@example.org")
    allowed.write_text(text)
    error = refused("allowed_signers_invalid", verify, load(folder), allowed)
    assert error.exit_code == 2
    assert str(allowed) in error.message
