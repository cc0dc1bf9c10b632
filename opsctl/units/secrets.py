"""The file of a service's secret variables, as EnvironmentFile= reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from opsctl.errors import UsageError
from opsctl.inventory.models import Service

# What a backslash keeps within double quotes (systemd's env-file.c, SHELL_NEED_ESCAPE).
_ESCAPED = re.compile(r"[\"\\`$]")
_HEAD = "# Written by opsctl from the inventory's launch.secrets; 0600, for systemd to read.\n"


def render(service: Service) -> str | None:
    """The content, with the secrets in clear: for the host alone. None where there are none.

    Raises:
        UsageError: a reference cannot be read, or the file cannot hold its value; no message
            has a value.
    """
    if not service.launch.secrets:
        return None
    values: dict[str, str] = {}
    for name, reference in sorted(service.launch.secrets.items()):
        try:
            values[name] = reference.read()
        except LookupError as error:
            raise UsageError(
                f"launch.secrets.{name} of {service.name}: {error}",
                remedy="set what it refers to",
                code="secret_missing",
            ) from None
        if not values[name].isprintable():
            raise UsageError(
                f"launch.secrets.{name} of {service.name} holds a control character",
                remedy="one line of text, as a token or a key is",
                code="secret_invalid",
            )
    return _HEAD + _lines(values)


def _lines(values: Mapping[str, str]) -> str:
    return "".join(f'{name}="{_ESCAPED.sub(_kept, value)}"\n' for name, value in values.items())


def _kept(match: re.Match[str]) -> str:
    return "\\" + match[0]


def shown(service: Service) -> str:
    """The same for eyes: the names, and what each refers to."""
    lines = []
    for name, reference in sorted(service.launch.secrets.items()):
        source = f"env {reference.env}" if reference.env else f"file {reference.file}"
        lines.append(f"{name}=[redacted, from {source}]\n")
    return "".join(lines)
