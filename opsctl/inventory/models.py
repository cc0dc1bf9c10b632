"""inventory.yaml as frozen, typed values. Durations are seconds once read."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from opsctl.inventory.notices import Webhook
from opsctl.inventory.secret import Part as _Model
from opsctl.inventory.secret import SecretRef
from opsctl.text import did_you_mean

_DURATION = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?)\s*(?P<unit>ms|s|m|h|d)?")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# Seconds. Nothing that waits takes a day: a longer bound is a slip of the pen, and never ends.
_LONGEST = 24 * 3600.0


def parse_duration(value: object, *, longest: float = _LONGEST) -> float:
    """`90`, `"90s"`, `"15m"`, `"1.5h"`, `"1d"` or `"250ms"` in seconds.

    Raises:
        ValueError: it is not such a duration, not above zero, or above `longest` seconds.
    """
    if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError("expected a duration such as 90s or 15m")
    if isinstance(value, int | float):
        # An integer may be beyond what a float holds.
        seconds = float(min(value, longest + 1))
    else:
        match = _DURATION.fullmatch(str(value).strip())
        if match is None:
            raise ValueError(f"expected a duration such as 90s or 15m, not {value!r}")
        seconds = float(match["number"]) * _UNIT_SECONDS[match["unit"]]
    if seconds <= 0:
        raise ValueError("a duration must be above zero")
    if seconds > longest:
        raise ValueError(f"a duration must be {longest / 3600:.0f} h at most")
    return seconds


Duration = Annotated[float, BeforeValidator(parse_duration)]
Port = Annotated[int, Field(ge=1, le=65535)]
# Names end up in paths below /var/lib/opsctl and in file names on this side.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$")]
UnitName = Annotated[str, Field(pattern=r"^[A-Za-z0-9:_.\\@-]+\.service$")]


def _one_line(text: str) -> str:
    if not text or any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise ValueError("must be text without control characters")
    return text


def _no_option(text: str) -> str:
    if _one_line(text).startswith("-"):
        raise ValueError("must not start with '-', which would make it an option")
    return text


def _ssh_name(text: str) -> str:
    if set(_no_option(text)) & _SSH_FORBIDDEN or text.split() != [text]:
        raise ValueError("must be one word without quotes and other signs that a shell reads")
    return text


# What OpenSSH itself refuses since 9.6 (ssh.c: valid_hostname, valid_ruser), as these end up in
# the ProxyCommand and the `Match exec` of a configuration.
_SSH_FORBIDDEN = frozenset("'`\"$\\;&<>|(){}")

DropInName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]*\.conf$")]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Memory = Annotated[str, Field(pattern=r"^([0-9]+[KMGT]?|[0-9]+(\.[0-9]+)?%)$")]  # of a cgroup
AbsolutePath = Annotated[str, Field(pattern=r"^/"), AfterValidator(_one_line)]
# Becomes the first word of the remote command, after `sudo -n` where the user is not root.
Program = Annotated[str, AfterValidator(_no_option)]
SshName = Annotated[str, AfterValidator(_ssh_name)]


def _beside_inventory(path: Path, info: ValidationInfo) -> Path:
    """`load` tells the folder; a value that was read once is absolute already."""
    folder = (info.context or {}).get("folder")
    try:
        path = path.expanduser()
    except RuntimeError:
        raise ValueError(f"there is no home folder for {path}") from None
    return path if folder is None else Path(folder) / path


PathBesideInventory = Annotated[Path, AfterValidator(_beside_inventory)]


class Ssh(_Model):
    """How to reach the host. Everything left out comes from `ssh -G ADDRESS`."""

    address: SshName
    user: SshName | None = None
    port: Port | None = None
    identity_file: Path | None = None
    known_hosts: Path | None = None
    config: Path | None = None  # as ssh -F
    connect_timeout: Duration = 10.0


class Load(_Model):
    """How long a start may take: `budget` in all, `stall` without any sign of progress."""

    budget: Duration = 900.0
    stall: Duration = 300.0


class Smoke(_Model):
    """The requests that prove a start, and what their answers must show."""

    prompt: str = "Write quicksort in Python with comments."
    max_tokens: Annotated[int, Field(ge=16)] = 128
    timeout: Duration = 120.0
    # Tokens per verify step, the bonus token included: 1.0 means that nothing drafted
    # was accepted. None leaves acceptance out of the verdict.
    min_accept_len: Annotated[float, Field(ge=1.0)] | None = None
    # False for a server without speculation: then no verify step is asked for.
    speculative: bool = True


class Model(_Model):
    path: AbsolutePath
    served_name: str


class Launch(_Model):
    """What the unit template is filled with beside the service's own fields."""

    template: str = "sglang.service.j2"
    user: str = "root"
    environment: dict[str, str] = Field(default_factory=dict)
    args: tuple[str, ...] = ()
    stop_timeout: Duration = 90.0
    drop_ins: dict[DropInName, str] = Field(default_factory=dict)
    # A file of the host's own with more variables, which opsctl reads and writes nothing of.
    environment_file: AbsolutePath | None = None
    # Variables whose values are secrets: they go into a file that root alone can read.
    secrets: dict[VariableName, SecretRef] = Field(default_factory=dict)
    memory_high: Memory | None = None
    memory_max: Memory | None = None
    # Whether a deploy brings the host's unit in line with all this, without --with-unit.
    managed: bool = False


