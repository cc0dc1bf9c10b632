"""A lab whose service is the light one, the versions of its patch set, and looks at it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import os
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import IO, Any, TypeVar

import pytest
import yaml

from opsctl import lab
from opsctl.inventory.models import Service

HERE = Path(__file__).resolve().parent
SERVICE = "light"
UNIT = "light.service"
SITE = "/opt/light/lib/python3.11/site-packages"
PYTHON = "/opt/light/bin/python"
STATE = f"/var/lib/opsctl/{SERVICE}"
PORT = 30001
VERSIONS = 6
PARTS = 24
BUDGET = 8.0
LOAD = 0.5  # seconds

_DROP_IN = """\
[Service]
Environment=PYTHONPATH=
TimeoutStopSec=10
RestartSec=1
"""


# -- the package and its patch sets ------------------------------------------------------------


def part(number: int, version: int) -> str:
    """The same size in every version, as a stale bytecode needs to go unnoticed."""
    lines = [f"# Part {number}.", f"VERSION = {version}"]
    return "\n".join([*lines, *(f"LINE_{i} = {i}" for i in range(20))]) + "\n"


def contents(version: int) -> dict[str, str]:
    """path below the package -> text, as the version has it; 0 is the wheel's own.

    Odd versions have a module more than even ones, so that files come and go.
    """
    found = {
        "__init__.py": "",
        "parts/__init__.py": "",
        "launch_server.py": (HERE / "light_server.py").read_text(encoding="utf-8"),
    }
    found |= {f"parts/p{n:02d}.py": part(n, version) for n in range(PARTS)}
    if version % 2:
        found["parts/extra.py"] = part(99, version)
    return found


def hashes(version: int) -> dict[str, str]:
    return {p: hashlib.sha256(t.encode()).hexdigest() for p, t in contents(version).items()}


def write_sets(folder: Path) -> None:
    """`folder`/N is a patches folder whose set `light` makes version N."""
    for version in range(1, VERSIONS):
        root = folder / str(version) / "lightserve-1.0.0" / "light"
        (root / "files/parts").mkdir(parents=True)
        manifest = {
            "name": "light",
            "version": f"{version}.0.0",
            "description": "Another version of the light service",
            "for": {
                "distribution": "lightserve",
                "version": "1.0.0",
                "package": "sglang",
                "wheels": [{"filename": "lightserve-1.0.0-py3-none-any.whl", "sha256": "0" * 64}],
            },
            "restart": True,
        }
        (root / "patchset.yaml").write_text(yaml.safe_dump(manifest), encoding="utf-8")
        (root / "series").write_text("0001-version.patch\n", encoding="utf-8")
        header = "Description: Another version\nAuthor: The tests\nForwarded: not-needed\n"
        header += "Last-Update: 2026-11-29\n---\n"
        hunks = [
            f"--- a/parts/p{n:02d}.py\n+++ b/parts/p{n:02d}.py\n@@ -1,3 +1,3 @@\n # Part {n}.\n"
            f"-VERSION = 0\n+VERSION = {version}\n LINE_0 = 0\n"
            for n in range(PARTS)
        ]
        (root / "0001-version.patch").write_text(header + "".join(hunks), encoding="utf-8")
        if version % 2:
            extra = contents(version)["parts/extra.py"]
            (root / "files/parts/extra.py").write_text(extra, encoding="utf-8")


def _archive() -> bytes:
    """The package with its dist-info, the drop-in, and what the tests use, from the root on."""
    files = {f"{SITE}/sglang/{path}": text for path, text in contents(0).items()}
    rows = []
    for path, text in contents(0).items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
        rows.append(f"sglang/{path},sha256={digest.rstrip(b'=').decode()},{len(text)}")
    info = f"{SITE}/lightserve-1.0.0.dist-info"
    files[f"{info}/METADATA"] = "Metadata-Version: 2.1\nName: lightserve\nVersion: 1.0.0\n"
    files[f"{info}/INSTALLER"] = "pip\n"
    files[f"{info}/RECORD"] = "\n".join(rows) + "\n"
    files[f"/etc/systemd/system/{UNIT}.d/20-light.conf"] = _DROP_IN
    for name in ("fault_look.py", "fault_trap.py"):
        files[f"/opt/faults/{name}"] = (HERE / name).read_text(encoding="utf-8")
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode, entry.mtime = len(text.encode()), 0o644, int(time.time())
            archive.addfile(entry, BytesIO(text.encode()))
    return buffer.getvalue()


# -- the lab -----------------------------------------------------------------------------------


@dataclass
class Client:
    """An opsctl under way. `halted` is set when it has reached the boundary that it was given."""

    process: subprocess.Popen[str]
    halted: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    stderr: list[str] = field(default_factory=list)
    stdout: str = ""

    def __post_init__(self) -> None:
        self._threads = [
            threading.Thread(target=function, daemon=True)
            for function in (self._read_stderr, self._read_stdout)
        ]
        for thread in self._threads:
            thread.start()

    def _read_stderr(self) -> None:
        stream: IO[str] | None = self.process.stderr
        assert stream is not None
        for line in stream:
            self.stderr.append(line.rstrip())
            if line.strip() == "@halt":
                self.halted.set()
        self.ended.set()
        self.halted.set()

    def _read_stdout(self) -> None:
        assert self.process.stdout is not None
        self.stdout = self.process.stdout.read()

    def go_on(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.write("\n")
            self.process.stdin.flush()

    def finish(self, timeout: float) -> int:
        """Its exit status; negative for a signal. One that outlives `timeout` is killed: -99."""
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            status = -99
        for thread in self._threads:
            thread.join(5)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        return status

    @property
    def report(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self.stdout)
        except ValueError:
            return None
        return found


class LightLab:
    """A running lab of the light service."""

    name_of_service, unit, state, site = SERVICE, UNIT, STATE, SITE
    slower = 0.0  # seconds more to settle in than the light service takes
    beside = ("lightserve-1.0.0.dist-info", "sglang")

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.sets = folder / "sets"
        if not self.sets.exists():
            write_sets(self.sets)
        self.address = ""
        # Generations that stayed although a full disk kept their record back.
        self.unrecorded: set[str] = set()
        self.service = {
            "unit": UNIT,
            "python": PYTHON,
            "distribution": "lightserve",
            "port": PORT,
            "model": {"path": "/opt/models/target", "served_name": "tiny"},
            "load": {"budget": BUDGET, "stall": BUDGET},
            "patch_set": "light",
            "smoke": {"max_tokens": 32, "speculative": False, "timeout": "10s"},
        }

    def up(self) -> None:
        """A new lab, its service serving the wheel's own version."""
        lab.down(self.name)
        service = Service.model_validate(self.service)
        service._name = SERVICE
        self.address = lab.up(self.name, service, start=False).address
        self.inside("python3 -m venv --without-pip /opt/light && mkdir -p /opt/faults")
        argv = lab.ssh_argv(self.name, "tar -x -C / --no-same-owner -f -")
        subprocess.run(argv, input=_archive(), check=True, capture_output=True, timeout=60)
        self.set_load(LOAD)
        self.inside(f"systemctl daemon-reload; systemctl -q enable --now {UNIT}")
        self.await_serving(20)

    def reset(self) -> None:
        """As new, without a new boot: after a failure, so that the next run has a fair start."""
        self.inside(
            f"systemctl stop {UNIT} opsctl-guard-{SERVICE}.service; rm -rf {STATE} {SITE}/sglang "
            f"{SITE}/.opsctl-* /etc/systemd/system/opsctl-guard-{SERVICE}.service"
        )
        argv = lab.ssh_argv(self.name, "tar -x -C / --no-same-owner -f -")
        subprocess.run(argv, input=_archive(), check=True, capture_output=True, timeout=60)
        self.inside(
            f"systemctl daemon-reload; systemctl reset-failed {UNIT}; systemctl start {UNIT}"
        )
        self.await_serving(20)

    def down(self) -> None:
        lab.down(self.name)

    def inside(self, command: str, *, check: bool = True, timeout: float = 60) -> str:
        argv = lab.ssh_argv(self.name, command)
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout)
        if check and done.returncode != 0:
            raise RuntimeError(f"{command}: {done.stderr}")
        return done.stdout

    def inside_soon(self, command: str) -> None:
        """Apart from any SSH session, so that it may end them all."""
        self.inside(f"systemd-run --quiet --collect sh -c '{command}'")

    def set_load(self, seconds: float) -> None:
        self.inside(f"echo {seconds} > /etc/light-load-seconds")

    # -- opsctl --------------------------------------------------------------------------------

    def start(self, *words: str, port: int | None = None, **settings: Any) -> Client:
        """opsctl, halting as `fault_client` says, through a proxy at `port` if one is named."""
        services = {self.name_of_service: dict(self.service)}
        host: dict[str, Any] = {"services": services, "lab": self.name}
        if port is not None:
            found = lab.connection(self.name)
            known = self.folder / "known_hosts"
            key = Path(str(found.known_hosts)).read_text(encoding="utf-8").split(maxsplit=1)[1]
            known.write_text(f"[127.0.0.1]:{port} {key}", encoding="utf-8")
            del host["lab"]
            host["ssh"] = {
                "address": "127.0.0.1",
                "user": "root",
                "port": port,
                "identity_file": str(found.identity_file),
                "known_hosts": str(known),
            }
            services[self.name_of_service]["listen"] = self.address
        content = {"version": 1, "defaults": {"host": "light"}, "hosts": {"light": host}}
        path = self.folder / "inventory.yaml"
        draft = self.folder / f"inventory.{time.monotonic_ns()}"
        draft.write_text(yaml.safe_dump(content), encoding="utf-8")
        draft.replace(path)
        client = [sys.executable, str(HERE / "fault_client.py"), json.dumps(settings)]
        root = str(HERE.parents[1])
        cut = words.index("--") if "--" in words else len(words)
        words = (*words[:cut], "--json", *words[cut:])
        process = subprocess.Popen(
            [*client, "--inventory", str(path), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": root, "PYTHONUNBUFFERED": "1"},
        )
        return Client(process)

    def deploy(self, version: int, **how: Any) -> Client:
        return self.start("deploy", "--yes", "--patches", str(self.sets / str(version)), **how)

    # -- looks ---------------------------------------------------------------------------------

    def served(self, timeout: float = 0.5) -> dict[str, int] | None:
        """module -> version as imported by the server that answers now; None if none does."""
        connection = http.client.HTTPConnection(self.address, PORT, timeout=timeout)
        try:
            connection.request("GET", "/versions")
            found: dict[str, int] = json.loads(connection.getresponse().read())
            return found
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    def await_serving(self, timeout: float) -> int:
        """The version that is served once one is."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            versions = self.served()
            if versions is not None:
                return self.whole(versions)
            time.sleep(0.1)
        raise RuntimeError("the light service does not answer")

    def whole(self, versions: dict[str, int]) -> int:
        """See `whole`."""
        return whole(versions)

    def seen(self, versions: dict[str, int]) -> int:
        """What a watch that asks all the time notes."""
        return self.whole(versions)

    def version_of(self, files: dict[str, str]) -> int | None:
        """Which version files with these hashes are."""
        return next((v for v in range(VERSIONS) if files == hashes(v)), None)

    def look(self) -> dict[str, Any]:
        words = f"python3 /opt/faults/fault_look.py {self.state} {self.site} {self.unit}"
        found: dict[str, Any] = json.loads(self.inside(words))
        return found


Kind = TypeVar("Kind", bound=LightLab)


@contextlib.contextmanager
def running(kind: type[Kind], name: str, folders: pytest.TempPathFactory) -> Iterator[Kind]:
    """A new one, gone afterwards. Two runs of the tests on one machine have labs of their own, by
    OPSCTL_TEST_LAB."""
    found = kind(f"{os.environ.get('OPSCTL_TEST_LAB', 'opsctl-it')}-{name}", folders.mktemp(name))
    found.up()
    try:
        yield found
    finally:
        found.down()


def whole(versions: dict[str, int]) -> int:
    """The one version of a server's modules.

    Raises:
        Mixture: there are several, or modules that the version does not have.
    """
    kinds = set(versions.values())
    if len(kinds) != 1:
        raise Mixture(f"a mixture is served: {versions}")
    (version,) = kinds
    wanted = {p[len("parts/") : -3] for p in contents(version) if p.startswith("parts/")}
    if set(versions) != wanted - {"__init__"}:
        raise Mixture(f"version {version} is served with the modules {sorted(versions)}")
    return version


class Mixture(AssertionError):
    """Modules of two versions in one process."""


class Watch:
    """Asks the service all the time: when it answered, and with which version."""

    def __init__(self, light: LightLab) -> None:
        self._light = light
        self._over = threading.Event()
        self.began = time.monotonic()
        self.changes: list[tuple[float, int | str | None]] = []  # at, version, None for silence
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.1):
            versions = self._light.served()
            seen: int | str | None = None
            if versions is not None:
                try:
                    seen = self._light.seen(versions)
                except Mixture as error:
                    seen = str(error)
            if not self.changes or self.changes[-1][1] != seen:
                self.changes.append((time.monotonic(), seen))

    def stop(self) -> None:
        self._over.set()
        self._thread.join(5)

    @property
    def mixtures(self) -> list[str]:
        return [seen for _, seen in self.changes if isinstance(seen, str)]

    def healthy_after(self, moment: float) -> float:
        """Seconds from `moment` until it served for good."""
        silent = [i for i, (at, seen) in enumerate(self.changes) if not isinstance(seen, int)]
        last = silent[-1] if silent else -1
        later = self.changes[last + 1 :]
        return max(0.0, later[0][0] - moment) if later else float("inf")


# -- what a settled host must be ---------------------------------------------------------------


def faults_of(
    light: LightLab, found: dict[str, Any], served: dict[str, int] | None
) -> tuple[int | None, list[str]]:
    """The version that disk, state and server agree on, and everything that is wrong."""
    wrong: list[str] = []
    version = light.version_of(found["files"])
    if version is None:
        wrong.append(f"the files are of no one version: {_odd(found['files'])}")
    try:
        if served is None:
            wrong.append("nothing is served")
        elif light.whole(served) != version:
            wrong.append(f"version {light.whole(served)} is served, {version} is on disk")
    except Mixture as error:
        wrong.append(str(error))
    wrong += _state_faults(found, version, light.unrecorded)
    if found["beside"] != sorted(light.beside):
        odd = set(found["beside"]) ^ set(light.beside)
        wrong.append(f"beside the package there are {odd}")
    if (found["unit"].get("ActiveState"), found["unit"].get("SubState")) != ("active", "running"):
        wrong.append(f"the unit is {found['unit']}")
    return version, wrong


def _odd(files: dict[str, str]) -> str:
    known = {d: (p, v) for v in range(VERSIONS) for p, d in hashes(v).items()}
    kinds: dict[str, int] = {}
    for path, digest in files.items():
        name, version = known.get(digest, ("", None))
        key = str(version) if name == path else f"{path}?"
        kinds[key] = kinds.get(key, 0) + 1
    return str(kinds)


_STATE_FILES = frozenset(
    {"lock", "current", "loads.jsonl", "audit.jsonl", "guard.py", "guard-report.json"}
)


def _state_faults(found: dict[str, Any], version: int | None, unrecorded: set[str]) -> list[str]:
    wrong = []
    for path in found["state"]:
        folder, _, name = path.rpartition("/")
        kept = folder == "generations" and name.endswith(".json")
        if path not in _STATE_FILES and not kept:
            wrong.append(f"in the state folder there is {path}")
    if found["locked"]:
        wrong.append("the lock is held")
    return wrong + _current_faults(found, version, unrecorded) + _store_faults(found)


def _current_faults(found: dict[str, Any], version: int | None, unrecorded: set[str]) -> list[str]:
    generations, current = found["generations"], (found["current"] or "").strip()
    if not current:
        if version == 0 and not set(generations) - {"0"}:
            return []
        return [f"no current generation, {sorted(generations)} are recorded"]
    if current not in generations:
        return [f"current names {current!r}"]
    wrong = []
    generation = generations[current]
    odd = [p for p, f in generation["files"].items() if found["files"].get(p) != f["sha256"]]
    if odd:
        wrong.append(f"not as generation {current} has them: {odd}")
    if generation["status"] in ("staged", "abandoned") and current not in unrecorded:
        wrong.append(f"generation {current} in place is {generation['status']}")
    return wrong


def _store_faults(found: dict[str, Any]) -> list[str]:
    objects = found["objects"]
    wrong = [f"a stray or damaged content: {n}" for n, digest in objects.items() if n != digest]
    for number, generation in found["generations"].items():
        named = {d for file in generation["files"].values() for d in file.values() if d}
        wrong += [f"generation {number} lost {digest}" for digest in named - set(objects)]
    return wrong
