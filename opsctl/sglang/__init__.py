"""All that is known of SGLang: its log lines, endpoints and counters, by version."""

from __future__ import annotations

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
    from opsctl.sglang.client import ChatAnswer, GenerateAnswer, ServerError, SglangClient

__all__ = [
    "CapturingBatches",
    "ChatAnswer",
    "DdtreeMetrics",
    "DecodeBatch",
    "DistributedBegin",
    "DistributedEnd",
    "DraftRunnerReady",
    "GenerateAnswer",
    "GraphCapture",
    "KvCacheAllocated",
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
    "UvicornRunning",
    "VerifyCompleted",
    "WeightShards",
    "estimate_remaining",
    "parse",
    "parse_all",
    "parse_metrics",
]

_OF_CLIENT = frozenset({"ChatAnswer", "GenerateAnswer", "ServerError", "SglangClient"})


def __getattr__(name: str) -> object:
    """The client's names bring httpx along, which who reads a log need not load."""
    if name not in _OF_CLIENT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from opsctl.sglang import client

    return getattr(client, name)