class Service(_Model):
    """One SGLang server: its systemd unit, its install, and what is expected of it."""

    unit: UnitName
    python: AbsolutePath
    distribution: Name = "sglang"
    port: Port
    listen: str = "0.0.0.0"  # noqa: S104 - what SGLang binds on the host, from its unit
    model: Model
    endpoint: Annotated[str, Field(pattern=r"^(ssh$|https?://)")] = "ssh"
    api_key: SecretRef | None = None
    load: Load = Load()
    patch_set: Name | None = None
    # Who may sign the sets of this service, as `ssh-keygen -Y` has it; None: any set will do.
    allowed_signers: PathBesideInventory | None = None
    smoke: Smoke = Smoke()
    # Who is told of its rollouts; None: as the host, or the defaults, have it.
    notices: tuple[Webhook, ...] | None = None
    launch: Launch = Launch()
    state_dir: AbsolutePath = "/var/lib/opsctl"

    _name: str = PrivateAttr(default="")

    @property
    def name(self) -> str:
        """The key of this service in inventory.yaml."""
        return self._name

    @property
    def connect_host(self) -> str:
        """The address on the host itself at which the server answers."""
        return "127.0.0.1" if self.listen in {"0.0.0.0", "::", ""} else self.listen  # noqa: S104


class Host(_Model):
    """A host by SSH, or a lab of that name on this machine."""

    ssh: Ssh | None = None
    lab: Name | None = None
    python: Program = "python3"  # the interpreter of the host program, not of SGLang
    notices: tuple[Webhook, ...] | None = None
    services: dict[Name, Service] = Field(min_length=1)

    _name: str = PrivateAttr(default="")

    @property
    def name(self) -> str:
        """The key of this host in inventory.yaml."""
        return self._name

    @model_validator(mode="after")
    def _one_way_in(self) -> Host:
        if (self.ssh is None) == (self.lab is None):
            raise ValueError("give exactly one of 'ssh' and 'lab'")
        return self

    def model_post_init(self, context: Any, /) -> None:
        for name, service in self.services.items():
            service._name = name


class Defaults(_Model):
    host: Name | None = None
    allowed_signers: PathBesideInventory | None = None
    notices: tuple[Webhook, ...] = ()


class Inventory(_Model):
    version: Literal[1]
    defaults: Defaults = Defaults()
    hosts: dict[Name, Host] = Field(min_length=1)

    _path: Path | None = PrivateAttr(default=None)

    @property
    def path(self) -> Path | None:
        """The file that this inventory was read from."""
        return self._path

    def model_post_init(self, context: Any, /) -> None:
        for name, host in self.hosts.items():
            host._name = name
            self._pass_on_signers(host)
            self._pass_on_notices(host)

    def _pass_on_signers(self, host: Host) -> None:
        """In the service's own field, so that a copy of it cannot lose them."""
        signers = self.defaults.allowed_signers
        for name, service in host.services.items():
            if service.allowed_signers is None and signers is not None:
                host.services[name] = service.model_copy(update={"allowed_signers": signers})

    def _pass_on_notices(self, host: Host) -> None:
        """Likewise. An empty list of a host's or a service's own is an answer too."""
        given = self.defaults.notices if host.notices is None else host.notices
        for name, service in host.services.items():
            if service.notices is None:
                host.services[name] = service.model_copy(update={"notices": given})

    @model_validator(mode="after")
    def _default_exists(self, info: ValidationInfo) -> Inventory:
        name = self.defaults.host
        elsewhere = (info.context or {}).get("elsewhere")
        if name is not None and name not in self.hosts and not (elsewhere and elsewhere(name)):
            raise PydanticCustomError(
                "unknown_default",
                "no host is called '{host}'{nor}; there are {known}{close}",
                {
                    "host": name,
                    "nor": ", and no lab of that name runs on this machine" if elsewhere else "",
                    "known": ", ".join(self.hosts),
                    "close": did_you_mean(name, self.hosts),
                    "key": ("defaults", "host"),  # a model's own check has no place in the file
                },
            )
        return self
