"""Who is told of a rollout: webhooks, whose URLs are secrets."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Discriminator, Field, SecretStr, Tag, model_validator

from opsctl.inventory.secret import Part, SecretRef

Occasion = Literal[
    "start", "success", "inconclusive", "rollback", "failure", "interrupted", "guard"
]
Form = Literal["json", "slack"]

_EVERY: frozenset[Occasion] = frozenset(get_args(Occasion))
_REFERENCES = ("env", "file")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _referred(value: Any) -> Any:
    """`env:NAME` and `file:PATH` as the reference that they are."""
    if isinstance(value, str):
        kind, colon, rest = value.partition(":")
        if colon and kind in _REFERENCES:
            return {kind: rest}
    return value


def _kind(value: Any) -> str:
    return "reference" if isinstance(value, dict | SecretRef) else "literal"


Url = Annotated[
    Annotated[SecretRef, Tag("reference")] | Annotated[SecretStr, Tag("literal")],
    Discriminator(_kind),
    BeforeValidator(_referred),
]


class Webhook(Part):
    """One receiver. Whoever knows its URL may post there: it is shown nowhere."""

    url: Url
    form: Form = "json"
    on: Annotated[frozenset[Occasion], Field(min_length=1)] = _EVERY
    # Lets `http://` be used beyond this machine.
    insecure: bool = False

    @model_validator(mode="before")
    @classmethod
    def _on_is_a_word(cls, value: Any) -> Any:
        """YAML 1.1 reads an unquoted `on` as the boolean."""
        if isinstance(value, dict) and True in value:
            return {"on" if key is True else key: each for key, each in value.items()}
        return value

    @model_validator(mode="after")
    def _is_a_url(self) -> Webhook:
        if isinstance(self.url, SecretRef):
            _check_reference(self.url)
            return self
        try:
            self._check(self.url.get_secret_value())
        except ValueError as error:
            raise ValueError(f"its url {error}") from None
        return self

    @property
    def label(self) -> str:
        """What it is called in a message: its form, and the reference if its URL is one."""
        if isinstance(self.url, SecretStr):
            return self.form
        of = f"env:{self.url.env}" if self.url.env is not None else f"file:{self.url.file}"
        return f"{self.form}, {of}"

    def address(self) -> str:
        """The URL itself.

        Raises:
            LookupError: its reference cannot be read, or that is no URL to post to. The message
                names the reference and never the URL.
        """
        if isinstance(self.url, SecretStr):
            return self.url.get_secret_value()
        found = self.url.read()
        try:
            self._check(found)
        except ValueError as error:
            raise LookupError(f"the URL {error}") from None
        return found

    def _check(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            raise ValueError("is not a URL") from None
        plain = url.isascii() and url.isprintable() and " " not in url
        if parts.scheme not in {"http", "https"} or not host or not plain:
            raise ValueError("must be env:NAME, file:PATH, or an https URL")
        if parts.username is not None:
            raise ValueError("must not name a user: the path is what a webhook keeps secret")
        if parts.scheme == "http" and not self.insecure and not is_loopback(host):
            raise ValueError("is sent in the clear: use https, or say `insecure: true`")


def _check_reference(given: SecretRef) -> None:
    """A reference is shown: a URL that was put in its place must not be."""
    if given.env is not None and not _VARIABLE.fullmatch(given.env):
        raise ValueError("its url names no environment variable after env:")
    if given.file is not None and str(given.file).startswith(("https:", "http:")):
        raise ValueError("its url names no file after file:")


def is_loopback(host: str) -> bool:
    """Whether `host`, a name or an address, is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
