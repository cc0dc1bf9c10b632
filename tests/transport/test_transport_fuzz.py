"""No value of the inventory can change what is executed, here or on the host."""

from __future__ import annotations

import importlib
import shlex
import shutil
import subprocess
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from opsctl.inventory import Host, Ssh
from opsctl.transport import bundle, sshconfig

# The package's `connect` is the function of that name.
connect = importlib.import_module("opsctl.transport.connect")

PIECES = [
    *(" ", "\t", "\n", "\r", "\x00", "\x1b", "\x7f", "ä", "模", "'", '"', "`", "\\", "$", "$(id)"),
    *("`id`", "${HOME}", ";", "&&", "|", ">", "<", "#", "%h", "-", "--", "!", "!!", "*", "?", "~"),
    *("[a]", "{a,b}", "=", "a", "/", "..", "(", ")", "^", "@"),
]
texts = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=6).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)
SERVICES = {
    "s": {
        "unit": "s.service",
        "python": "/p",
        "port": 1,
        "model": {"path": "/m", "served_name": "m"},
    }
}


def accepted(python: str) -> bool:
    try:
        Host.model_validate({"lab": "x", "python": python, "services": SERVICES})
    except ValidationError:
        return False
    return True


pythons = st.one_of(st.just("/opt/a b/python"), texts.map("/{}".format), texts).filter(accepted)


class FakeConnection:
    transport = None


def command_of(patch: pytest.MonkeyPatch, python: str, user: str) -> str:
    """What is handed to the host's login shell."""
    seen: list[str] = []
    patch.setattr(connect, "_ChannelPipe", lambda transport, command: seen.append(command))
    patch.setattr(connect, "Conversation", lambda pipe: None)
    resolved = sshconfig.build({}, Ssh(address="h", user=user), "h")
    connect.SshRemote(FakeConnection(), resolved, python)
    (command,) = seen
    return command


def parsed(shell: str, commands: list[str]) -> list[list[str]]:
    """The words of each command, as `shell` makes them of its text."""
    show = "show() { for w in \"$@\"; do printf '%s\\0' \"$w\"; done; printf '\\1\\0'; }\n"
    script = show + "".join(f"show {command}\n" for command in commands)
    done = subprocess.run(
        [shell], input=script.encode(), capture_output=True, check=True, env={"HOME": "/h"}
    )
    assert done.stderr == b""
    lists: list[list[str]] = [[]]
    for word in done.stdout.split(b"\0")[:-1]:
        if word == b"\1":
            lists.append([])
        else:
            lists[-1].append(word.decode())
    return lists[:-1]


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_remote_command_is_the_argv_that_is_meant(shell: str) -> None:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"no {shell} here")

    @settings(max_examples=25, deadline=None)
    @given(names=st.lists(pythons, min_size=1, max_size=20), user=st.sampled_from(["root", "ann"]))
    @example(names=["$(touch x)", "a'b", 'a"b', "`id`", "a;b", "a b", "ä", "~", "!x"], user="ann")
    def check(names: list[str], user: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            commands = [command_of(patch, name, user) for name in names]
        before = [] if user == "root" else ["sudo", "-n"]
        assert parsed(path, commands) == [
            [*before, n, *bundle.OPTIONS, "-c", bundle.BOOT] for n in names
        ]

    check()


def test_the_boot_line_holds_nothing_that_a_shell_would_look_at() -> None:
    assert not set(bundle.BOOT) & set("'\"$`\\\n!")
    assert shlex.split(f"'{bundle.BOOT}'") == [bundle.BOOT]


@pytest.mark.parametrize("python", ["-x", "--", "a\nb", "a\0b", "", "-"])
def test_a_program_that_sudo_would_take_for_an_option_is_refused(python: str) -> None:
    assert not accepted(python)


def ssh(**values: Any) -> Ssh | None:
    try:
        return Ssh.model_validate(values)
    except ValidationError:
        return None


@settings(max_examples=300, deadline=None)
@given(address=texts, user=st.none() | texts)
@example(address="-oProxyCommand=id", user=None)
@example(address="h", user="-oProxyCommand=id")
@example(address="$(id)", user=None)
def test_an_address_is_one_word_and_no_option(address: str, user: str | None) -> None:
    found = ssh(address=address, user=user)
    if found is None:
        return
    assert sshconfig.argv(found)[-2:] == ["--", address]
    for value in (address, user or "x"):
        assert value[0] != "-"
        assert shlex.split(value) == [value], "one word of a ProxyCommand"
        assert not set(value) & set("$`;&|<>(){}'\"\\ \n\0")


@pytest.mark.parametrize(
    "address", ["10.1.2.200", "ct200", "fe80::1%eth0", "a.example.org", "[::1]", "bücher.example"]
)
def test_the_addresses_that_there_are_stay_good(address: str) -> None:
    assert ssh(address=address, user="opsctl") is not None
