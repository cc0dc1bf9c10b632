"""Which units of this host run SGLang, and all that an inventory says of each.

Secrets stay here: the value of an API key, of a password and of a variable named like one is
replaced before anything is sent.
"""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import re
import time
from typing import Any, Dict, Iterable, List, Optional, Tuple

from . import commandline, journal, plain, probe
from . import install as installed
from .commandline import Launch
from .errors import HostFault
from .hidden import hide, hide_in, named
from .install import read_bytes
from .state import State
from .tools import run
from .unitsettings import Settings

PACKAGE = "sglang"

_PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,InvocationID,FragmentPath,DropInPaths,UnitFileState,User,"
    "WorkingDirectory"
)
_CONTAINER = re.compile(r"docker|containerd|libpod|podman|kubepods")
_LOADS = 5  # of the last starts

# Which distribution the package is of, by the files that each one lists: a fork has its own name.
_OWNER = """
import importlib.metadata as m, json, sys
found = []
for d in m.distributions():
    if any(str(f) == sys.argv[1] + "/__init__.py" for f in d.files or ()):
        found.append(d.metadata["Name"])
print("\\n" + json.dumps(sorted(set(found))))
"""

Facts = Dict[str, Any]
Started = Dict[str, List[Tuple[int, List[str]]]]  # unit -> its processes that launch a server


def discover(ready: str, state_dir: str) -> Facts:
    """{host, units, looked_at, unclear, containers, user_units, processes}.

    `units` has one entry a unit that launches SGLang (see `_unit`); `unclear` names those that
    mention it and whose command could not be understood. `ready` is what a server logs when it
    serves; `state_dir` holds the records of opsctl.
    """
    names = _names()
    started, outside = _processes()
    facts: Facts = {
        "host": probe.machine(),
        "units": [],
        "looked_at": len(names),
        "unclear": [],
        "containers": [],
        "user_units": _user_units(),
        "processes": outside,
    }
    for properties in _show(names):
        files = [str(properties.get("FragmentPath", "")), *properties["DropInPaths"].split()]
        texts = [(path, _read(path)) for path in files if path]
        found = _unit(properties, texts, started.get(properties["Id"], []))
        if found is not None:
            found["loads"] = _loads(properties["Id"], ready)
            found["set"] = _recorded(state_dir, properties["Id"])
            facts["units"].append(found)
        elif any(PACKAGE in word for words in _commands(texts) for word in words):
            docker = any(commandline.in_container(words) for words in _commands(texts))
            facts["containers" if docker else "unclear"].append(properties["Id"])
    return facts


def _names() -> List[str]:
    """Every service that systemd has or could load, instances of templates included."""
    names = set()
    for verb in ("list-unit-files", "list-units"):
        argv = [
            "systemctl",
            verb,
            "--type=service",
            "--all",
            "--plain",
            "--no-legend",
            "--no-pager",
        ]
        for line in run(argv).stdout.splitlines():
            names.add(line.split()[0] if line.split() else "")
    names.update(
        os.path.basename(path) for path in glob.glob("/etc/systemd/system/*.wants/*@*.service")
    )
    return sorted(
        name
        for name in names
        if name.endswith(".service")
        and not name.endswith("@.service")
        # Our own, which names the service that it guards.
        and not name.startswith("opsctl-guard-")
    )


def _show(names: List[str]) -> Iterable[Dict[str, str]]:
    if not names:
        return
    argv = ["systemctl", "show", "--no-pager", "--property=" + _PROPERTIES, "--", *names]
    seen = set()
    for block in run(argv, timeout=60).stdout.split("\n\n"):
        shown = dict(line.partition("=")[::2] for line in block.splitlines())
        # An alias is shown under the name of what it stands for.
        if shown.get("LoadState") == "loaded" and shown["Id"] not in seen:
            seen.add(shown["Id"])
            yield shown


def _processes() -> "Tuple[Started, List[Facts]]":
    """The servers that run: those of system services by unit, and all others."""
    started: Started = {}
    outside = []
    for pid in sorted(probe.pids()):
        words = probe.argv(pid)
        # A server's children are forked with its own words, and have it for a parent.
        if commandline.find(words) is None or commandline.find(probe.argv(_parent(pid))):
            continue
        groups = probe.text("/proc/%d/cgroup" % pid)
        unit = re.search(r"/([^/\n]+\.service)(?:/[^\n]*)?$", groups, re.MULTILINE)
        if _CONTAINER.search(groups):
            where = "in a container"
        elif unit and probe.in_a_service(pid):
            started.setdefault(unit.group(1), []).append((pid, words))
            continue
        else:
            where = "of the user unit " + unit.group(1) if unit else "outside any unit"
            if unit and unit.group(1).startswith("user@"):
                where = "of a user's own systemd"
        command = hide_in(" ".join(words))[:200]
        outside.append({"pid": pid, "command": command, "where": where})
    return started, outside


def _parent(pid: int) -> int:
    fields = probe.text("/proc/%d/stat" % pid).rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def _user_units() -> List[str]:
    folders = ["/etc/systemd/user"]
    for entry in pwd.getpwall():
        folders += [
            entry.pw_dir + "/.config/systemd/user",
            entry.pw_dir + "/.local/share/systemd/user",
        ]
    paths = {path for folder in folders for path in glob.glob(folder + "/*.service")}
    return sorted(path for path in paths if PACKAGE in _read(path))


def _read(path: str) -> str:
    try:
        return (read_bytes(path) or b"").decode("utf-8", "replace")
    except OSError:
        return ""


