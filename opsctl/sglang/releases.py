"""What SGLang prints, serves and counts, release by release: data for the grammar and client.

A text stands here as in SGLang's source, f-string or %-format alike: ``{name}`` is a part that
is read, ``{}`` one that is not, ``{pool}`` the place where the memory pool puts in the line's
further texts. `tests/sglang/test_releases.py` looks each of them up in the wheels of the
releases named by `Release.read`, at the file that is named here.

Readers take the union over all releases, newest first, since a journal does not say which
release wrote a line. Only what has changed its *meaning* asks for the version (`release_of`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

# What `accept rate` divides by what: accepted drafts by drafted tokens, or the accepted length
# (bonus token and all) by the draft width, in which nothing accepted is 1/width and not 0.
RateMeaning = Literal["drafts", "length"]


@dataclass(frozen=True, slots=True)
class Text:
    """One string of the source and its file, below the package `sglang`."""

    file: str
    text: str


# A printed line is one string of the source, or several that are joined at run time.
Line = tuple[Text, ...]


_STATE: Final[Mapping[str, str]] = {
    "accept_len": "avg_spec_accept_length",
    "gen_throughput": "last_gen_throughput",
}
_GAUGES: Final[Mapping[str, str]] = {
    "accept_len": "sglang:spec_accept_length",
    "gen_throughput": "sglang:gen_throughput",
    "running": "sglang:num_running_reqs",
    "queue": "sglang:num_queue_reqs",
    "passes": "sglang:cuda_graph_passes_total",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The releases from `since` (0.5.11 as (0, 5, 11)) up to the next entry's.

    `read` names the one whose sources bear the entry out. `lines` are by kind of line;
    `endpoints` by what they are for, the present name first, with the file that routes them;
    `meta_info`, `state` and `gauges` are the names of one request's counters, of
    `/server_info`'s `internal_states` and of `/metrics`, by what they mean here.
    """

    since: tuple[int, ...]
    read: str
    accept_rate: RateMeaning
    lines: Mapping[str, tuple[Line, ...]]
    endpoints: Mapping[str, tuple[Text, ...]]
    meta_info: Mapping[str, tuple[str, ...]]
    meta_info_file: str = "srt/managers/tokenizer_manager.py"
    state: Mapping[str, str] = field(default_factory=lambda: _STATE)
    state_file: str = "srt/managers/scheduler.py"
    gauges: Mapping[str, str] = field(default_factory=lambda: _GAUGES)
    gauges_file: str = "srt/observability/metrics_collector.py"
    graph_labels: tuple[str, ...] = ("cuda graph", "cpu graph", "npu graph", "musa graph")


def _line(file: str, *texts: str) -> Line:
    return tuple(Text(file, text) for text in texts)


def _one(file: str, *texts: str) -> tuple[Line, ...]:
    """Lines of one string each."""
    return tuple(_line(file, text) for text in texts)


_REPORT: Final = "srt/observability/scheduler_metrics_mixin.py"
_POOL: Final = "srt/managers/scheduler_runtime_checker_mixin.py"
_RUNNER: Final = "srt/model_executor/model_runner.py"
_ENGINE: Final = "srt/entrypoints/engine.py"
_HTTP: Final = "srt/entrypoints/http_server.py"
_SHARDS: Final = (
    "Loading safetensors checkpoint shards",
    "Loading np_cache checkpoint shards",
    "Loading pt checkpoint shards",
    "Multi-thread loading shards",
    "Multi-thread loading pt checkpoint shards",
)
_CAPTURING: Final = "Capturing batches (bs={} avail_mem={} GB)"


def _decode(report: str, pool: str) -> tuple[Line, ...]:
    head = Text(report, "Decode batch{iteration}, #running-req: {running}, {pool}")
    spec = Text(report, "accept len: {accept_len}, accept rate: {accept_rate}, ")
    tail = Text(
        report,
        "{graph_label}: {cuda_graph}, gen throughput (token/s): {gen_throughput}, "
        "#queue-req: {queue}",
    )
    usage = Text(pool, "#token: {tokens}, token usage: {usage}")
    full = Text(pool, "#full token: {tokens}")  # hybrid pools, of Mamba or a sliding window
    full_usage = Text(pool, "full token usage: {usage}")
    return ((head, usage, spec, tail), (head, usage, tail), (head, full, full_usage, spec, tail))


def _prefill(report: str, pool: str, more: str = "#pending-token: {}, ") -> tuple[Line, ...]:
    head = Text(
        report,
        "Prefill batch{iteration}, #new-seq: {new_seqs}, #new-token: {new_tokens}, "
        "#cached-token: {cached_tokens}, {pool}#running-req: {running}, #queue-req: {queue}, "
        + more,
    )
    usage = Text(pool, "token usage: {usage}")
    full_usage = Text(pool, "full token usage: {usage}")
    return ((head, usage), (head, full_usage))


