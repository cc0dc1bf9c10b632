"""known_hosts files as OpenSSH has them: markers, wildcards and hashed names; and revoked keys.

Sources: sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"; ssh_config(5), "RevokedHostKeys".
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko

from opsctl.errors import UsageError
from opsctl.transport.sshconfig import Resolved

PLAIN, REVOKED, CERT_AUTHORITY = "", "@revoked", "@cert-authority"
# How a key revocation list begins: OpenSSH's PROTOCOL.krl.
_KRL_MAGIC = b"SSHKRL\n\0"


@dataclass(frozen=True, slots=True)
class Line:
    """One line. `where` is its file and number, `text` the line without its marker."""

    where: str
    marker: str
    text: str

    def key(self) -> paramiko.PKey | None:
        """The key that it holds; None where paramiko knows none of that type.

        Raises:
            UsageError: it is damaged.
        """
        try:
            entry = paramiko.hostkeys.HostKeyEntry.from_line(self.text)
        except (paramiko.hostkeys.InvalidHostKey, paramiko.SSHException):
            raise UsageError(
                f"{self.where} is no host key: {self.text}",
                remedy="mend or remove that line",
                code="known_hosts",
            ) from None
        return None if entry is None else entry.key


def lines(resolved: Resolved) -> Iterator[Line]:
    """The lines about the host, of all its files."""
    for path in resolved.known_hosts:
        # Not splitlines: of all that it ends a line at, OpenSSH knows the newline only.
        for number, raw in enumerate(path.read_text("utf-8", "replace").split("\n"), 1):
            words = raw.split()
            marker = words.pop(0) if words and words[0].startswith("@") else PLAIN
            if not words or words[0].startswith("#"):
                continue
            if _names(words[0], resolved.known_hosts_name):
                yield Line(f"{path}:{number}", marker, " ".join(words))


def marked(resolved: Resolved, marker: str) -> Iterator[Line]:
    """Those of `lines` with this marker."""
    return (line for line in lines(resolved) if line.marker == marker)


def revoked_by(resolved: Resolved, key: paramiko.PKey) -> str | None:
    """Where `key` is revoked for the host, as file and line; None where it is not.

    Raises:
        UsageError: a line that revokes something is damaged, or a file of revoked keys cannot be
            read: OpenSSH too connects to no host then.
    """
    for line in marked(resolved, REVOKED):
        if line.key() == key:
            return line.where
    for path in resolved.revoked_keys:
        for where, blob in _listed(path):
            if blob == key.asbytes():
                return where
    return None


def _listed(path: Path) -> Iterator[tuple[str, bytes]]:
    """The public keys that a RevokedHostKeys file lists, one a line, each with its place."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unread(path, error.strerror or str(error), "mend RevokedHostKeys") from None
    if data.startswith(_KRL_MAGIC):
        remedy = "have it name a text file of public keys instead, one a line"
        raise _unread(path, "it is a key revocation list, which opsctl does not read", remedy)
    for number, raw in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
        words = raw.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            yield f"{path}:{number}", base64.b64decode(words[1], validate=True)
        except (IndexError, ValueError):
            raise _unread(path, f"line {number} is no public key", "mend that line") from None


def _unread(path: Path, why: str, remedy: str) -> UsageError:
    return UsageError(
        f"the revoked host keys in {path} cannot be told, and so no host is trusted: {why}",
        remedy=f"{remedy}; `ssh -G HOST` shows where the SSH configuration has it from",
        code="revoked_host_keys",
    )


def _names(patterns: str, name: str) -> bool:
    """Whether `name` is one of the comma-separated patterns, and none that begins with `!`."""
    found = False
    for pattern in patterns.lower().split(",") if "|" not in patterns else [patterns]:
        if pattern.startswith("|1|"):
            found = found or _is_hash_of(pattern, name)
            continue
        expression = re.escape(pattern.lstrip("!")).replace(r"\*", ".*").replace(r"\?", ".")
        if re.fullmatch(expression, name.lower()):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def _is_hash_of(pattern: str, name: str) -> bool:
    try:
        return paramiko.HostKeys.hash_host(name, pattern) == pattern
    except (ValueError, AssertionError, binascii.Error):
        return False  # damaged: nobody's name