def _commands(texts: "List[Tuple[str, str]]") -> List[List[str]]:
    lines = [line for _, text in texts for line in plain.assignments(text)]
    return [line.partition("=")[2].split() for line in lines if line.startswith("ExecStart=")]


def _unit(
    properties: Dict[str, str], texts: "List[Tuple[str, str]]", processes: "List[Any]"
) -> Optional[Facts]:
    """One unit, None if it launches no server.

    `arguments` are what its files say, less what a drop-in gives through `$OPSCTL_EXTRA_ARGS`
    (the template's own way); `running` what the process that runs has, None where none does.
    """
    own = Settings(properties, texts[:1])
    every = Settings(properties, texts)
    spelled, full = _launch(own), _launch(every)
    running = _running(processes)
    known = running or full
    if known is None:
        return None
    owned = spelled or full
    spelled_out = owned is not None and not any("$" in word for word in owned.arguments)
    effective = known.arguments
    return {
        **{key: properties.get(key, "") for key in _PROPERTIES.split(",")},
        "arguments": hide(owned.arguments) if owned is not None and spelled_out else None,
        "running": hide(running.arguments) if running is not None else None,
        "effective": hide(effective),
        "via": (full or known).via,
        "template": own.template,
        "environment": own.environment(used=" ".join(own.commands)),
        "secret_variables": own.secret_variables,
        "environment_files": own.files,
        "settings": own.settings,
        "secrets": named(effective, every.text + _read((full or known).via)),
        "model": _model(effective, known.folder, every.variables, properties.get("User", "")),
        **_install(known.python),
    }


def _launch(files: Settings) -> Optional[Launch]:
    for command in files.commands:
        with contextlib.suppress(HostFault):  # quotes that do not end
            launch, _ = commandline.of_unit(
                command, dict(files.variables), files.folder, files.specifiers
            )
            if launch is not None:
                return launch
    return None


def _running(processes: "List[Tuple[int, List[str]]]") -> Optional[Launch]:
    for pid, words in processes:
        environment = probe.text("/proc/%d/environ" % pid).split("\0")
        variables = dict(entry.split("=", 1) for entry in environment if "=" in entry)
        try:
            folder = os.readlink("/proc/%d/cwd" % pid)
        except OSError:
            folder = "/"
        return commandline.resolve(words, commandline.Place(variables, folder))
    return None


def _model(
    arguments: List[str], folder: str, variables: Dict[str, str], user: str
) -> Optional[str]:
    """The absolute path of the model: of a repository's name that of its copy in the cache."""
    given = option(arguments, "--model-path") or option(arguments, "--model")
    if not given or "$" in given:
        return None
    whole = os.path.normpath(os.path.join(folder, given))
    if os.path.isabs(given) or os.path.exists(whole):
        return whole
    try:
        home = pwd.getpwnam(user or "root").pw_dir
    except KeyError:
        home = "/root"
    base = variables.get("HF_HOME") or os.path.join(home, ".cache/huggingface")
    hub = variables.get("HF_HUB_CACHE") or os.path.join(base, "hub")
    copy = os.path.join(hub, "models--" + given.replace("/", "--"))
    snapshot = os.path.join(copy, "snapshots", _read(os.path.join(copy, "refs/main")).strip())
    return snapshot if os.path.isfile(os.path.join(snapshot, "config.json")) else None


def option(arguments: List[str], name: str) -> Optional[str]:
    """The value of an option; the last one counts, as argparse has it."""
    value = None
    for i, word in enumerate(arguments):
        if word.startswith(name + "="):
            value = word[len(name) + 1 :]
        elif word == name and i + 1 < len(arguments):
            value = arguments[i + 1]
    return value


def _install(python: Optional[str]) -> Facts:
    """The Python, and SGLang's distribution in it."""
    facts: Facts = {"python": python, "distribution": PACKAGE, "install": None}
    if python is None:
        return facts
    try:
        facts["install"] = installed.locate(python, PACKAGE, PACKAGE)
    except HostFault as fault:
        facts["install"] = {"fault": fault.to_json()}
        if fault.code == "distribution_missing":
            _fork(python, facts)
    return facts


def _fork(python: str, facts: Facts) -> None:
    """A distribution of another name that has the package."""
    with contextlib.suppress(HostFault):
        owners = installed.ask(python, _OWNER, [PACKAGE])
        if owners:
            facts["install"] = installed.locate(python, owners[0], PACKAGE)
            facts["distribution"] = owners[0]


def _loads(unit: str, ready: str) -> List[Facts]:
    """{at, seconds} of the last loads in the journal, oldest first: from a start to `ready`."""
    found = []
    deadline = time.monotonic() + 60
    try:
        for entry in journal.query(unit, lines=_LOADS, grep=re.escape(ready)):
            invocation = entry.get("_SYSTEMD_INVOCATION_ID")
            began = invocation and journal.seconds_of(journal.first(unit, invocation))
            ended = journal.seconds_of(entry)
            if began and ended and time.monotonic() < deadline:
                found.append({"at": ended, "seconds": round(ended - began, 1)})
    except HostFault:  # no journal: then nothing was seen
        return []
    return found


def _recorded(state_dir: str, unit: str) -> Optional[Facts]:
    """The patch set that opsctl has put in place for a service of the unit's name."""
    with contextlib.suppress(HostFault):
        generation = State(state_dir, unit[: -len(".service")]).current()
        return generation["set"] if generation else None
    return None
