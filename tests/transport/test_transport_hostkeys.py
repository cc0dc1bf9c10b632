"""Unknown and changed host keys: what is said, and where the remedy points."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import paramiko
import pytest

from opsctl.errors import EXIT_UNREACHABLE, HostKeyUnknown, UsageError
from opsctl.transport import hostkeys
from opsctl.transport.sshconfig import Resolved

ED25519 = "AAAAC3NzaC1lZDI1NTE5AAAAIDk2nVQSPHq0HVtr0tGsXMpvGX9xTT0x3xJYp4GkiCzp"


def ed25519(data: str = ED25519) -> paramiko.PKey:
    return paramiko.PKey.from_type_string("ssh-ed25519", base64.b64decode(data))


def resolved(
    *files: Path, port: int = 22, alias: str = "", accept_into: Path = Path("/u/known")
) -> Resolved:
    return Resolved("box", port, "root", alias, known_hosts=files, accept_into=accept_into)


def test_a_fingerprint_as_openssh_prints_it(tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_text(f"ssh-ed25519 {ED25519} c\n")
    done = subprocess.run(
        ["ssh-keygen", "-lf", tmp_path / "key.pub"], capture_output=True, text=True, check=True
    )
    assert hostkeys.fingerprint(ed25519()) == done.stdout.split()[1]


def test_an_unknown_key_is_refused_with_the_command_that_accepts_it() -> None:
    policy = hostkeys.Refuse(resolved(port=2222, accept_into=Path("/u/known")))
    with paramiko.SSHClient() as client, pytest.raises(HostKeyUnknown) as caught:
        policy.missing_host_key(client, "box", ed25519())
    assert caught.value.exit_code == EXIT_UNREACHABLE
    assert caught.value.code == "host_key_unknown"
    assert caught.value.message == (
        "the host key of root@box:2222 is unknown: ssh-ed25519 " + hostkeys.fingerprint(ed25519())
    )
    assert caught.value.remedy.endswith("accept it: ssh-keyscan -t ed25519 -p 2222 box >> /u/known")


def test_the_new_key_goes_where_openssh_would_write_it(tmp_path: Path) -> None:
    """The system's file exists, the user's does not yet."""
    system = tmp_path / "system"
    system.touch()
    error = hostkeys.unknown(resolved(system, accept_into=Path("/u/known")), ed25519())
    assert error.remedy.endswith(">> /u/known")


@pytest.mark.parametrize(
    ("port", "alias", "name"), [(22, "", "box"), (2222, "", "[box]:2222"), (22, "al", "al")]
)
def test_a_changed_key_names_both_and_the_file(
    tmp_path: Path, port: int, alias: str, name: str
) -> None:
    other, mine = tmp_path / "other", tmp_path / "mine"
    other.write_text("elsewhere ssh-ed25519 AAAA\n")
    mine.write_text(f"{name} ssh-ed25519 {ED25519}\n")
    got, expected = paramiko.RSAKey.generate(1024), ed25519()
    error = hostkeys.changed(
        resolved(other, mine, port=port, alias=alias),
        paramiko.BadHostKeyException("box", got, expected),
    )
    assert error.code == "host_key_changed"
    assert f"expected {hostkeys.fingerprint(expected)}, got {hostkeys.fingerprint(got)}" in (
        error.message
    )
    assert error.remedy.endswith(f"ssh-keygen -R '{name}' -f {mine}")


@pytest.mark.parametrize(
    ("port", "alias", "line", "looked_up", "known"),
    [
        (22, "", "box", "box", True),
        (22, "", "[box]:2222", "box", False),
        (2222, "", "[box]:2222", "[box]:2222", True),
        (2222, "", "box", "[box]:2222", False),
        (22, "al", "al", "box", True),
        (2222, "al", "al", "[box]:2222", True),
        (22, "al", "other", "box", False),
    ],
)
def test_known_keys_are_those_of_this_name(
    tmp_path: Path, port: int, alias: str, line: str, looked_up: str, known: bool
) -> None:
    file = tmp_path / "known"
    file.write_text(f"# comment\n\n{line} ssh-ed25519 {ED25519}\n")
    with paramiko.SSHClient() as client:
        hostkeys.load(client, resolved(file, port=port, alias=alias))
        found = client.get_host_keys().lookup(looked_up) or vars(client)[
            "_system_host_keys"
        ].lookup(looked_up)
        assert (found is not None) == known


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "known"
    file.write_text(f"box ssh-ed25519 !!!not-base64\nbox2 ssh-ed25519\nbox ssh-ed25519 {ED25519}\n")
    with paramiko.SSHClient() as client:
        with pytest.raises(UsageError) as caught:
            hostkeys.load(client, resolved(file))
        assert caught.value.message == (
            f"{file} holds a line that is no host key: box ssh-ed25519 !!!not-base64"
        )
