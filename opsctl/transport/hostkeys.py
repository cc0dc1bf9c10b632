"""Host keys: an unknown or changed key is refused, with the command that would accept it."""

from __future__ import annotations

import base64
import hashlib

import paramiko

from opsctl.errors import HostKeyChanged, HostKeyUnknown, UsageError
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
        raise unknown(self._resolved, key)


def unknown(resolved: Resolved, key: paramiko.PKey) -> HostKeyUnknown:
    where = resolved.accept_into
    scan = f"ssh-keyscan -t {_scan_type(key)} -p {resolved.port} {resolved.hostname}"
    return HostKeyUnknown(
        f"the host key of {resolved.where} is unknown: {key.get_name()} {fingerprint(key)}",
        remedy=f"compare the fingerprint with the host's own, then accept it: {scan} >> {where}",
    )


def changed(resolved: Resolved, error: paramiko.BadHostKeyException) -> HostKeyChanged:
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
    """Give `client` the user's and the system's known keys, and nothing else.

    Paramiko looks a host up as `hostname` or `[hostname]:port`; a HostKeyAlias is copied there.

    Raises:
        UsageError: a line of these files is damaged.
    """
    for path in resolved.known_hosts:
        try:
            client.load_system_host_keys(str(path))
        except paramiko.hostkeys.InvalidHostKey as error:
            raise UsageError(
                f"{path} holds a line that is no host key: {error.line}",
                remedy="mend or remove that line",
                code="known_hosts",
            ) from None
    alias = resolved.host_key_alias
    if not alias:
        return
    keys = paramiko.HostKeys()
    for path in resolved.known_hosts:
        keys.load(str(path))
    looked_up = resolved.hostname
    if resolved.port != 22:
        looked_up = f"[{resolved.hostname}]:{resolved.port}"
    for key in (keys.lookup(alias) or {}).values():
        client.get_host_keys().add(looked_up, key.get_name(), key)


def _scan_type(key: paramiko.PKey) -> str:
    name = key.get_name()
    return "rsa" if "rsa" in name else "ecdsa" if "ecdsa" in name else "ed25519"
