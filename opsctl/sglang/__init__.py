"""All that is known of SGLang: its log lines, endpoints and counters, by version."""

from opsctl.sglang.client import ChatAnswer, GenerateAnswer, ServerError, SglangClient
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
