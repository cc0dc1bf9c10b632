"""known_hosts files as OpenSSH has them: markers, wildcards and hashed names.

Source: sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT".
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass

import paramiko

from opsctl.errors import UsageError
from opsctl.transport.sshconfig import Resolved

PLAIN, REVOKED, CERT_AUTHORITY = "", "@revoked", "@cert-authority"


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
        for number, raw in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
            words = raw.split()
            marker = words.pop(0) if raw.startswith("@") else PLAIN
            if not words or words[0].startswith("#"):
                continue
            if _names(words[0], resolved.known_hosts_name):
                yield Line(f"{path}:{number}", marker, " ".join(words))


def marked(resolved: Resolved, marker: str) -> Iterator[Line]:
    """Those of `lines` with this marker."""
    return (line for line in lines(resolved) if line.marker == marker)


def revoked_by(resolved: Resolved, key: paramiko.PKey) -> Line | None:
    """The line that revokes `key` for the host, if there is one.

    Raises:
        UsageError: a line that revokes something is damaged.
    """
    return next((line for line in marked(resolved, REVOKED) if line.key() == key), None)


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
