"""SGLang servers on the GPU host: started together on one card, asked one at a time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# For every server alike. The pool is capped, so that several fit on one card beside each other.
COMMON = (
    "--host=127.0.0.1",
    "--dtype=bfloat16",
    "--attention-backend=triton",
    "--sampling-backend=pytorch",
    "--grammar-backend=none",
    "--page-size=1",
    "--disable-piecewise-cuda-graph",
    "--disable-overlap-schedule",
    "--max-total-tokens=40000",
    "--max-running-requests=16",
    "--enable-metrics",
    "--log-level=info",
)


@dataclass
class Server:
    """One server process. `site` is the folder of the patched package, first on PYTHONPATH."""

    name: str
    port: int
    arguments: tuple[str, ...]
    site: Path
    work: Path
    process: subprocess.Popen[bytes] | None = None
    ready_s: float | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return self.work / f"{self.name}.log"

    def start(self) -> None:
        environment = dict(os.environ)
        environment["PYTHONPATH"] = f"{self.site}:{environment.get('PYTHONPATH', '')}"
        argv = [sys.executable, "-m", "sglang.launch_server", f"--port={self.port}"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*argv, *COMMON, *self.arguments],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self.notes["argv"] = [*COMMON, *self.arguments]

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def dead(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def stop(self) -> None:
        """SGLang's own drain, then the whole session: its children hold GPU memory."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def wait_ready(servers: list[Server], timeout: float) -> None:
    """Until each has said so in its log, or is dead, or `timeout` seconds are over."""
    began = time.monotonic()
    waiting = list(servers)
    while waiting and time.monotonic() - began < timeout:
        for server in list(waiting):
            if "fired up and ready to roll" in server.text():
                server.ready_s = time.monotonic() - began
                waiting.remove(server)
            elif server.dead():
                waiting.remove(server)
        time.sleep(0.5)


@contextlib.contextmanager
def running(servers: list[Server], timeout: float = 240) -> Iterator[None]:
    """All of `servers`, ready or dead, and ended at the end of the block."""
    try:
        for server in servers:
            server.start()
            time.sleep(2)  # each sizes its pool by the memory that is free at its start
        wait_ready(servers, timeout)
        yield
    finally:
        for server in servers:
            server.stop()


def ask(port: int, path: str, body: dict[str, Any] | None = None, timeout: float = 120) -> Any:
    """POST `body`, or GET without one, and return the JSON answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310 - loopback
        return json.load(answer)


def generate(port: int, prompt: str, tokens: int, **options: Any) -> dict[str, Any]:
    """Greedy native generation; adds `seconds`, by this side's clock."""
    body = {
        "text": prompt,
        "sampling_params": {"temperature": 0, "max_new_tokens": tokens},
        **options,
    }
    began = time.perf_counter()
    answer: dict[str, Any] = ask(port, "/generate", body)
    answer["seconds"] = time.perf_counter() - began
    return answer
