"""What the stages share: the arguments, the clock, servers by short names, the prompts."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servers import GRAPHS, NO_GRAPHS, Server, running

HERE = Path(__file__).resolve().parent
CHAT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)
Found = dict[str, Any]  # what a stage has found, filled in as it goes
LOG_TAIL = 25  # lines of a server's log that go into the result where it did not come up


def prompts(limit: int | None = None) -> list[tuple[str, str]]:
    """(kind, prompt) pairs, the kinds in turns."""
    kinds = json.loads((HERE / "prompts.json").read_text(encoding="utf-8"))
    pairs = [
        (kind, CHAT.format(texts[i]))
        for i in range(max(map(len, kinds.values())))
        for kind, texts in kinds.items()
        if i < len(texts)
    ]
    return pairs[:limit]


@dataclass(frozen=True)
class Pair:
    """A target and its drafter, with the flags that servers of this pair need."""

    target: Path
    draft: Path
    flags: tuple[str, ...] = ("--mem-fraction-static=0.2",)


class Lab:
    """One run of the validation."""

    def __init__(self, arguments: argparse.Namespace, keep: Callable[[], None]) -> None:
        self.arguments = arguments
        self.work: Path = arguments.work
        self.keep = keep  # writes the result file with all that is found so far
        self.small = Pair(arguments.target, arguments.draft)
        self._began = time.monotonic()
        self._port: int = arguments.port

    def say(self, text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - self._began:6.1f} s  {text}\n")
        sys.stdout.flush()

    def server(
        self,
        spec: str,
        pair: Pair,
        *flags: str,
        label: str = "",
        site: Path | None = None,
    ) -> Server:
        """`spec` is plain, dflash, or a budget of DDTREE; `-eager` after it means no graphs."""
        mode, _, eager = spec.partition("-")
        options = [f"--model-path={pair.target}", *pair.flags]
        name = mode
        if mode != "plain":
            algorithm = "DFLASH" if mode == "dflash" else "DDTREE"
            options.append(f"--speculative-algorithm={algorithm}")
            options.append(f"--speculative-draft-model-path={pair.draft}")
            if algorithm == "DDTREE":
                options.append(f"--speculative-ddtree-budget={int(mode)}")
                name = f"ddtree-{mode}"
        options.append(NO_GRAPHS if eager else GRAPHS)
        self._port += 7
        name = f"{name}-{eager}" if eager else name
        return Server(
            name,
            self._port,
            (*options, *flags, *self.arguments.flag),
            site or self.arguments.whole,
            self.work,
            label,
        )

    @contextlib.contextmanager
    def up(self, servers: Sequence[Server], found: Found) -> Iterator[list[Server]]:
        """Those of `servers` that came up; of the others `found` gets the end of the log."""
        self.say(f"starting {', '.join(server.tag for server in servers)}")
        with running(servers, self.arguments.start_timeout):
            alive = [server for server in servers if server.ready_s is not None]
            found.setdefault("ready_s", {}).update({s.tag: s.ready_s for s in alive})
            for server in servers:
                if server.ready_s is None:
                    tail = server.text().splitlines()[-LOG_TAIL:]
                    found.setdefault("failed", {})[server.tag] = tail
                    self.say(f"{server.tag} did not come up: {tail[-1:]}")
            self.say(f"{len(alive)} of {len(servers)} servers are up")
            self.keep()
            yield alive


def pick(servers: Sequence[Server], name: str) -> Server:
    """The server of that name; without it the stage means nothing."""
    for server in servers:
        if server.name == name:
            return server
    raise RuntimeError(f"the server {name} did not come up")
