"""The SSH form of `Remote`: Fabric's connection, OpenSSH's configuration, strict host keys."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fabric
import httpx
import paramiko
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential

from opsctl import errors
from opsctl.inventory import Ssh
from opsctl.transport import bundle, hostkeys
from opsctl.transport.conversation import Conversation, StreamSubscription
from opsctl.transport.http import ChannelTransport, direct_tcpip
from opsctl.transport.sshconfig import Resolved, parse_hop, resolve

# What paramiko has to say comes as exceptions; its log would only get between our lines.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


@contextlib.contextmanager
def connect(ssh: Ssh, python: str = "python3") -> Iterator[SshRemote]:
    """Connect, start the host program, and close both at the end of the block.

    `python` is the interpreter of the host program. A user other than root goes through
    `sudo -n`.

    Raises:
        Unreachable: with the cause: name, network, host key, authentication, sudo, python3.
        UsageError: the SSH configuration is malformed.
    """
    resolved = resolve(ssh)
    with contextlib.ExitStack() as stack:
        connection = _open(resolved, ssh, stack)
        remote = SshRemote(connection, resolved, python)
        stack.callback(remote.close)
        yield remote


class SshRemote:
    """A `Remote` over one SSH connection."""

    def __init__(self, connection: fabric.Connection, resolved: Resolved, python: str) -> None:
        self._transport: paramiko.Transport = connection.transport
        self.where = resolved.where
        command = f"{shlex.join([python, *bundle.OPTIONS])} -c '{bundle.BOOT}'"
        if resolved.user != "root":
            command = "sudo -n " + command
        try:
            self._conversation = Conversation(_ChannelPipe(self._transport, command))
        except paramiko.SSHException as error:
            raise errors.Unreachable(
                f"{self.where} lets us in but opens no session: {error}",
                remedy="look at MaxSessions and ForceCommand in its sshd_config",
                code="no_session",
            ) from None

    def call(self, op: str, *, timeout: float = 60.0, **params: Any) -> Any:
        return self._conversation.call(op, timeout=timeout, **params)

    def stream(self, op: str, **params: Any) -> StreamSubscription:
        return self._conversation.stream(op, **params)

    def keep_alive(self, every: float, patience: float) -> None:
        self._conversation.keep_alive(every, patience)

    def http(self) -> httpx.BaseTransport:
        return ChannelTransport(direct_tcpip(self._transport))

    def close(self) -> None:
        self._conversation.close()


class _ChannelPipe:
    """A session channel. Stderr is collected aside: paramiko would block when it fills."""

    def __init__(self, transport: paramiko.Transport, command: str) -> None:
        self._channel = transport.open_session(timeout=30)
        self._stderr = bytearray()
        self._channel.exec_command(command)
        self._collector = threading.Thread(target=self._collect, name="opsctl-stderr", daemon=True)
        self._collector.start()

    def send(self, data: bytes) -> None:
        self._channel.sendall(data)

    def receive(self, timeout: float | None) -> bytes:
        self._channel.settimeout(timeout)
        data = self._channel.recv(1 << 16)
        if not data:
            # Stderr and the end of stdout race; the last words are worth a moment.
            self._collector.join(1.0)
        return data

    def stderr(self) -> str:
        return bytes(self._stderr).decode("utf-8", "replace")

    def close(self) -> None:
        self._channel.shutdown_write()
        self._channel.close()

    def _collect(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while data := self._channel.recv_stderr(1 << 14):
                self._stderr += data
                del self._stderr[: -(1 << 16)]


def _open(resolved: Resolved, ssh: Ssh, stack: contextlib.ExitStack) -> fabric.Connection:
    gateway: fabric.Connection | str | None = resolved.proxy_command
    for hop in resolved.jumps:
        jump = _dial(_resolve_hop(hop, ssh), ssh, gateway)
        stack.callback(jump.close)
        gateway = jump
    connection = _dial(resolved, ssh, gateway)
    stack.callback(connection.close)
    return connection


def _resolve_hop(hop: str, ssh: Ssh) -> Resolved:
    """A ProxyJump hop has its own configuration."""
    user, address, port = parse_hop(hop)
    hop_ssh = Ssh(
        address=address,
        user=user,
        port=port,
        config=ssh.config,
        known_hosts=ssh.known_hosts,
    )
    return resolve(hop_ssh)


@retry(
    # A host that answers "no" is asked once; a handshake that broke is tried again, since
    # sshd drops connections at random above MaxStartups.
    retry=retry_if_exception_type((paramiko.ssh_exception.SSHException, EOFError)),
    stop=stop_after_attempt(3),
    wait=wait_exponential(multiplier=0.3, max=2),
    reraise=True,
)
def _handshake(connection: fabric.Connection) -> None:
    try:
        connection.open()
    except (paramiko.AuthenticationException, paramiko.BadHostKeyException) as error:
        raise _Final(error) from error


class _Final(Exception):
    """Carries an answer that asking again would not change."""


def _dial(
    resolved: Resolved, ssh: Ssh, gateway: fabric.Connection | str | None
) -> fabric.Connection:
    kwargs: dict[str, Any] = {
        "key_filename": [str(p) for p in resolved.identity_files],
        "allow_agent": resolved.agent and not resolved.identities_only,
        "look_for_keys": False,
        "banner_timeout": ssh.connect_timeout * 2,
        "auth_timeout": ssh.connect_timeout * 2,
    }
    if resolved.agent and resolved.identities_only:
        key = _agent_key(resolved.identity_files)
        if key is not None:
            kwargs["pkey"] = key
    connection = fabric.Connection(
        resolved.hostname,
        user=resolved.user,
        port=resolved.port,
        # An empty ssh_config: `ssh -G` has resolved it already, better than paramiko would.
        config=fabric.Config(ssh_config=paramiko.SSHConfig()),
        gateway=gateway,
        connect_timeout=int(ssh.connect_timeout),
        connect_kwargs=kwargs,
    )
    hostkeys.load(connection.client, resolved)
    connection.client.set_missing_host_key_policy(hostkeys.Refuse(resolved))
    with _agent_socket(resolved.agent_socket):
        _translate(connection, resolved)
    connection.transport.set_keepalive(resolved.keepalive)
    return connection


def _translate(connection: fabric.Connection, resolved: Resolved) -> None:
    try:
        _handshake(connection)
    except _Final as final:
        if isinstance(final.__cause__, paramiko.BadHostKeyException):
            raise hostkeys.changed(resolved, final.__cause__) from None
        raise _auth_failed(resolved, str(final.__cause__)) from None
    except (paramiko.SSHException, EOFError) as error:
        if "passphrase" in str(error) or "encrypted" in str(error):
            raise _auth_failed(resolved, str(error)) from None
        raise errors.Unreachable(
            f"{resolved.where}: the SSH handshake failed: {error or 'connection closed'}",
            remedy="try `ssh -v` by hand; sshd closes early when it is overloaded",
            code="handshake_failed",
        ) from None
    except OSError as error:
        raise errors.Unreachable(
            f"cannot reach {resolved.where}: {_why(error)}",
            remedy="check that the host is up and the address is right in the inventory",
            code="host_down",
        ) from None


def _why(error: OSError) -> str:
    inner = getattr(error, "errors", None)
    if isinstance(inner, dict) and inner:  # paramiko's NoValidConnectionsError
        error = next(iter(inner.values()))
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error)


def _auth_failed(resolved: Resolved, detail: str) -> errors.AuthFailed:
    tried = ", ".join(str(p) for p in resolved.identity_files) or "no key file"
    agent = " and the agent" if resolved.agent and not resolved.identities_only else ""
    return errors.AuthFailed(
        f"{resolved.where} accepts none of our keys ({tried}{agent}): {detail}",
        remedy="name the right key with ssh.identity_file, or add it with ssh-add or ssh-copy-id",
    )


def _agent_key(identities: tuple[Path, ...]) -> paramiko.AgentKey | None:
    """IdentitiesOnly still means the agent, for the keys that are named."""
    wanted = set()
    for path in identities:
        public = path if path.suffix == ".pub" else path.with_name(path.name + ".pub")
        with contextlib.suppress(OSError, IndexError):
            wanted.add(public.read_text().split()[1])
    for key in paramiko.Agent().get_keys() if wanted else ():
        if key.get_base64() in wanted:
            return key
    return None


@contextlib.contextmanager
def _agent_socket(path: str | None) -> Iterator[None]:
    """Paramiko finds the agent through the environment only."""
    if path is None:
        yield
        return
    before = os.environ.get("SSH_AUTH_SOCK")
    os.environ["SSH_AUTH_SOCK"] = str(Path(os.path.expandvars(path)).expanduser())
    try:
        yield
    finally:
        if before is None:
            del os.environ["SSH_AUTH_SOCK"]
        else:
            os.environ["SSH_AUTH_SOCK"] = before