def _routes(loads: Text, prometheus: str = "srt/utils/common.py") -> Mapping[str, tuple[Text, ...]]:
    return {
        "generate": (Text(_HTTP, "/generate"),),
        "chat": (Text(_HTTP, "/v1/chat/completions"),),
        "models": (Text(_HTTP, "/v1/models"),),
        "server_info": (Text(_HTTP, "/server_info"), Text(_HTTP, "/get_server_info")),
        "metrics": (Text(prometheus, "/metrics"),),
        "loads": (loads,),
        "health": (Text(_HTTP, "/health"),),
        "tokenize": (Text(_HTTP, "/tokenize"),),
    }


# The older releases have both, but their own middleware fails at the new one under a FastAPI of
# late 2026 (srt/utils/common.py: `_get_fastapi_request_path` asks an included router's path).
_NEW_LOADS: Final = Text("srt/entrypoints/v1_loads.py", "/v1/loads")
_OLD_LOADS: Final = Text(_HTTP, "/get_load")

# What every release that was read logs when it serves.
READY: Final = "The server is fired up and ready to roll!"
_START: Final[Mapping[str, tuple[Line, ...]]] = {
    "ready": _one(_HTTP, READY),
    "server_args": _one(_ENGINE, "server_args={call}"),
    "shards": _one("srt/model_loader/weight_utils.py", *_SHARDS),
    "weights_begin": _one(_RUNNER, "Load weight begin. avail mem={} GB"),
    "weights_end": _one(
        _RUNNER,
        "Load weight end. elapsed={elapsed} s, type={type}, {}avail mem={} GB, mem usage={} GB.",
    ),
}
_BEFORE_0_5_23: Final[Mapping[str, tuple[Line, ...]]] = {
    **_START,
    "distributed_begin": _one(_RUNNER, "Init torch distributed begin."),
    "distributed_end": _one(
        _RUNNER, "Init torch distributed ends. elapsed={elapsed} s, mem usage={} GB"
    ),
    "kv_cache": _one(
        "srt/mem_cache/memory_pool.py",
        "KV Cache is allocated. #tokens: {tokens}, K size: {} GB, V size: {} GB",
        "KV Cache is allocated. #tokens: {tokens}, KV size: {} GB",  # MLA
    ),
    "memory_pool_end": _one(
        "srt/model_executor/model_runner_kv_cache_mixin.py", "Memory pool end. avail mem={} GB"
    ),
    "graph_begin": (
        *_one(
            _RUNNER,
            "Capture {graph_label} begin. This can take up to several minutes. avail mem={} GB",
            "Capture piecewise CUDA graph begin. avail mem={} GB",
        ),
        *_one(
            "srt/speculative/multi_layer_eagle_draft_extend_cuda_graph_runner.py",
            "Capture draft extend cuda graph begin (step {}). "
            "This can take up to several minutes. avail mem={} GB",
        ),
    ),
    "graph_end": _one(
        _RUNNER,
        "Capture {graph_label} end. Time elapsed: {elapsed} s. mem usage={} GB. avail mem={} GB.",
        "Capture piecewise CUDA graph end. Time elapsed: {elapsed} s. "
        "mem usage={} GB. avail mem={} GB.",
    ),
    "capturing": _one("srt/model_executor/cuda_graph_runner.py", _CAPTURING),
}
_DFLASH: Final = "srt/speculative/dflash_worker.py"
_DFLASH_READY: Final = (
    "DFLASH draft runner ready. mask_token={}, mask_token_id={}, mask_token_id_override={}"
)
_REPORT_23: Final = "srt/managers/scheduler_components/metrics_reporter.py"
_POOL_23: Final = "srt/managers/scheduler_components/pool_stats_observer.py"
_SETUP_23: Final = "srt/model_executor/model_runner_components/cuda_graph_setup.py"
_COMMON_META: Final = {
    "verify_steps": ("spec_verify_ct",),
    "accept_len": ("spec_accept_length",),
    "accept_rate": ("spec_accept_rate",),
}


def _with_dflash(counter: str) -> Mapping[str, tuple[Line, ...]]:
    """0.5.11 and 0.5.12, which differ in what a verify step calls the drafts it keeps."""
    return {
        **_BEFORE_0_5_23,
        "decode": _decode(_REPORT, _POOL),
        "prefill": _prefill(_REPORT, _POOL),
        "draft_ready": _one(_DFLASH, _DFLASH_READY),
        "verify_completed": _one(_DFLASH, f"DFLASH verify completed. {counter}={{}}"),
    }


