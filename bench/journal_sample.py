"""A journal as `journalctl -o json` prints it, made from a seed: the same bytes each time.

The mixture is that of a server under load, rank 0 printing (SGLang 0.5.12.post1): three decode
lines to two access lines and a prefill, a health check a second, a warning every few thousand
lines, a restart's load at the beginning and a crash in the verify step at the end.
Fields are those of an entry of a system service on systemd 252, all of them or those that
opsctl asks its host for.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final, Literal

Fields = Literal["all", "shipped"]

_BEGAN: Final = 1_795_900_000.0  # Unix time in seconds, any
_PID: Final = 4130
_INVOCATION: Final = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
_BOOT: Final = "5c0ffee05c0ffee05c0ffee05c0ffee0"
_ALL: Final = {
    "_SELINUX_CONTEXT": "unconfined\n",
    "_UID": "998",
    "_GID": "998",
    "_COMM": "python3",
    "_EXE": "/opt/sglang/bin/python3.11",
    "_CMDLINE": "/opt/sglang/bin/python3 -m sglang.launch_server --model-path /models/target"
    " --speculative-algorithm DFLASH --speculative-draft-model-path /models/draft --tp-size 8"
    " --mem-fraction-static 0.8 --watchdog-timeout 600 --host 127.0.0.1 --port 30000",
    "_CAP_EFFECTIVE": "0",
    "_SYSTEMD_CGROUP": "/system.slice/sglang.service",
    "_SYSTEMD_UNIT": "sglang.service",
    "_SYSTEMD_SLICE": "system.slice",
    "_MACHINE_ID": "00112233445566778899aabbccddeeff",
    "_HOSTNAME": "gpu-a",
    "_TRANSPORT": "stdout",
    "_STREAM_ID": "aabbccddeeff00112233445566778899",
    "_RUNTIME_SCOPE": "system",
    "SYSLOG_FACILITY": "3",
}
_LOAD: Final = (
    "server_args=ServerArgs(model_path='/models/target', watchdog_timeout=600, crash_dump=None)",
    "Init torch distributed begin.",
    "Init torch distributed ends. elapsed=4.10 s, mem usage=1.10 GB",
    "Load weight begin. avail mem=138.10 GB",
    "Load weight end. elapsed=605.00 s, type=KimiK25ForConditionalGeneration, avail mem=40.00 GB,"
    " mem usage=98.00 GB.",
    "KV Cache is allocated. #tokens: 421376, K size: 12.85 GB, V size: 12.85 GB",
    "Capture cuda graph begin. This can take up to several minutes. avail mem=12.50 GB",
    "Capture cuda graph end. Time elapsed: 41.20 s. mem usage=1.10 GB. avail mem=11.40 GB.",
    "The server is fired up and ready to roll!",
)
_TRACEBACK: Final = (
    'Scheduler hit an exception: Traceback (most recent call last):\n  File "/opt/sglang/lib/'
    'python3.11/site-packages/sglang/srt/managers/scheduler.py", line 4030, in run_scheduler\n'
    '    scheduler.event_loop_normal()\n  File "/opt/sglang/lib/python3.11/site-packages/sglang/srt'
    '/speculative/dflash_worker.py", line 1190, in forward_batch_generation\n    out = self.verify('
    "batch)\nRuntimeError: The size of tensor a (8) must match the size of tensor b (33) at "
    "non-singleton dimension 0"
)
_ENDS: Final = (
    "SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
    "Subprocess scheduler_0 (pid=4190) crashed with exit code -6",
)


def write(stream: BinaryIO, size: int, seed: int = 1, fields: Fields = "all") -> int:
    """Write at least `size` bytes of journal; returns the number of lines."""
    written = lines = 0
    put = _form(fields)
    for message in _messages(random.Random(seed)):  # noqa: S311
        written += stream.write(put(lines, message))
        lines += 1
        if written >= size:
            break
    for text in (*_TRACEBACK.split("\n"), *_ENDS):
        prefix = "" if text.startswith((" ", "RuntimeError")) else _stamp(lines) + " TP0] "
        stream.write(put(lines, prefix + text))
        lines += 1
    return lines


def _form(fields: Fields) -> Callable[[int, str], bytes]:
    """An entry by its number and message: 500 a second, in the order of journalctl's own fields."""
    more = {"PRIORITY": "6", "SYSLOG_IDENTIFIER": "sglang", "_PID": str(_PID)}
    more |= {"_SYSTEMD_INVOCATION_ID": _INVOCATION, "_BOOT_ID": _BOOT}
    more |= _ALL if fields == "all" else {}
    tail = json.dumps(more, separators=(",", ":"))[1:].encode() + b"\n"

    def entry(number: int, message: str) -> bytes:
        micros = int(_BEGAN * 1e6) + number * 2000
        return b'{"__CURSOR":"s=%s;i=%x;b=%s;m=%x;t=%x;x=%x",' % (
            _BOOT.encode(), number + 77, _BOOT.encode(), number * 2000, micros, number * 7919,
        ) + b'"__REALTIME_TIMESTAMP":"%d","__MONOTONIC_TIMESTAMP":"%d","MESSAGE":%s,' % (
            micros, number * 2000, json.dumps(message).encode(),
        ) + tail  # fmt: skip

    return entry


def _stamp(number: int) -> str:
    return time.strftime("[%Y-%m-%d %H:%M:%S", time.gmtime(_BEGAN + number // 500))


def _messages(rng: random.Random) -> Iterator[str]:
    number, stamp = 0, ""
    for text in _LOAD:
        yield f"{_stamp(number)} TP0] {text}"
        number += 1
    while True:
        if number % 500 == 0 or not stamp:
            stamp = _stamp(number)
        draw = rng.random()
        port = 32768 + number % 28000
        if draw < 0.5:
            yield (
                f"{stamp} TP0] Decode batch, #running-req: {number % 16 + 1}, #token: "
                f"{number % 400_000}, token usage: 0.{number % 90 + 10}, accept len: "
                f"{3 + draw * 4:.2f}, accept rate: {0.3 + draw / 2:.2f}, cuda graph: True, gen "
                f"throughput (token/s): {draw * 2000 + 400:.2f}, #queue-req: {number % 4}"
            )
        elif draw < 0.65:
            yield (
                f"{stamp} TP0] Prefill batch, #new-seq: 1, #new-token: {number % 8192}, "
                f"#cached-token: {number % 4096}, token usage: 0.{number % 90 + 10}, #running-req: "
                f"{number % 16}, #queue-req: 0, cuda graph: False, input throughput (token/s): "
                f"{draw * 9000:.2f}"
            )
        elif draw < 0.9978:
            request = '"POST /v1/chat/completions HTTP/1.1" 200 OK'
            yield f"{stamp}] INFO:     10.0.0.7:{port} - {request}"
        elif draw < 0.9998:
            yield f'{stamp}] INFO:     127.0.0.1:{port} - "GET /health HTTP/1.1" 200 OK'
        else:
            yield f"{stamp} TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1"
        number += 1
