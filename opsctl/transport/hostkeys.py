"""Host keys: an unknown, changed or revoked key is refused, with what an operator does then."""

from __future__ import annotations

import base64
import hashlib

import paramiko

from opsctl.errors import HostKeyChanged, HostKeyRevoked, HostKeyUnknown, Unreachable
from opsctl.transport import known_hosts
from opsctl.transport.sshconfig import Resolved


def fingerprint(key: paramiko.PKey) -> str:
    """As OpenSSH prints it: ``SHA256:`` and unpadded base64."""
    digest = hashlib.sha256(key.asbytes()).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


class Refuse(paramiko.MissingHostKeyPolicy):
    """Fabric would accept unknown keys by default; this never does."""

    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved

    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        raise revoked(self._resolved, key) or unknown(self._resolved, key)


def revoked(resolved: Resolved, key: paramiko.PKey) -> HostKeyRevoked | None:
    """That the host offers a key which is revoked for it; None where it is not."""
    where = known_hosts.revoked_by(resolved, key)
    if where is None:
        return None
    return HostKeyRevoked(
        f"the host key of {resolved.where} is revoked by {where}: {key.get_name()} "
        f"{fingerprint(key)}; whoever has that key may be in between",
        remedy="give the host a new key, or take the line out if it is wrong",
    )


def unknown(resolved: Resolved, key: paramiko.PKey) -> HostKeyUnknown:
    where = resolved.accept_into
    scan = f"ssh-keyscan -t {_scan_type(key)} -p {resolved.port} {resolved.hostname}"
    authority = next(known_hosts.marked(resolved, known_hosts.CERT_AUTHORITY), None)
    note = ""
    if authority is not None:
        note = f" ({authority.where} trusts an authority; opsctl reads no certificates)"
    return HostKeyUnknown(
        f"the host key of {resolved.where} is unknown: {key.get_name()} {fingerprint(key)}" + note,
        remedy=f"compare the fingerprint with the host's own, then accept it: {scan} >> {where}",
    )


def changed(resolved: Resolved, error: paramiko.BadHostKeyException) -> Unreachable:
    """The host offers another key than the known one, or a revoked one."""
    if (found := revoked(resolved, error.key)) is not None:
        return found
    name = resolved.known_hosts_name
    files = [f for f in resolved.known_hosts if name in f.read_text("utf-8", "replace")]
    where = (files or list(resolved.known_hosts) or [resolved.accept_into])[0]
    return HostKeyChanged(
        f"the host key of {resolved.where} has changed: expected "
        f"{fingerprint(error.expected_key)}, got {fingerprint(error.key)}; "
        "the host was reinstalled, or somebody is in between",
        remedy="only if you know why it changed, forget the old key: "
        f"ssh-keygen -R '{name}' -f {where}",
    )


def load(client: paramiko.SSHClient, resolved: Resolved) -> None:
    """Give `client` the keys that the user's and the system's files know of this host, and
    nothing else.

    Paramiko looks them up as `hostname` or `[hostname]:port`, whatever name the files have them
    by. It knows neither markers nor wildcards, so the files are read here. A revoked key is left
    out: offered, it comes to `Refuse` or `changed`, which say so.

    Raises:
        UsageError: a line of these files about this host is damaged, or it cannot be told which
            keys are revoked.
    """
    looked_up = resolved.hostname
    if resolved.port != 22:
        looked_up = f"[{resolved.hostname}]:{resolved.port}"
    known = client.get_host_keys()
    for line in known_hosts.lines(resolved):
        key = line.key() if line.marker == known_hosts.PLAIN else None
        if key is None or known_hosts.revoked_by(resolved, key) is not None:
            continue
        if key.get_name() not in (known.lookup(looked_up) or {}):  # the first one counts
            known.add(looked_up, key.get_name(), key)


def _scan_type(key: paramiko.PKey) -> str:
    name = key.get_name()
    return "rsa" if "rsa" in name else "ecdsa" if "ecdsa" in name else "ed25519"
