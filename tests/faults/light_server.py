"""Stands in for SGLang where the model plays no part: `sglang.launch_server` of a small package.

Standard library only, as it runs in a virtual environment of its own in the lab. It imports the
modules that a patch set changes one after the other, over its load time, so that files of two
versions on disk meanwhile show up as a mixture at `/versions`. `light_lab` installs it.
"""

from __future__ import annotations

import contextlib
import http.server
import importlib
import json
import pkgutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

PARTS = "sglang.parts"
READY = "The server is fired up and ready to roll!"
WORDS = ("choose", "a", "pivot", "split", "the", "items", "sort", "each", "half", "join", "them")


def say(text: str) -> None:
    """A line as SGLang's logger writes it."""
    sys.stderr.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}\n")
    sys.stderr.flush()


def load(seconds: float) -> dict[str, int]:
    """Import every part over so many seconds; module -> the version that it says it is."""
    parts = importlib.import_module(PARTS)
    names = sorted(module.name for module in pkgutil.iter_modules(parts.__path__))
    versions = {}
    say("Load weight begin. avail mem=1.00 GB")
    for name in names:
        time.sleep(seconds / max(len(names), 1))
        versions[name] = int(importlib.import_module(f"{PARTS}.{name}").VERSION)
    say("Load weight end. elapsed=0.10 s, type=Light, avail mem=1.00 GB, mem usage=0.00 GB.")
    return versions


class Handler(http.server.BaseHTTPRequestHandler):
    """SGLang's endpoints, as far as a rollout asks them, and `/versions`."""

    versions: dict[str, int]
    model: str

    def do_GET(self) -> None:
        answers: dict[str, Any] = {
            "/health": {},
            "/versions": self.versions,
            "/v1/models": {"data": [{"id": self.model}]},
            "/server_info": {
                "version": "0.5.12.post1",
                "speculative_algorithm": None,
                "max_total_num_tokens": 1000,
            },
            "/get_load": [self._load()],
        }
        self._answer(answers.get(self.path))

    def _load(self) -> dict[str, int]:
        """Idle, unless a test says otherwise."""
        with contextlib.suppress(OSError):
            busy: dict[str, int] = json.loads(Path("/run/light-load").read_text(encoding="utf-8"))
            return busy
        names = ("num_reqs", "num_waiting_reqs", "num_tokens", "num_pending_tokens")
        return dict.fromkeys(names, 0)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/say":  # lines for its journal, in place of work that would write them
            for text in body:
                say(text)
            self._answer(len(body))
            return
        settings = body.get("sampling_params", {})
        count = int(body.get("max_tokens") or settings.get("max_new_tokens") or 16)
        # Words in an order that never loops: smoke tells a degenerate text by its end.
        text = " ".join(f"{WORDS[i * i % len(WORDS)]}{i}" for i in range(count))
        if self.path == "/v1/chat/completions":
            self._answer(
                {
                    "choices": [{"message": {"content": text}, "finish_reason": "length"}],
                    "usage": {"completion_tokens": count, "prompt_tokens": 8},
                }
            )
        elif self.path == "/generate":
            meta = {
                "finish_reason": {"type": "length", "length": count},
                "completion_tokens": count,
                "prompt_tokens": 8,
            }
            self._answer({"text": text, "output_ids": list(range(count)), "meta_info": meta})
        else:
            self._answer(None)

    def _answer(self, content: Any) -> None:
        data = json.dumps(content).encode()
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's own name
        pass


def share_memory() -> None:
    """SGLang's processes pass each other messages through shared memory; a start that finds none
    dies of it."""
    path = Path("/dev/shm") / f"light-{time.monotonic_ns()}"
    try:
        path.write_bytes(bytes(4 << 20))
    finally:
        path.unlink(missing_ok=True)


def _option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    seconds = 0.5
    with contextlib.suppress(OSError, ValueError):
        seconds = float(Path("/etc/light-load-seconds").read_text(encoding="utf-8"))
    share_memory()
    Handler.versions = load(seconds)
    Handler.model = _option("--served-model-name")
    address = (_option("--host"), int(_option("--port")))
    with http.server.ThreadingHTTPServer(address, Handler) as server:
        say(f"Uvicorn running on http://{address[0]}:{address[1]} (Press CTRL+C to quit)")
        say(READY)
        server.serve_forever()


if __name__ == "__main__":
    main()
