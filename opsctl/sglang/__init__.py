"""All that is known of SGLang: its log lines, endpoints and counters, by version."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from opsctl.sglang.grammar import parse, parse_all
from opsctl.sglang.lines import (
    CapturingBatches,
    DdtreeMetrics,
    DecodeBatch,
    DistributedBegin,
    DistributedEnd,
    DraftRunnerReady,
    GraphCapture,
    KvCacheAllocated,
    LoadWeightBegin,
    LoadWeightEnd,
    LogLine,
    MemoryPoolEnd,
    PrefillBatch,
    ServerArgs,
    ServerReady,
    UvicornRunning,
    VerifyCompleted,
    WeightShards,
)
from opsctl.sglang.metrics import parse_metrics
from opsctl.sglang.progress import LoadProgress, estimate_remaining
from opsctl.sglang.spec import SpecCounters

if TYPE_CHECKING:
    from opsctl.sglang.answers import ChatAnswer, GenerateAnswer, Load, Top
    from opsctl.sglang.client import SglangClient
    from opsctl.sglang.completions import Completions, Generation
    from opsctl.sglang.faults import ServerError

__all__ = [
    "CapturingBatches",
    "ChatAnswer",
    "Completions",
    "DdtreeMetrics",
    "DecodeBatch",
    "DistributedBegin",
    "DistributedEnd",
    "DraftRunnerReady",
    "GenerateAnswer",
    "Generation",
    "GraphCapture",
    "KvCacheAllocated",
    "Load",
    "LoadProgress",
    "LoadWeightBegin",
    "LoadWeightEnd",
    "LogLine",
    "MemoryPoolEnd",
    "PrefillBatch",
    "ServerArgs",
    "ServerError",
    "ServerReady",
    "SglangClient",
    "SpecCounters",
    "Top",
    "UvicornRunning",
    "VerifyCompleted",
    "WeightShards",
    "estimate_remaining",
    "parse",
    "parse_all",
    "parse_metrics",
]

# These names bring httpx along, which who reads a log need not load.
_LATE = {
    "ChatAnswer": "answers",
    "Completions": "completions",
    "GenerateAnswer": "answers",
    "Generation": "completions",
    "Load": "answers",
    "ServerError": "faults",
    "SglangClient": "client",
    "Top": "answers",
}


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"opsctl.sglang.{_LATE[name]}"), name)
