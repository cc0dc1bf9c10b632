"""What a shell offers at TAB: hosts, services, sets, generations, baselines, playbooks.

A shell waits for each answer and shows whatever is written meanwhile. So nothing here raises or
prints, nothing heavy is imported (pydantic and paramiko alone take longer than a host's name
should), and a file that is broken is a file without names. The host is asked in a process of its
own, for `_BOUND` seconds at most, and what it said is kept for a minute.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

Offer = list[str | tuple[str, str]]

# Seconds: for the host to answer; for which an answer counts, and that there was none.
_BOUND = 2.0
_FRESH, _FRESH_FAILURE = 60.0, 10.0

_ASK = "from opsctl.cli.completion import answer; answer()"


def prepare() -> None:
    """For a process that answers a shell and does nothing else: Typer takes the words as they are.

    It would make values of them with pydantic (since 0.27), whose import takes as long as all the
    rest, and call what `--version` prints. A Typer that does so elsewhere is slower, and no more.
    """
    with contextlib.suppress(ImportError):
        from typer.core import _TyperParameter

        def as_typed(self: object, ctx: object, value: Any) -> Any:
            return value

        _TyperParameter.process_value = as_typed  # type: ignore[method-assign]


def _quiet(complete: Callable[[typer.Context, str], Iterable[str | tuple[str, str]]]) -> Any:
    """`complete`, offering nothing where it fails."""

    def completed(context: typer.Context, incomplete: str) -> Offer:
        with contextlib.suppress(Exception):
            return list(complete(context, incomplete))
        return []

    # Typer reads these for each option of each command at every start: not to be evaluated then.
    completed.__annotations__ = {"context": typer.Context, "incomplete": str}
    completed.__doc__ = complete.__doc__
    return completed


# -- of the inventory and this machine -------------------------------------------------------------


@_quiet
def complete_hosts(context: typer.Context, incomplete: str) -> Iterator[str]:
    """The inventory's, and the labs that run without an entry."""
    known = _hosts(_inventory(context))
    yield from known
    yield from (name for name in _running_labs() if name not in known)


@_quiet
def complete_services(context: typer.Context, incomplete: str) -> Iterable[str]:
    """Of the host that stands on the line, else of the one that would be meant."""
    return _services(_inventory(context), _typed_host(context))


@_quiet
def complete_labs(context: typer.Context, incomplete: str) -> Iterator[str]:
    """Those that run, and those that the inventory names."""
    named = (_mapping(host).get("lab") for host in _hosts(_inventory(context)).values())
    yield from sorted({*_running_labs(), *(name for name in named if isinstance(name, str))})


@_quiet
def complete_patch_sets(context: typer.Context, incomplete: str) -> Iterable[str]:
    return sorted({name for name, _ in _patch_sets(context)})


@_quiet
def complete_set_versions(context: typer.Context, incomplete: str) -> Iterator[str]:
    """NAME, and NAME@VERSION."""
    found = _patch_sets(context)
    yield from sorted({name for name, _ in found})
    yield from sorted({f"{name}@{version}" for name, version in found})


@_quiet
def complete_playbooks(context: typer.Context, incomplete: str) -> Iterable[str]:
    return _stems(_beside_inventory(context, "playbooks"))


@_quiet
def complete_runbooks(context: typer.Context, incomplete: str) -> Iterable[str]:
    return _stems(_beside_inventory(context, "playbooks") / "runbooks")


@_quiet
def complete_policies(context: typer.Context, incomplete: str) -> Iterator[str]:
    """YAML files with rules, in the folder that is typed. Where there is none the shell goes on
    with files of its own finding."""
    folder, _, _ = incomplete.rpartition("/")
    typed = f"{folder}/" if "/" in incomplete else ""
    for path in sorted(Path(typed or ".").expanduser().glob("*.y*ml")):
        if "rules" in _yaml(path):
            yield typed + path.name


def _inventory_file(context: typer.Context) -> Path:
    from opsctl.resources import find_inventory

    named = context.params.get("inventory") or context.find_root().params.get("inventory")
    return find_inventory(Path(named).expanduser() if named else None)


def _inventory(context: typer.Context) -> dict[str, Any]:
    return _yaml(_inventory_file(context))


def _yaml(path: Path) -> dict[str, Any]:
    """The file as it is, unchecked; empty where it cannot be read. For names alone: what is not
    well formed elsewhere in it is no reason to offer nothing."""
    import yaml

    with contextlib.suppress(OSError, ValueError, yaml.YAMLError, RecursionError):
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return _mapping(yaml.load(path.read_text(encoding="utf-8"), loader))  # noqa: S506 - safe
    return {}