# Newest first. Between two releases that were read nothing is known: a boundary stands at the
# first release that is known to be different.
RELEASES: Final[tuple[Release, ...]] = (
    Release(
        since=(0, 5, 23),
        read="0.5.23",
        accept_rate="drafts",
        lines={
            **_START,
            "decode": _decode(_REPORT_23, _POOL_23),
            "prefill": _prefill(_REPORT_23, _POOL_23),
            "memory_pool_end": _one(
                "srt/mem_cache/kv_cache_configurator.py", "Memory pool end. avail mem={} GB"
            ),
            "graph_begin": _one(
                _SETUP_23,
                "Capture {} {graph_label} begin. backend={}, num_tokens_per_req={width}, "
                "avail mem={} GB",
                "Capture {} CUDA graph begin. backend={}, num_tokens={}, avail mem={} GB",
            ),
            "graph_end": _one(
                _SETUP_23,
                "Capture {} {graph_label} end. bs={}, elapsed={elapsed} s, mem usage={} GB, "
                "avail mem={} GB.",
                "Capture {} CUDA graph end. elapsed={elapsed} s, mem usage={} GB, avail mem={} GB.",
            ),
            "capturing": _one("srt/model_executor/runner/decode_cuda_graph_runner.py", _CAPTURING),
            "draft_ready": _one(
                "srt/speculative/dflash_worker_v2.py", _DFLASH_READY + ", noise_embed_scale={}"
            ),
        },
        endpoints=_routes(_NEW_LOADS),
        meta_info={
            **_COMMON_META,
            "accepted": ("spec_num_correct_drafts",),
            "drafted": ("spec_num_proposed_drafts",),
            "histogram": ("spec_correct_drafts_histogram",),
        },
        state_file="srt/managers/scheduler_components/internal_state.py",
        gauges={**_GAUGES, "verifies": "sglang:spec_verify_calls_total"},
    ),
    Release(
        since=(0, 5, 12),
        read="0.5.12.post1",
        accept_rate="drafts",
        lines=_with_dflash("num_correct_drafts_per_req"),
        endpoints=_routes(_OLD_LOADS),
        meta_info={
            **_COMMON_META,
            "accepted": ("spec_num_correct_drafts", "spec_accepted_drafts"),
            "drafted": ("spec_num_proposed_drafts", "spec_proposed_drafts"),
            "histogram": ("spec_correct_drafts_histogram", "spec_accept_histogram"),
        },
    ),
    Release(
        since=(0, 5, 11),
        read="0.5.11",
        accept_rate="drafts",
        lines=_with_dflash("num_accepted_drafts_per_req"),
        endpoints=_routes(_OLD_LOADS),
        meta_info={
            **_COMMON_META,
            "accepted": ("spec_accepted_drafts",),
            "drafted": ("spec_proposed_drafts",),
            "histogram": ("spec_accept_histogram",),
        },
    ),
    Release(
        since=(0,),
        read="0.5.10.post1",
        accept_rate="length",
        lines={
            **_BEFORE_0_5_23,
            "decode": _decode(_REPORT, _REPORT),
            "prefill": _prefill(_REPORT, _REPORT, more=""),
        },
        endpoints=_routes(_OLD_LOADS),
        # spec_accept_token_num and spec_draft_token_num are left alone: what they counted
        # changed more than once before 0.5.11.
        meta_info={**_COMMON_META, "histogram": ("spec_accept_histogram",)},
        graph_labels=("cuda graph", "cpu graph", "npu graph"),
    ),
)

_NUMBERS: Final = re.compile(r"\d+(?:\.\d+)*")


def release_of(version: str | None) -> Release | None:
    """The entry that a version of SGLang falls under; None for what is no version."""
    match = _NUMBERS.match(version or "")
    if match is None:
        return None
    numbers = tuple(int(part) for part in match[0].split("."))
    return next(release for release in RELEASES if numbers >= release.since)


def lines_of(kind: str) -> Iterator[Line]:
    """Every line of a kind that any release prints, newest first, each form once."""
    seen: set[tuple[str, ...]] = set()
    for release in RELEASES:
        for line in release.lines.get(kind, ()):
            texts = tuple(part.text for part in line)
            if texts not in seen:
                seen.add(texts)
                yield line


def names(table: Literal["meta_info", "endpoints"], what: str) -> tuple[str, ...]:
    """The names that any release has for one thing, newest first."""
    found: dict[str, None] = {}
    for release in RELEASES:
        if table == "meta_info":
            found.update(dict.fromkeys(release.meta_info.get(what, ())))
        else:
            found.update(dict.fromkeys(text.text for text in release.endpoints.get(what, ())))
    return tuple(found)
