"""A lab whose service is the light one, the versions of its patch set, and looks at it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

import pytest
import yaml
from light_package import HERE, SITE, UNIT, VERSIONS, archive, contents, hashes, write_sets

from opsctl import lab
from opsctl.inventory.models import Service

SERVICE = "light"
PYTHON = "/opt/light/bin/python"
STATE = f"/var/lib/opsctl/{SERVICE}"
PORT = 30001
BUDGET = 8.0
LOAD = 0.5  # seconds


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
        subprocess.run(argv, input=archive(), check=True, capture_output=True, timeout=60)
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
        subprocess.run(argv, input=archive(), check=True, capture_output=True, timeout=60)
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