def _mapping(value: Any) -> dict[str, Any]:
    return {str(key): each for key, each in value.items()} if isinstance(value, dict) else {}


def _hosts(book: Mapping[str, Any]) -> dict[str, Any]:
    return _mapping(book.get("hosts"))


def _typed_host(context: typer.Context) -> str | None:
    """The host on the line. Behind an option whose value is being typed the parser has given up
    before it came to the arguments; the first of them is the host."""
    named = (context.params.get(name) for name in ("host", "host_option", "source"))
    return next((str(name) for name in (*named, *context.args[:1]) if name), None)


def _services(book: Mapping[str, Any], host: str | None) -> list[str]:
    known = _hosts(book)
    name = host or os.environ.get("OPSCTL_HOST") or _mapping(book.get("defaults")).get("host")
    if name is None and len(known) == 1:
        (name,) = known
    if name not in known and name in _running_labs():  # it is as the inventory's first lab
        labs = (each for each in known.values() if "lab" in _mapping(each))
        return list(_mapping(_mapping(next(labs, None)).get("services")))
    return list(_mapping(_mapping(known.get(str(name))).get("services")))


def _running_labs() -> list[str]:
    from opsctl.lab import state

    return [record.name for record in state.load_all() if record.supervisor.alive()]


def _patch_sets(context: typer.Context) -> list[tuple[str, str]]:
    """(name, version) of each that says so."""
    named = context.params.get("patches")
    folder = Path(named).expanduser() if named else _beside_inventory(context, "patches")
    manifests = [_yaml(path) for path in sorted(folder.glob("*/*/patchset.yaml"))]
    return [(str(m["name"]), str(m["version"])) for m in manifests if {"name", "version"} <= set(m)]


def _beside_inventory(context: typer.Context, name: str) -> Path:
    from opsctl import resources

    return resources.locate(name, beside=_inventory_file(context).resolve().parent)


def _stems(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.yaml"))


# -- of the host -----------------------------------------------------------------------------------


@_quiet
def complete_generations(context: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Those that the host has recorded, the last one first, each with how it ended."""
    for record in reversed(_asked(context)["generations"]):
        patch_set = record["set"]
        label = f"{patch_set['name']} {patch_set['version']}" if patch_set else "no patch set"
        date = time.strftime("%Y-%m-%d %H:%M", time.localtime(record["created"]))
        yield str(record["number"]), f"{record['status']}, {label}, {date}"


@_quiet
def complete_baselines(context: typer.Context, incomplete: str) -> Iterable[str]:
    """Those on the host."""
    return [str(name) for name in _asked(context)["baselines"]]


def _asked(context: typer.Context) -> dict[str, Any]:
    """{generations, baselines} of the host on the line; an empty one of each where it is silent.

    A host that did not answer is not asked again at the next key.
    """
    import hashlib

    import platformdirs

    inventory = _inventory_file(context).resolve()
    service = context.params.get("service") or ""
    words = [str(inventory), _typed_host(context) or "", str(service)]
    environment = os.environ.get("OPSCTL_HOST", "")
    key = hashlib.sha256("\0".join([*words, environment]).encode()).hexdigest()[:32]
    kept = platformdirs.user_cache_path("opsctl") / "completion" / f"{key}.json"
    found = _kept(kept)
    if found is None:
        found = {"at": time.time(), "generations": [], "baselines": [], **(_ask(words) or {})}
        with contextlib.suppress(OSError):
            _keep(kept, found)
    return found


def _kept(path: Path) -> dict[str, Any] | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        answered = bool(found["generations"] or found["baselines"])
        age = time.time() - found["at"]
        if 0 <= age < (_FRESH if answered else _FRESH_FAILURE):
            return found
    return None


def _keep(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(content), encoding="utf-8")
    draft.replace(path)


def _ask(words: list[str]) -> dict[str, Any] | None:
    """In a process of its own, which takes along whatever it has started when its time is up."""
    import signal
    import subprocess

    with subprocess.Popen(
        [sys.executable, "-c", _ASK, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=_BOUND)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            return None
    found: dict[str, Any] | None = json.loads(said) if process.returncode == 0 else None
    return found


def answer() -> None:
    """The other end of `_ask`: its arguments are the inventory, the host and the service."""
    from opsctl.cli.context import Command
    from opsctl.cli.options import Globals

    inventory, host, service = sys.argv[1:]
    command = Command("completion", Globals(inventory=Path(inventory), quiet=True))
    with command.session(host or None, service or None) as session:
        keys = ("number", "status", "set", "created")
        found = {
            "generations": [
                {key: record[key] for key in keys} for record in session.call("generations")
            ],
            "baselines": session.call("list_baselines"),
        }
    sys.stdout.write(json.dumps(found))
