"""Rules about secrets: what one is called, never what it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from opsctl.units.subject import Finding, Subject
from opsctl.units.unitfile import words

# The last part of a variable's name; not so MAX_TOKENS, nor TOKENIZERS_PARALLELISM.
_SECRET: Final = re.compile(
    r"(?:^|_)(?:KEY|TOKEN|SECRET|PASS|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE
)
_SECRET_ARGUMENT: Final = re.compile(r"--(?:[\w-]*api-key|[\w-]*token|[\w-]*password)(?:=|$)")


def secrets(subject: Subject) -> Iterator[Finding]:
    remedy = "launch.secrets of the inventory, or an EnvironmentFile with 0600, and a new secret"
    for setting in subject.text.all("Environment"):
        for word in words(setting.value):
            name, _, value = word.strip("\"'").partition("=")
            if not _SECRET.search(name) or not value or value.startswith("/"):  # where it is
                continue
            yield Finding(
                "secret",
                "fail",
                f"{name} stands in Environment=, which every user of the host can read "
                "(systemctl show)",
                remedy,
                setting.where,
            )
    for setting in subject.text.all("ExecStart"):
        for word in setting.value.split():
            if _SECRET_ARGUMENT.match(word.strip("\"'")):
                name = word.partition("=")[0].strip("\"'")
                yield Finding(
                    "secret_argument",
                    "fail",
                    f"{name} is an argument, which every user of the host can read (ps)",
                    remedy,
                    setting.where,
                )


def environment_files(subject: Subject) -> Iterator[Finding]:
    for file in subject.environment_files:
        path, mode = file["path"], file["mode"]
        if mode is None:
            if not file["optional"]:
                yield Finding("environment_file", "fail", f"EnvironmentFile={path} is not there: "
                              "no start goes well", "write it, or put - before it")  # fmt: skip
        elif mode & 0o077 or file["uid"]:
            yield Finding(
                "environment_file_open",
                "fail",
                f"{path} is {mode:04o} and uid {file['uid']}'s: what is secret in it is not",
                f"chown root: {path} && chmod 600 {path}; systemd reads it as root",
            )


RULES: Final[tuple[Callable[[Subject], Iterator[Finding]], ...]] = (secrets, environment_files)
