"""The real server, its text under DDTREE against the plain server's, token by token.

    PYTHONPATH=tests/ddtree python tests/ddtree/end_to_end.py --package FOLDER [options]

Runs in an environment that holds SGLang and torch. Starts, one after the other, a plain
server, one with DFLASH and one with DDTREE for each budget, all greedy, on the CPU in fp32
with the lab's shim and tiny pair, and sends each the same prompts at each concurrency; the
later rounds meet the radix cache. Every token must be equal. At the end of a server the KV
pool must be whole (SGLang checks it itself when idle and dies if it is not).

Prints one line a server and exits with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
LAB = REPOSITORY / "opsctl" / "lab"
MODELS = LAB / "models"
POOL = 4096


class Server:
    """A running server: its address and log."""

    def __init__(self, port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.log = log

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=10) as response:
            return str(response.read().decode())

    def post(self, path: str, body: Any = None, timeout: float = 300) -> str:
        request = urllib.request.Request(
            self.url + path,
            data=json.dumps(body or {}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return str(response.read().decode())

    def generate(self, prompt: Sequence[int], tokens: int, **sampling: Any) -> dict[str, Any]:
        params = {"max_new_tokens": tokens, "temperature": 0, **sampling}
        answer = self.post("/generate", {"input_ids": list(prompt), "sampling_params": params})
        return dict(json.loads(answer))

    def used_tokens(self) -> int:
        """KV slots that are neither free nor evictable, after the cache is flushed."""
        deadline = time.monotonic() + 20
        while True:
            try:
                self.post("/flush_cache")
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        return int(json.loads(self.get("/get_load"))[0]["num_tokens"])


def environment(package: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(package), str(LAB / "shim")]),
        "SGLANG_USE_CPU_ENGINE": "1",
        "TRITON_INTERPRET": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }


@contextmanager
def serving(
    package: Path,
    port: int,
    log: Path,
    arguments: Sequence[str],
    pool: int = POOL,
    target: Path = MODELS / "target",
) -> Iterator[Server]:
    """A server with `arguments`, ready; ended by its process group at the end."""
    argv = [sys.executable, "-m", "sglang.launch_server", "--device=cpu", "--dtype=float32"]
    argv += [f"--model-path={target}", "--served-model-name=tiny"]
    argv += ["--host=127.0.0.1", f"--port={port}", "--attention-backend=triton"]
    argv += ["--mem-fraction-static=0.3", f"--max-total-tokens={pool}"]
    argv += ["--max-running-requests=4", "--sleep-on-idle", "--enable-metrics", *arguments]
    if not any("cuda-graph" in argument for argument in arguments):
        argv.append("--disable-cuda-graph")
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv,
            env=environment(package),
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    server = Server(port, log)
    try:
        deadline = time.monotonic() + 180
        while True:
            if process.poll() is not None:
                raise RuntimeError(f"the server ended with {process.returncode}: see {log}")
            try:
                server.get("/health")
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
        yield server
    finally:
        # The session of this process holds all that the server started.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def make_prompts(count: int, seed: int = 7) -> list[list[int]]:
    """Prompts of the lab's corpus, cut anywhere, and as many of random tokens.

    Every target that learnt that corpus has this tokenizer.
    """
    from tokenizers import Tokenizer  # type: ignore[import-not-found, unused-ignore]

    rng = random.Random(seed)
    tokenizer = Tokenizer.from_file(str(MODELS / "target" / "tokenizer.json"))
    corpus = tokenizer.encode((LAB / "tiny" / "corpus.txt").read_text(encoding="utf-8")).ids
    prompts = []
    for number in range(count):
        length = rng.randint(1, 60)
        if number % 2:
            prompts.append([rng.randrange(3, 500) for _ in range(length)])
        else:
            start = rng.randrange(len(corpus) - length)
            prompts.append(list(corpus[start : start + length]))
    return prompts


def run(
    server: Server, prompts: Sequence[Sequence[int]], tokens: int, concurrencies: Sequence[int]
) -> dict[str, Any]:
    """Every prompt at every concurrency; outputs[c][p] are token ids."""
    outputs, steps, produced = [], 0, 0
    for concurrency in concurrencies:
        with ThreadPoolExecutor(concurrency) as pool:
            answers = list(pool.map(lambda prompt: server.generate(prompt, tokens), prompts))
        outputs.append([answer["output_ids"] for answer in answers])
        metas = [answer["meta_info"] for answer in answers]
        steps += sum(meta.get("spec_verify_ct", 0) for meta in metas)
        produced += sum(meta["completion_tokens"] for meta in metas)
    return {
        "outputs": outputs,
        "tokens": produced,
        "verifies": steps,
        "accept_len": round(produced / steps, 3) if steps else None,
        "used_tokens": server.used_tokens(),
        "tracebacks": len(re.findall("Traceback", server.log.read_text(errors="replace"))),
    }


def differing(ours: dict[str, Any], plain: dict[str, Any]) -> int:
    """How many answers are not the plain server's, over all rounds."""
    reference = plain["outputs"][0]
    return sum(
        answer != reference[i] for round_ in ours["outputs"] for i, answer in enumerate(round_)
    )


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--package", type=Path, required=True, help="folder of patched.py")
    parser.add_argument("--target", type=Path, default=MODELS / "target")
    parser.add_argument("--draft", type=Path, default=MODELS / "dflash")
    parser.add_argument("--work", type=Path, required=True, help="folder for logs")
    parser.add_argument("--port", type=int, default=31688)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--budgets", type=numbers, default=[1, 4, 8, 16, 32])
    parser.add_argument("--concurrency", type=numbers, default=[1, 2, 3, 4])
    parser.add_argument("--extra", action="append", default=[], help="more DDTREE arguments")
    parser.add_argument("--pool", type=int, default=POOL, help="KV slots; few make it retract")
    parser.add_argument("--context", type=int, help="context length, for requests that reach it")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)

    draft = f"--speculative-draft-model-path={args.draft}"
    servers: dict[str, list[str]] = {
        "plain": [],
        "dflash": ["--speculative-algorithm=DFLASH", draft],
    }
    for budget in args.budgets:
        servers[f"ddtree-{budget}"] = [
            "--speculative-algorithm=DDTREE",
            draft,
            f"--speculative-ddtree-budget={budget}",
            *args.extra,
        ]
    common = []
    if args.context:
        common = [f"--context-length={args.context}", "--allow-auto-truncate"]
    prompts = make_prompts(args.prompts)
    results: dict[str, dict[str, Any]] = {}
    failed = False
    for name, arguments in servers.items():
        log = args.work / f"{name}.log"
        started = time.monotonic()
        options = [*arguments, *common]
        with serving(args.package, args.port, log, options, args.pool, args.target) as server:
            result = run(server, prompts, args.tokens, args.concurrency)
        results[name] = result
        wrong = differing(result, results["plain"])
        failed |= wrong > 0 or result["used_tokens"] > 0 or result["tracebacks"] > 0
        shown = {key: value for key, value in result.items() if key != "outputs"}
        shown |= {"differing": wrong, "seconds": round(time.monotonic() - started, 1)}
        print(name, json.dumps(shown), flush=True)  # noqa: T201
        result.update(shown)
        if args.json:
            record(args, results)
    return 1 if failed else 0


def record(args: argparse.Namespace, results: dict[str, dict[str, Any]]) -> None:
    """What is known so far, and of what: a long run is of use even if it is cut."""
    options = {name: getattr(args, name) for name in ("prompts", "tokens", "concurrency", "extra")}
    options |= {"pool": args.pool, "context": args.context}
    speculative = args.package / "sglang" / "srt" / "speculative"
    modules = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(speculative.glob("d*.py"))
    }
    servers = {
        name: {key: value for key, value in result.items() if key != "outputs"}
        for name, result in results.items()
    }
    found = {"options": options, "modules": modules, "servers": servers}
    args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
