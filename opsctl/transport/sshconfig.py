"""What OpenSSH would do for a host, asked of OpenSSH itself.

Paramiko's own reader ignores Include and returns `ProxyJump none` literally; `ssh -G` prints
the resolved configuration, Include and Match done.
"""

from __future__ import annotations

import getpass
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from opsctl.errors import UsageError
from opsctl.inventory import Ssh


@dataclass(frozen=True, slots=True)
class Resolved:
    """Where and how to connect. Files that do not exist are left out."""

    hostname: str
    port: int
    user: str
    host_key_alias: str
    identity_files: tuple[Path, ...] = ()
    identities_only: bool = False
    agent: bool = True
    agent_socket: str | None = None
    known_hosts: tuple[Path, ...] = ()
    revoked_keys: tuple[Path, ...] = ()  # whether they exist or not
    accept_into: Path = Path("~/.ssh/known_hosts")  # where a new key belongs, made or not
    jumps: tuple[str, ...] = ()
    proxy_command: str | None = None
    keepalive: int = 15
    options: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)

    @property
    def where(self) -> str:
        return f"{self.user}@{self.hostname}" + (f":{self.port}" if self.port != 22 else "")

    @property
    def known_hosts_name(self) -> str:
        """How known_hosts files write this host: `name`, or `[name]:port` off port 22."""
        if self.host_key_alias:
            return self.host_key_alias
        return self.hostname if self.port == 22 else f"[{self.hostname}]:{self.port}"


def argv(ssh: Ssh, address: str | None = None) -> list[str]:
    """The `ssh -G` command that resolves `ssh`, what the inventory says included."""
    command = ["ssh", "-G"]
    if ssh.config is not None:
        command += ["-F", str(ssh.config.expanduser())]
    if ssh.user is not None:
        command += ["-l", ssh.user]
    if ssh.port is not None:
        command += ["-p", str(ssh.port)]
    return [*command, "--", address or ssh.address]


def resolve(ssh: Ssh, address: str | None = None) -> Resolved:
    """Ask OpenSSH; without it, the inventory and OpenSSH's defaults.

    Raises:
        UsageError: the SSH configuration is malformed.
    """
    options: dict[str, list[str]] = {}
    if shutil.which("ssh"):
        command = argv(ssh, address)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise UsageError(
                f"the SSH configuration cannot be read: {done.stderr.strip()}",
                remedy=f"run `{' '.join(command)}`",
                code="ssh_config",
            )
        options = parse(done.stdout)
    return build(options, ssh, address or ssh.address)


def parse(text: str) -> dict[str, list[str]]:
    """`ssh -G` output as option -> values, in order; keys are lower case."""
    options: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        options.setdefault(key.lower(), []).append(value)
    return options


def build(options: Mapping[str, list[str]], ssh: Ssh, address: str) -> Resolved:
    """Put the inventory over the resolved options."""

    def first(key: str, default: str = "") -> str:
        return options.get(key, [default])[0]

    hostname = first("hostname", address)
    agent = first("identityagent", "SSH_AUTH_SOCK")
    if ssh.identity_file is not None:
        identities = [str(ssh.identity_file)]
    else:
        identities = options.get("identityfile", ["~/.ssh/id_ed25519", "~/.ssh/id_rsa"])
    if ssh.known_hosts is not None:
        known = [str(ssh.known_hosts)]
    else:
        known = first("userknownhostsfile", "~/.ssh/known_hosts").split()
        known += first("globalknownhostsfile", "/etc/ssh/ssh_known_hosts").split()
    jump = first("proxyjump", "none")
    proxy = first("proxycommand", "none")
    keepalive = int(first("serveraliveinterval", "0") or 0)
    port = int(first("port") or ssh.port or 22)
    user = first("user") or ssh.user or getpass.getuser()
    alias = first("hostkeyalias")
    tokens = {
        "%": "%",
        "d": str(Path.home()),
        "h": hostname,
        "k": alias or hostname,
        "n": address,
        "p": str(port),
        "r": user,
        "u": getpass.getuser(),
    }
    identities = [_expand(name, tokens) for name in identities]
    known = [_expand(name, tokens) for name in known if name != "none"]
    return Resolved(
        hostname=hostname,
        port=port,
        user=user,
        host_key_alias=alias,
        identity_files=_existing(identities),
        identities_only=ssh.identity_file is not None or first("identitiesonly") == "yes",
        agent=agent != "none",
        agent_socket=None if agent in {"none", "SSH_AUTH_SOCK"} else agent,
        known_hosts=_existing(known),
        revoked_keys=_listed(_expand(first("revokedhostkeys", "none"), tokens)),
        accept_into=Path(next(iter(known), "~/.ssh/known_hosts")),
        jumps=() if jump in {"none", ""} else tuple(jump.split(",")),
        proxy_command=None if proxy in {"none", ""} else _expand(proxy, tokens),
        # A lost laptop must free its lock: without keepalives nobody would notice.
        keepalive=keepalive or 15,
        options=options,
    )


def parse_hop(hop: str) -> tuple[str | None, str, int | None]:
    """User, address and port of `[ssh://][user@]host[:port]`. `ssh -G` prints an address of
    digits, IPv4 too, in brackets: ``user@[192.0.2.1]:2222``."""
    user, _, place = hop.removeprefix("ssh://").rpartition("@")
    match = re.fullmatch(r"(?:\[(.+)\]|([^:]+))(?::(\d+))?", place.rstrip("/"))
    if match is None:
        return user or None, place, None  # a bare IPv6 address
    return user or None, match[1] or match[2], int(match[3]) if match[3] else None


def _expand(text: str, tokens: Mapping[str, str]) -> str:
    """Fill in what ssh_config(5) calls tokens: `ssh -G` leaves them in commands and paths."""
    return re.sub(r"%(.)", lambda match: tokens.get(match[1], match[0]), text)


def _existing(names: Sequence[str]) -> tuple[Path, ...]:
    paths = (Path(name).expanduser() for name in names if name != "none")
    return tuple(path for path in paths if path.exists())


def _listed(value: str) -> tuple[Path, ...]:
    """One path, or since OpenSSH 10 several: `ssh -G` prints both without quotes."""
    whole = Path(value).expanduser()
    if value == "none":
        return ()
    if whole.exists():
        return (whole,)
    return tuple(Path(name).expanduser() for name in value.split())
