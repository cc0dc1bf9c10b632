"""What `ssh -G` says, read as OpenSSH means it."""

from __future__ import annotations

import getpass
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from opsctl.errors import UsageError
from opsctl.inventory import Ssh
from opsctl.transport import sshconfig
from opsctl.transport.sshconfig import argv, build, parse, parse_hop, resolve

HOME = Path("/home/tester")
needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="no OpenSSH client here")


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user is `tester`, and a file is there unless its name says `gone`."""
    monkeypatch.setenv("HOME", str(HOME))
    monkeypatch.setattr(getpass, "getuser", lambda: "tester")
    monkeypatch.setattr(Path, "exists", lambda path: "gone" not in str(path))


NO_FILES = "identityfile gone\nuserknownhostsfile gone\nglobalknownhostsfile gone\n"

# (ssh -G output, the inventory's ssh beside its address, what differs from the defaults)
TABLE: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("hostname 10.0.0.1\nport 22\nuser root\n", {}, {"hostname": "10.0.0.1", "user": "root"}),
    ("", {}, {"hostname": "box", "user": "tester"}),
    ("", {"user": "u", "port": 2222}, {"hostname": "box", "user": "u", "port": 2222}),
    ("hostname h\nport 2200\nuser deploy\n", {}, {"port": 2200, "user": "deploy"}),
    ("HostName h\nPort 2200\n", {}, {"hostname": "h", "port": 2200}),
    (
        "identityfile ~/.ssh/a\nidentityfile ~/.ssh/gone\nidentityfile none\nidentityfile /k/b\n",
        {},
        {"identity_files": (HOME / ".ssh/a", Path("/k/b"))},
    ),
    (
        "hostname h\nuser r\nport 7\nidentityfile ~/.ssh/%h-%r-%p-%n-%u-%%-%d\n",
        {},
        {"identity_files": (HOME / ".ssh" / f"h-r-7-box-tester-%-{HOME}",)},
    ),
    (
        "identityfile ~/.ssh/a\n",
        {"identity_file": "~/mine"},
        {"identity_files": (HOME / "mine",), "identities_only": True},
    ),
    ("revokedhostkeys none\n", {}, {"revoked_keys": ()}),
    ("revokedhostkeys ~/a list of %h\n", {}, {"revoked_keys": (HOME / "a list of box",)}),
    (
        "revokedhostkeys ~/gone /etc/revoked\n",
        {},
        {"revoked_keys": (HOME / "gone", Path("/etc/revoked"))},
    ),
    ("identitiesonly yes\n", {}, {"identities_only": True}),
    ("identitiesonly no\n", {}, {"identities_only": False}),
    ("identityagent none\n", {}, {"agent": False, "agent_socket": None}),
    ("identityagent SSH_AUTH_SOCK\n", {}, {"agent": True, "agent_socket": None}),
    ("identityagent ~/a.sock\n", {}, {"agent": True, "agent_socket": "~/a.sock"}),
    (
        "userknownhostsfile /u/one /u/two\nglobalknownhostsfile /g/gone /g/three\n",
        {},
        {
            "known_hosts": (Path("/u/one"), Path("/u/two"), Path("/g/three")),
            "accept_into": Path("/u/one"),
        },
    ),
    (
        "userknownhostsfile /u/gone\nglobalknownhostsfile /g/one\n",
        {},
        {"known_hosts": (Path("/g/one"),), "accept_into": Path("/u/gone")},
    ),
    (
        "userknownhostsfile /u/one\n",
        {"known_hosts": "/mine/gone"},
        {"known_hosts": (), "accept_into": Path("/mine/gone")},
    ),
    ("userknownhostsfile none\n", {}, {"known_hosts": (), "accept_into": Path("gone")}),
    ("proxyjump none\n", {}, {"jumps": ()}),
    ("proxyjump a@b:22,c\n", {}, {"jumps": ("a@b:22", "c")}),
    ("proxycommand none\n", {}, {"proxy_command": None}),
    (
        "hostname h\nport 2222\nuser r\nproxycommand nc -X 5 %h %p # %r %n %% %x\n",
        {},
        {"proxy_command": "nc -X 5 h 2222 # r box % %x"},
    ),
    ("serveraliveinterval 0\n", {}, {"keepalive": 15}),
    ("serveraliveinterval 40\n", {}, {"keepalive": 40}),
    ("hostkeyalias name\n", {}, {"host_key_alias": "name", "known_hosts_name": "name"}),
    ("hostname h\nport 22\n", {}, {"known_hosts_name": "h", "where": "tester@h"}),
    ("hostname h\nport 2222\n", {}, {"known_hosts_name": "[h]:2222", "where": "tester@h:2222"}),
]


@pytest.mark.parametrize(("printed", "inventory", "expected"), TABLE)
def test_build(printed: str, inventory: dict[str, Any], expected: dict[str, Any]) -> None:
    defaults = NO_FILES
    for key in ("identityfile", "userknownhostsfile", "globalknownhostsfile"):
        if key in printed:
            defaults = "".join(
                line for line in defaults.splitlines(True) if not line.startswith(key)
            )
    ssh = Ssh.model_validate({"address": "box", **inventory})
    found = build(parse(printed + defaults), ssh, "box")
    assert {key: getattr(found, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("hop", "expected"),
    [
        ("jump", (None, "jump", None)),
        ("a@jump:2222", ("a", "jump", 2222)),
        ("a@b@jump", ("a@b", "jump", None)),
        ("ssh://a@jump:2222/", ("a", "jump", 2222)),
        ("ssh://jump", (None, "jump", None)),
        ("a@[192.0.2.1]", ("a", "192.0.2.1", None)),
        ("[192.0.2.1]:2222", (None, "192.0.2.1", 2222)),
        ("[2001:db8::1]:2222", (None, "2001:db8::1", 2222)),
        ("2001:db8::1", (None, "2001:db8::1", None)),
    ],
)
def test_a_hop(hop: str, expected: tuple[str | None, str, int | None]) -> None:
    assert parse_hop(hop) == expected


def test_without_openssh_its_defaults_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    found = resolve(Ssh(address="box"))
    assert (found.hostname, found.port, found.user) == ("box", 22, "tester")
    assert found.identity_files == (HOME / ".ssh/id_ed25519", HOME / ".ssh/id_rsa")
    assert found.known_hosts == (HOME / ".ssh/known_hosts", Path("/etc/ssh/ssh_known_hosts"))


def test_the_command_carries_the_inventory() -> None:
    assert argv(Ssh(address="box")) == ["ssh", "-G", "--", "box"]
    ssh = Ssh(address="x", user="u", port=3, config=Path("~/c"))
    ssh = ssh.model_copy(update={"address": "-oProxyCommand=x"})  # which an inventory refuses
    assert argv(ssh) == [
        *("ssh", "-G", "-F", str(HOME / "c"), "-l", "u", "-p", "3", "--", "-oProxyCommand=x")
    ]


@needs_ssh
def test_include_and_match_of_the_real_openssh(tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    (tmp_path / "included").write_text(
        f"Host box\n  HostName 192.0.2.7\n  IdentityFile {tmp_path}/key\n  Port 2022\n"
    )
    (tmp_path / "config").write_text(
        f"Include {tmp_path}/included\n"
        "Match host 192.0.2.7 user deploy\n  ProxyJump jump@192.0.2.1:2200\n  IdentitiesOnly yes\n"
        f"Match all\n  UserKnownHostsFile {tmp_path}/known\n  ServerAliveInterval 5\n"
    )
    found = resolve(Ssh(address="box", user="deploy", config=tmp_path / "config"))
    assert (found.hostname, found.port, found.user) == ("192.0.2.7", 2022, "deploy")
    assert found.identity_files == (tmp_path / "key",)
    assert found.identities_only
    assert [parse_hop(hop) for hop in found.jumps] == [("jump", "192.0.2.1", 2200)]
    assert tmp_path / "known" in found.known_hosts
    assert found.keepalive == 5
    other = resolve(Ssh(address="box", user="other", config=tmp_path / "config"))
    assert other.jumps == ()


@needs_ssh
def test_a_configuration_that_openssh_refuses(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Host box\n  Colour blue\n")
    with pytest.raises(UsageError, match="Bad configuration option: colour") as caught:
        resolve(Ssh(address="box", config=tmp_path / "config"))
    assert caught.value.code == "ssh_config"
    assert str(tmp_path / "config") in caught.value.remedy


def test_every_field_is_looked_at() -> None:
    looked_at = {key for _, _, expected in TABLE for key in expected}
    assert {field.name for field in fields(sshconfig.Resolved)} - looked_at == {"options"}
