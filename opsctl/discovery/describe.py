"""What a host shows, as the text of its entry in an inventory."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from opsctl.discovery.arguments import rest
from opsctl.inventory import Launch, Service, Ssh
from opsctl.sglang import arguments
from opsctl.text import counted
from opsctl.units.properties import parse_span

# A load with a cold page cache has been seen to take twice one with a warm cache; below two
# minutes a budget saves nothing.
BUDGET_FACTOR, LEAST_BUDGET = 2.0, 120.0

# SGLang's own defaults (srt/server_args.py).
_PORT, _HOST = "30000", "127.0.0.1"
_ODD = re.compile(r"[^A-Za-z0-9._@-]")
# What the template sets by itself.
_OF_TEMPLATE = frozenset({"PYTHONUNBUFFERED", "OPSCTL_EXTRA_ARGS"})

Facts = Mapping[str, Any]
Sets = Sequence[tuple[str, str, str, str]]  # (name, version, distribution, its version)


@dataclass(slots=True)
class Described:
    """A host's entry: `text` from the host's name on, indented by two.

    `services` are by name, with their units; `left_out` says of a unit why it is not among them.
    """

    name: str
    text: str = ""
    services: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def describe(facts: Facts, name: str, ssh: Ssh, sets: Sets = ()) -> Described:
    """The entry `name` of a host with these `facts`, its `discover`, reached by `ssh`.

    `sets` are the patch sets at hand. There is no text where no service could be described.
    """
    found = Described(name)
    unfit = {unit["Id"]: _unfit(unit) for unit in facts["units"]}
    found.left_out.update({unit: why for unit, why in unfit.items() if why})
    parts: list[str] = []
    for unit in facts["units"]:
        if unfit[unit["Id"]]:
            continue
        service = _ODD.sub("-", unit["Id"].removesuffix(".service")).lstrip("._@-")
        where = name if list(unfit.values()).count("") == 1 else f"{name} --service {service}"
        found.services[service] = unit["Id"]
        parts += [f"{service}:", *_indented(_service(unit, where, sets))]
    unclear = set(facts["unclear"])  # an exporter that watches the server, more often than not
    for unit in facts["unclear"]:
        found.left_out[unit] = (
            "its command names sglang, and starts no server as far as can be told"
        )
    for unit in facts["containers"]:
        found.left_out[unit] = "it runs SGLang in a container, which opsctl does not patch"
    for path in facts["user_units"]:
        found.left_out[path] = "it is a user's unit; opsctl deploys to the system's"
    if parts:
        lines = [f"{name}:", *_indented([*_reached(ssh), "services:", *_indented(parts)])]
        left_out = {unit: why for unit, why in found.left_out.items() if unit not in unclear}
        lines += _indented([f"# Not here: {unit}: {why}" for unit, why in left_out.items()])
        found.text = "".join(f"{_printable(line)}\n" for line in _indented(lines))
    return found


def one_host(described: Described, head: str) -> str:
    """A whole inventory of that host. `head` says where it comes from."""
    return f"# {head}\n# docs/inventory.md says what each key means.\nversion: 1\n\nhosts:\n" + (
        described.text
    )


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" if line else "" for line in lines]


def _scalar(value: object) -> str:
    """`value` as YAML in one line, quoted where it would be read as something else."""
    quotes = '"' if isinstance(value, str) and not value.isprintable() else None
    dumped: str = yaml.safe_dump(
        value, width=sys.maxsize, allow_unicode=quotes is None, default_style=quotes
    )
    return dumped.removesuffix("...\n").strip()


def _printable(line: str) -> str:
    """A line that stays one: what a remark cites of the host may hold anything."""
    return "".join(char if char.isprintable() else "?" for char in line)


def _unfit(unit: Facts) -> str:
    """Why a unit cannot be a service of an inventory; empty where it can."""
    effective = unit["effective"]
    if unit["python"] is None:
        return "its Python could not be told from its command; start it, and try again"
    if unit["model"] is None:
        given = arguments.value(effective, "--model-path")
        if given is None and arguments.value(effective, "--config"):
            return "its model is named in the file of --config, which opsctl does not read"
        if given is None or "$" in given:
            return "its model could not be told from its command; start it, and try again"
        return f"its model {given} is neither a path nor in the host's cache of models"
    port = arguments.value(effective, "--port") or _PORT
    return "" if port.isdecimal() and 0 < int(port) < 65536 else f"its port is {port!r}"


def _reached(ssh: Ssh) -> Iterator[str]:
    yield "ssh:"
    for key, value in ssh.model_dump(mode="json", exclude_defaults=True).items():
        yield f"  {key}: {_scalar(value)}"


def _service(unit: Facts, where: str, sets: Sets) -> Iterator[str]:
    effective = unit["effective"]
    given = arguments.value(effective, "--model-path")
    served = arguments.value(effective, "--served-model-name") or given or unit["model"]
    yield f"unit: {_scalar(unit['Id'])}{_state(unit)}"
    yield f"python: {_scalar(unit['python'])}{_version(unit)}"
    if unit["distribution"] != Service.model_fields["distribution"].default:
        yield f"distribution: {_scalar(unit['distribution'])}"
    yield f"port: {arguments.value(effective, '--port') or _PORT}"
    listen = arguments.value(effective, "--host") or _HOST
    if listen != Service.model_fields["listen"].default:
        yield f"listen: {_scalar(listen)}"
    yield "model:"
    copied = "" if given in {unit["model"], None} else f" # {given}, as the host has it now"
    yield f"  path: {_scalar(unit['model'])}{copied}"
    yield f"  served_name: {_scalar(served)}"
    yield from _api_key(unit)
    yield from _load(unit)
    yield from _patch_set(unit, where, sets)
    yield from _smoke(effective, where)
    yield from _launch(unit)


def _state(unit: Facts) -> str:
    return "" if unit["ActiveState"] == "active" else f" # {unit['ActiveState']} when it was seen"


def _version(unit: Facts) -> str:
    install = unit["install"] or {}
    if "fault" in install:
        return f" # {install['fault']['message']}"
    text = f" # {unit['distribution']} {install['version']}"
    return text + (", editable: opsctl deploys to wheels only" if install["editable"] else "")


def _api_key(unit: Facts) -> Iterator[str]:
    if "--api-key" in unit["secrets"]:
        variable = unit["secrets"]["--api-key"]
        where = f"as the unit's own ${variable}" if variable else "the unit has it in the clear"
        yield "api_key:"
        yield f"  env: {variable or 'SGLANG_API_KEY'} # to be set where opsctl runs; {where}"


def _load(unit: Facts) -> Iterator[str]:
    seconds = [load["seconds"] for load in unit["loads"]]
    if not seconds:
        default = Service.model_fields["load"].default.budget
        yield f"# load: no start in the journal got ready, so the default of {default / 60:.0f}m"
        return
    wanted = max(BUDGET_FACTOR * max(seconds), LEAST_BUDGET)
    seen = ", ".join(f"{each:.0f}" for each in seconds)
    yield "load:"
    yield (
        f"  budget: {-(-wanted // 60):.0f}m # a start took {seen} s"
        if len(seconds) == 1
        else f"  budget: {-(-wanted // 60):.0f}m # the last {len(seconds)} starts took {seen} s"
    )


def _patch_set(unit: Facts, where: str, sets: Sets) -> Iterator[str]:
    if unit["set"]:
        yield f"patch_set: {_scalar(unit['set']['name'])} # {unit['set']['version']} is in place"
        return
    version = (unit["install"] or {}).get("version")
    for name, own_version, distribution, for_version in sets:
        if (distribution, for_version) == (unit["distribution"], version):
            yield (
                f"# patch_set: {name} # {own_version} is for this release: "
                f"opsctl plan {where} --patch-set {name}"
            )


def _smoke(effective: Sequence[str], where: str) -> Iterator[str]:
    if arguments.value(effective, "--speculative-algorithm"):
        yield f"# smoke.min_accept_len: not judged; opsctl metrics {where} has the figure of now"
    else:
        yield "smoke:"
        yield "  speculative: false # no --speculative-algorithm"


def _launch(unit: Facts) -> Iterator[str]:
    """Only what differs from the defaults."""
    own = unit["arguments"]
    words = rest(unit["effective"] if own is None else own, unit["secrets"])
    lines: list[str] = []
    if unit["template"] not in {None, Launch.model_fields["template"].default}:
        lines.append(f"template: {_scalar(unit['template'])}")
    user = unit["settings"].get("User", "")
    if user not in {"", "root"}:
        lines.append(f"user: {_scalar(user)}")
    given = unit["settings"].get("TimeoutStopSec", "")
    stop = float(given) if given.isdecimal() else parse_span(given)
    if stop and stop != Launch.model_fields["stop_timeout"].default:
        lines.append(f"stop_timeout: {stop:g}s")
    lines += _environment(unit)
    lines += _kept(unit)
    if own is None and words:
        lines.append("# As the running server has them; the unit's own text has variables.")
    if words:
        lines += ["args:", *(f"  - {_scalar(word)}" for word in words)]
    lines += [
        f"# {name} is not copied: a drop-in of the host's own must give it"
        for name in unit["secrets"]
    ]
    if all(line.startswith("#") for line in lines):  # nothing but remarks is no mapping
        yield from lines
    else:
        via = f" ({unit['via']} starts it now)" if unit["via"] else ""
        yield f"launch: # what --with-unit would write the unit from{via}"
        yield from _indented(lines)


def _environment(unit: Facts) -> list[str]:
    own = {k: v for k, v in unit["environment"].items() if k not in _OF_TEMPLATE}
    lines = [f"  {_scalar(name)}: {_scalar(value)}" for name, value in sorted(own.items())]
    hidden = unit["secret_variables"]
    if hidden:
        what = counted(len(hidden), "secret variable")
        return [
            *(["environment:", *lines] if lines else []),
            f"# {what} left out, for a drop-in of the host's own: {', '.join(hidden)}",
        ]
    return ["environment:", *lines] if lines else []


def _kept(unit: Facts) -> list[str]:
    """Settings of the unit that the template lacks, as a drop-in."""
    settings = [f"EnvironmentFile={path}" for path in unit["environment_files"]]
    if unit["settings"].get("WorkingDirectory"):
        settings.append(f"WorkingDirectory={unit['settings']['WorkingDirectory']}")
    if not settings:
        return []
    return ["drop_ins:", "  10-kept.conf: |", "    [Service]", *(f"    {s}" for s in settings)]
