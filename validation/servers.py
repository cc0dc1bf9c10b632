"""SGLang servers on the GPU host: started together on one card, asked by HTTP."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
GRAPHS = "--cuda-graph-max-bs=8"
NO_GRAPHS = "--disable-cuda-graph"
_up: list[Server] = []


@dataclass
class Server:
    """One server process. `site` is the folder of the patched package, first on PYTHONPATH."""

    name: str
    port: int
    arguments: tuple[str, ...]
    site: Path
    work: Path
    label: str = ""  # tells servers of one name apart in logs and reports
    process: subprocess.Popen[bytes] | None = None
    ready_s: float | None = None

    @property
    def log(self) -> Path:
        return self.work / f"{self.tag}.log"

    @property
    def tag(self) -> str:
        return self.name + self.label

    def start(self) -> None:
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        environment["PYTHONPATH"] = f"{self.site}:{environment.get('PYTHONPATH', '')}"
        argv = [sys.executable, "-m", "sglang.launch_server", f"--port={self.port}"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*argv, *COMMON, *self.arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def dead(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def stop(self) -> None:
        """The whole session by force: SGLang's children hold GPU memory."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def graph_share(self) -> dict[str, int]:
        """Decode lines of the log by whether a CUDA graph ran."""
        lines = [line for line in self.text().splitlines() if "Decode batch" in line]
        return {
            "true": sum("cuda graph: True" in line for line in lines),
            "false": sum("cuda graph: False" in line for line in lines),
        }

    def used_tokens(self) -> int:
        """KV slots neither free nor evictable after the cache is flushed; 0 if all came back."""
        deadline = time.monotonic() + 20
        while True:
            try:
                fetch(self.port, "/flush_cache", {})
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        return int(json.loads(fetch(self.port, "/get_load"))[0]["num_tokens"])


def wait_ready(servers: Sequence[Server], timeout: float) -> None:
    """Until each has said so in its log, or is dead, or `timeout` seconds are over."""
    began = time.monotonic()
    waiting = list(servers)
    while waiting and time.monotonic() - began < timeout:
        for server in list(waiting):
            if "fired up and ready to roll" in server.text():
                server.ready_s = round(time.monotonic() - began, 1)
                waiting.remove(server)
            elif server.dead():
                waiting.remove(server)
        time.sleep(0.5)


@contextlib.contextmanager
def running(servers: Sequence[Server], timeout: float) -> Iterator[None]:
    """All of `servers`, ready or dead, and ended at the end of the block."""
    _up.extend(servers)
    try:
        for server in servers:
            server.start()
            time.sleep(2)  # each sizes its pool by the memory that is free at its start
        wait_ready(servers, timeout)
        yield
    finally:
        stop_all()


def stop_all() -> None:
    """End every server of a block that runs; requests in flight fail at once."""
    while _up:
        _up.pop().stop()


def fetch(port: int, path: str, body: Any = None, timeout: float = 120) -> str:
    """POST `body`, or GET without one, and return the answer's text."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310 - loopback
        text: str = answer.read().decode()
    return text


def generate(
    server: Server, prompt: Any, tokens: int, *, temperature: float = 0, **options: Any
) -> Any:
    """The native /generate of a text, a list of token ids, or a list of texts.

    `ignore_eos` goes with the sampling parameters, other options beside them.
    """
    sampling = {"temperature": temperature, "max_new_tokens": tokens}
    if options.pop("ignore_eos", False):
        sampling["ignore_eos"] = True
    ids = isinstance(prompt, list) and isinstance(prompt[0], int)
    body = {"input_ids" if ids else "text": prompt, "sampling_params": sampling, **options}
    return json.loads(fetch(server.port, "/generate", body))
