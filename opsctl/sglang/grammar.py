"""The log lines of SGLang, as a table: pattern, builder, and where the line is printed.

Sources name file:line in the wheel of 0.5.12.post1 unless they name a version. Fields of
the batch lines are read by key: their order, separators and neighbours differ from version
to version (0.4.4 to 0.5.23 are covered by the test data).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from opsctl.sglang import lines as ln

# "[2026-01-31 10:20:30 DP0 TP1] ", "[2026-01-31 10:20:30] ", "[TP0] ", and 0.4's "[gpu_id=0] ".
PREFIX: Final = re.compile(
    r"\[(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)?"
    r"(?P<rank>(?: ?\b(?:DP|TP|PP|EP|CP|ATTN_\w+?|MOE_\w+?)\d+)*| ?gpu_id=\d+)\] "
)

# A bar ends without a newline, so the next writer continues its line.
_AFTER_BAR: Final = re.compile(r"(?<=it/s\]|s/it\])(?=\[\d{4}-\d\d-\d\d )")

_SECRET: Final = re.compile(r"key|token$|password|secret", re.IGNORECASE)
_SHARDS: Final = (
    r"(?:Loading (?:safetensors|pt|np_cache) checkpoint shards"
    r"|Multi-thread loading(?: pt checkpoint)? shards)"
)

Build = Callable[[re.Match[str], str], ln.LogLine | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """`needle` is a plain substring of every match, which rejects most lines cheaply."""

    needle: str
    pattern: re.Pattern[str]
    build: Build
    source: str


def batch_fields(text: str) -> dict[str, str]:
    """`#running-req: 3, token usage: 0.10` by key, without the `#`."""
    pairs = (part.partition(": ") for part in text.split(","))
    return {key.strip().lstrip("#"): value.strip() for key, colon, value in pairs if colon}


def _integer(fields: dict[str, str], *keys: str) -> int | None:
    number = _number(fields, *keys)
    return None if number is None else int(number)


def _number(fields: dict[str, str], *keys: str) -> float | None:
    for key in keys:
        try:
            return float(fields[key].rstrip("%"))
        except (KeyError, ValueError):
            continue
    return None


def _graph(fields: dict[str, str]) -> bool | None:
    """`cuda graph`, or what the device calls it: cpu graph, npu graph, musa graph."""
    for key, value in fields.items():
        if key.endswith(" graph") and value in {"True", "False"}:
            return value == "True"
    return None


def _decode(match: re.Match[str], rank: str) -> ln.DecodeBatch:
    fields = batch_fields(match["fields"])
    return ln.DecodeBatch(
        rank=rank,
        running=_integer(fields, "running-req") or 0,
        tokens=_integer(fields, "token", "full token"),
        usage=_number(fields, "token usage", "full token usage"),
        accept_len=_number(fields, "accept len"),
        accept_rate=_number(fields, "accept rate"),
        cuda_graph=_graph(fields),
        gen_throughput=_number(fields, "gen throughput (token/s)"),
        queue=_integer(fields, "queue-req"),
    )


def _prefill(match: re.Match[str], rank: str) -> ln.PrefillBatch:
    fields = batch_fields(match["fields"])
    return ln.PrefillBatch(
        rank=rank,
        new_seqs=_integer(fields, "new-seq"),
        new_tokens=_integer(fields, "new-token"),
        cached_tokens=_integer(fields, "cached-token"),
        usage=_number(fields, "token usage", "full token usage"),
        running=_integer(fields, "running-req"),
        queue=_integer(fields, "queue-req"),
    )


def _optional(match: re.Match[str], name: str) -> float | None:
    text = match.groupdict().get(name)
    return None if text is None else float(text)


def _capture(state: Literal["begin", "end"]) -> Build:
    def build(match: re.Match[str], rank: str) -> ln.GraphCapture:
        width = _optional(match, "width")
        return ln.GraphCapture(
            rank=rank,
            state=state,
            elapsed_s=_optional(match, "elapsed"),
            tokens_per_request=None if width is None else int(width),
        )

    return build


def _last(kind: type[ln.WeightShards] | type[ln.CapturingBatches]) -> Build:
    """The last update: redraws of one bar can share a line."""

    def build(match: re.Match[str], rank: str) -> ln.LogLine:
        *_, last = match.re.finditer(match.string)
        return kind(rank=rank, done=int(last["done"]), total=int(last["total"]))

    return build


def _server_args(match: re.Match[str], rank: str) -> ln.ServerArgs | None:
    try:
        call = ast.parse(match["call"], mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ln.ServerArgs(rank=rank)  # cut short by the journal, or not only literals
    values: dict[str, object] = {}
    for keyword in call.keywords if isinstance(call, ast.Call) else ():
        if keyword.arg is None or _SECRET.search(keyword.arg):
            continue
        try:
            values[keyword.arg] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError):
            values[keyword.arg] = ast.unparse(keyword.value)
    return ln.ServerArgs(rank=rank, values=MappingProxyType(values))


def _ddtree(match: re.Match[str], rank: str) -> ln.DdtreeMetrics:
    values: dict[str, float | str] = {}
    for key, text in re.findall(r"([\w./-]+)=([^\s,;]+)", match["fields"]):
        try:
            values[key] = float(text.rstrip("%"))
        except ValueError:
            values[key] = text
    return ln.DdtreeMetrics(rank=rank, values=MappingProxyType(values))


def _plain(kind: type[ln.LogLine]) -> Build:
    return lambda match, rank: kind(rank=rank)


def _rule(needle: str, pattern: str, build: Build, source: str) -> Rule:
    return Rule(needle, re.compile(pattern), build, source)


# Tried in order at the start of a line, after its prefix.
RULES: Final[tuple[Rule, ...]] = (
    _rule(
        "Decode batch",
        r"Decode batch[.,]?(?: \[\d+\])?[.,]? (?P<fields>.*)",
        _decode,
        "srt/observability/scheduler_metrics_mixin.py:675",
    ),
    _rule(
        "Prefill batch",
        r"Prefill batch[.,]?(?: \[\d+\])?[.,]? (?P<fields>.*)",
        _prefill,
        "srt/observability/scheduler_metrics_mixin.py:512",
    ),
    _rule(
        " shards: ",
        _SHARDS + r": +\d+% Completed \| (?P<done>\d+)/(?P<total>\d+)",
        _last(ln.WeightShards),
        "srt/model_loader/weight_utils.py:753,917,1018,1077,1127,1155",
    ),
    _rule(
        "Capturing batches",
        r"Capturing batches[^|\n]*?: +\d+%\|[^|]*\| (?P<done>\d+)/(?P<total>\d+)",
        _last(ln.CapturingBatches),
        "srt/model_executor/cuda_graph_runner.py:892, cpu_graph_runner.py:620",
    ),
    _rule(
        "Init torch distributed begin",
        r"Init torch distributed begin\.",
        _plain(ln.DistributedBegin),
        "srt/model_executor/model_runner.py:1188",
    ),
    _rule(
        "Init torch distributed ends",
        r"Init torch distributed ends\.(?:.*?elapsed=(?P<elapsed>[\d.]+) s)?",
        lambda match, rank: ln.DistributedEnd(rank=rank, elapsed_s=_optional(match, "elapsed")),
        "srt/model_executor/model_runner.py:1321",
    ),
    _rule(
        "Load weight begin",
        r"Load weight begin\.",
        _plain(ln.LoadWeightBegin),
        "srt/model_executor/model_runner.py:1375",
    ),
    _rule(
        "Load weight end",
        r"Load weight end\.(?: elapsed=(?P<elapsed>[\d.]+) s,)?(?: type=(?P<type>\w+))?",
        lambda match, rank: ln.LoadWeightEnd(
            rank=rank, elapsed_s=_optional(match, "elapsed"), model_type=match["type"] or ""
        ),
        "srt/model_executor/model_runner.py:1554",
    ),
    _rule(
        "Cache is allocated",
        r"KV Cache is allocated\..*?#tokens: (?P<tokens>\d+)",
        lambda match, rank: ln.KvCacheAllocated(rank=rank, tokens=int(match["tokens"])),
        "srt/mem_cache/memory_pool.py:744,750",
    ),
    _rule(
        "Memory pool end",
        r"Memory pool end\.",
        _plain(ln.MemoryPoolEnd),
        "srt/model_executor/model_runner_kv_cache_mixin.py:909",
    ),
    _rule(
        "graph begin",
        r"Capture [\w ]*?graph begin\.(?:.*?num_tokens_per_req=(?P<width>\d+))?",
        _capture("begin"),
        "srt/model_executor/model_runner.py:2952; 0.5.23 cuda_graph_setup.py:759",
    ),
    _rule(
        "graph end",
        r"Capture [\w ]*?graph end\.(?:.*?(?:Time elapsed: |elapsed=)(?P<elapsed>[\d.]+))?",
        _capture("end"),
        "srt/model_executor/model_runner.py:2970; 0.5.23 cuda_graph_setup.py:788",
    ),
    _rule(
        "DFLASH draft runner ready",
        r"DFLASH draft runner ready\.",
        _plain(ln.DraftRunnerReady),
        "srt/speculative/dflash_worker.py:197",
    ),
    _rule(
        "DFLASH verify completed",
        r"DFLASH verify completed\.",
        _plain(ln.VerifyCompleted),
        "srt/speculative/dflash_worker.py:1245",
    ),
    _rule(
        "Uvicorn running on",
        r"(?:INFO: +)?Uvicorn running on ",
        _plain(ln.UvicornRunning),
        "uvicorn/server.py",
    ),
    _rule(
        "fired up and ready to roll",
        r"The server is fired up and ready to roll!\s*$",
        _plain(ln.ServerReady),
        "srt/entrypoints/http_server.py:2033",
    ),
    _rule(
        "server_args=",
        r"server_args=(?P<call>ServerArgs\(.*\))\s*$",
        _server_args,
        "srt/entrypoints/engine.py:220,773",
    ),
    _rule(
        "DDTREE metrics",
        r".{0,80}?DDTREE metrics\b(?P<fields>.*)",
        _ddtree,
        "the ddtree patch set",
    ),
)


def split_prefix(line: str) -> tuple[str, str]:
    """The rank tag of `line` (empty without one) and the line after its prefix."""
    match = PREFIX.match(line)
    return ("", line) if match is None else (match["rank"].strip(), line[match.end() :])


def parse(message: str) -> ln.LogLine | None:
    """What a cleaned journal message says, or None. Of several lines the last that says it.

    Matches only where a line begins, so that a prompt quoted in the log says nothing.
    """
    return next(_found(reversed(split_lines(message))), None)


def parse_all(message: str) -> tuple[ln.LogLine, ...]:
    """Everything that a cleaned journal message says, in order."""
    return tuple(_found(split_lines(message)))


def split_lines(message: str) -> Sequence[str]:
    """Lines of a cleaned message, a log line that ran on after a progress bar apart from it."""
    if "\n" not in message and "it/s]" not in message and "s/it]" not in message:
        return (message,)
    return [part for line in message.split("\n") for part in _AFTER_BAR.split(line) if part]


def _found(texts: Iterable[str]) -> Iterator[ln.LogLine]:
    for text in texts:
        for rule in RULES:
            if rule.needle not in text:
                continue
            rank, rest = split_prefix(text.strip())
            match = rule.pattern.match(rest)
            if match is not None and (found := rule.build(match, rank)) is not None:
                yield found
                break
