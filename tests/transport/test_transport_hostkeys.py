"""Unknown and changed host keys: what is said, and where the remedy points."""

from __future__ import annotations

import base64
import subprocess
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest

from opsctl.errors import EXIT_UNREACHABLE, HostKeyRevoked, HostKeyUnknown, Unreachable, UsageError
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
        assert caught.value.message == (f"{file}:1 is no host key: box ssh-ed25519 !!!not-base64")


# -- markers, wildcards and hashed names -----------------------------------------------------


def offered(where: Resolved, key: paramiko.PKey) -> Unreachable | None:
    """What a client says to a host that offers `key`; None where it goes on."""
    with paramiko.SSHClient() as client:
        hostkeys.load(client, where)
        if client.get_host_keys().check(where.known_hosts_name, key):
            return None
        with pytest.raises((HostKeyUnknown, HostKeyRevoked)) as caught:
            hostkeys.Refuse(where).missing_host_key(client, "box", key)
        return caught.value


@pytest.mark.parametrize(
    ("pattern", "revoked"),
    [("box", True), ("*", True), ("b?x,other", True), ("other", False), ("*,!box", False)],
)
def test_a_revoked_key_is_refused_though_it_is_known(
    tmp_path: Path, pattern: str, revoked: bool
) -> None:
    file = tmp_path / "known"
    line = f"@revoked {pattern} ssh-ed25519 {ED25519} stolen\n"
    for text in (line, f"box ssh-ed25519 {ED25519}\n{line}"):
        file.write_text(text)
        error = offered(resolved(file), ed25519())
        assert isinstance(error, HostKeyRevoked) == revoked
        if isinstance(error, HostKeyRevoked):
            assert (error.exit_code, error.code) == (EXIT_UNREACHABLE, "host_key_revoked")
            assert f"revoked by {file}:{text.count(chr(10))}: ssh-ed25519" in error.message
            assert error.remedy
            mismatch = paramiko.BadHostKeyException(
                "box", ed25519(), paramiko.RSAKey.generate(1024)
            )
            assert hostkeys.changed(resolved(file), mismatch).code == "host_key_revoked"
        else:
            assert (error is None) == text.startswith("box")


@pytest.mark.parametrize("before", [" ", "\t", " \t ", "\x1c", "\x0c"])
def test_a_line_that_revokes_may_be_indented(tmp_path: Path, before: str) -> None:
    file = tmp_path / "known"
    line = f"box ssh-ed25519 {ED25519}\n"
    for marked in (f"{before}@revoked {line}", f"@revoked{before}{line}"):
        file.write_text(line + marked)
        assert isinstance(offered(resolved(file), ed25519()), HostKeyRevoked), marked


def revoking(tmp_path: Path, content: bytes | None) -> Resolved:
    """A host whose key is known, and a file of revoked keys; None where there is none."""
    known, file = tmp_path / "known", tmp_path / "revoked"
    known.write_text(f"box ssh-ed25519 {ED25519}\n")
    if content is not None:
        file.write_bytes(content)
    return replace(resolved(known), revoked_keys=(file,))


def test_a_key_of_the_list_that_ssh_config_names_is_revoked(tmp_path: Path) -> None:
    other = paramiko.RSAKey.generate(1024).get_base64()
    text = f"# lost\n\nssh-rsa {other}\n ssh-ed25519 {ED25519} of the old box\n"
    error = offered(revoking(tmp_path, text.encode()), ed25519())
    assert isinstance(error, HostKeyRevoked)
    assert f"revoked by {tmp_path / 'revoked'}:4: ssh-ed25519" in error.message
    assert offered(revoking(tmp_path, f"ssh-rsa {other}\n".encode()), ed25519()) is None


def test_where_the_revoked_keys_cannot_be_told_no_host_is_trusted(tmp_path: Path) -> None:
    """As in OpenSSH."""
    key, krl = tmp_path / "key.pub", tmp_path / "krl"
    key.write_text(f"ssh-ed25519 {ED25519}\n")
    subprocess.run(["ssh-keygen", "-q", "-k", "-f", krl, key], check=True)
    cases = {
        "a key revocation list": krl.read_bytes(),
        "line 2 is no public key": b"\nssh-ed25519\n",
        "line 1 is no public key": b"ssh-ed25519 !!!\n",
        "No such file": None,
    }
    for words, content in reversed(cases.items()):
        with pytest.raises(UsageError, match=words) as caught:
            offered(revoking(tmp_path, content), ed25519())
        assert (caught.value.code, bool(caught.value.remedy)) == ("revoked_host_keys", True)


def test_an_authority_is_no_host_key(tmp_path: Path) -> None:
    file = tmp_path / "known"
    file.write_text(f"@cert-authority * ssh-ed25519 {ED25519}\n")
    error = offered(resolved(file), ed25519())
    assert isinstance(error, HostKeyUnknown)
    assert f"{file}:1 trusts an authority; opsctl reads no certificates" in error.message
    file.write_text(f"@cert-authority other ssh-ed25519 {ED25519}\n")
    error = offered(resolved(file), ed25519())
    assert error is not None
    assert "authority" not in error.message


def test_names_as_openssh_writes_them(tmp_path: Path) -> None:
    """Hashed by ssh-keygen itself; by wildcards; upper case; with tabs."""
    file = tmp_path / "known"
    file.write_text(f"[box]:2222 ssh-ed25519 {ED25519}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], check=True, capture_output=True)
    assert "box" not in file.read_text()
    assert offered(resolved(file, port=2222), ed25519()) is None
    assert offered(resolved(file), ed25519()) is not None
    for line in ("b*", "BOX", "no,box", "*,!other"):
        file.write_text(f"{line}\tssh-ed25519\t{ED25519}\tcomment\n")
        assert offered(resolved(file), ed25519()) is None, line
    for line in ("*,!box", "[bo]x", "b", "|1|x|y", "#box"):
        file.write_text(f"{line} ssh-ed25519 {ED25519}\n")
        assert offered(resolved(file), ed25519()) is not None, line


def test_a_damaged_line_that_revokes_is_not_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "known"
    file.write_text(f"box ssh-ed25519 {ED25519}\n@revoked * ssh-ed25519 !!!\n")
    with pytest.raises(UsageError, match="known:2 is no host key"):
        offered(resolved(file), ed25519())
