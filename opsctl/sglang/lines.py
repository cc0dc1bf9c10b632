"""What SGLang's log lines say, as values. Durations are seconds, sizes are tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line that SGLang is known to print. `rank` is its tag, such as ``TP0`` or ``DP0 TP1``."""

    rank: str = ""


@dataclass(frozen=True, slots=True)
class DecodeBatch(LogLine):
    """Throughput and acceptance, every `--decode-log-interval` decode steps (40 by default).

    `accept_len` counts the bonus token: 1.00 means that nothing drafted was accepted. It and
    `accept_rate` average the steps since the last such line; None without speculation. The
    meaning of `accept_rate` changed between versions, so judge by `accept_len`.
    `cuda_graph` is None where the version does not print it (0.4.4 and older).
    """

    running: int
    tokens: int | None = None
    usage: float | None = None
    accept_len: float | None = None
    accept_rate: float | None = None
    cuda_graph: bool | None = None
    gen_throughput: float | None = None  # tokens per second
    queue: int | None = None


@dataclass(frozen=True, slots=True)
class PrefillBatch(LogLine):
    new_seqs: int | None = None
    new_tokens: int | None = None
    cached_tokens: int | None = None
    usage: float | None = None
    running: int | None = None
    queue: int | None = None


@dataclass(frozen=True, slots=True)
class DistributedBegin(LogLine):
    """The ranks start to find each other."""


@dataclass(frozen=True, slots=True)
class DistributedEnd(LogLine):
    elapsed_s: float | None = None


@dataclass(frozen=True, slots=True)
class LoadWeightBegin(LogLine):
    pass


@dataclass(frozen=True, slots=True)
class LoadWeightEnd(LogLine):
    elapsed_s: float | None = None  # absent in 0.4
    model_type: str = ""


@dataclass(frozen=True, slots=True)
class WeightShards(LogLine):
    """Checkpoint shards read: progress without a time stamp or rank of its own."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class KvCacheAllocated(LogLine):
    tokens: int


@dataclass(frozen=True, slots=True)
class MemoryPoolEnd(LogLine):
    """All memory pools stand. Newer versions print this and no `KvCacheAllocated`."""


@dataclass(frozen=True, slots=True)
class GraphCapture(LogLine):
    state: Literal["begin", "end"]
    elapsed_s: float | None = None
    tokens_per_request: int | None = None  # 0.5.23: the width of the verify graph


@dataclass(frozen=True, slots=True)
class CapturingBatches(LogLine):
    """Batch sizes captured as CUDA graphs."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class DraftRunnerReady(LogLine):
    """The DFLASH drafter is loaded."""


@dataclass(frozen=True, slots=True)
class VerifyCompleted(LogLine):
    """The first DFLASH verify step of this start; printed once."""


@dataclass(frozen=True, slots=True)
class UvicornRunning(LogLine):
    """The port listens. The warm-up is still to come: this is not readiness."""


@dataclass(frozen=True, slots=True)
class ServerReady(LogLine):
    """The warm-up request was answered."""


@dataclass(frozen=True, slots=True)
class ServerArgs(LogLine):
    """The arguments in force, as Python literals where they are; secrets are left out."""

    values: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DdtreeMetrics(LogLine):
    """A `DDTREE metrics` line: whatever key=value pairs it has."""

    values: Mapping[str, float | str] = field(default_factory=dict)
