"""What the decode lines and DDTREE lines of a span say."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby

from opsctl.journal.acceptance import Acceptance, Spread, data_parallel_rank, each_batch_once
from opsctl.journal.entry import Entry
from opsctl.sglang.grammar import parse_all
from opsctl.sglang.lines import DdtreeMetrics, DecodeBatch

DEFAULT_INTERVAL = 40  # decode steps a line: --decode-log-interval's default


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of one start, at `at` (Unix seconds, by the host's clock)."""

    at: float
    start: str  # the invocation
    line: DecodeBatch | DdtreeMetrics


def samples_of(entries: Iterable[Entry]) -> Iterator[Sample]:
    """The lines that say something of decoding, in the journal's order."""
    for entry in entries:
        for line in parse_all(entry.message):
            if isinstance(line, DecodeBatch | DdtreeMetrics):
                yield Sample(entry.realtime, entry.invocation, line)


@dataclass(frozen=True, slots=True)
class BatchSize:
    """The decode lines with so many requests running."""

    lines: int
    accept_len: Spread | None
    gen_throughput: float | None  # median, tokens per second


@dataclass(frozen=True, slots=True)
class Tree:
    """The sums of a span's DDTREE lines, which count instead of sampling.

    `steps` are verify forwards, `verifies` the requests summed over them; `accept_len` is the
    mean of a verify, None where the lines have no such count.
    """

    lines: int
    steps: int
    verifies: int
    accept_len: float | None


@dataclass(frozen=True, slots=True)
class Measured:
    """Of a span. `interval` is decode steps a line; `starts` is how many starts it covers."""

    acceptance: Acceptance
    interval: int = DEFAULT_INTERVAL
    draft_tokens: int | None = None
    first: float | None = None
    last: float | None = None
    starts: int = 0
    batch_sizes: Mapping[int, BatchSize] = field(default_factory=dict)
    gen_throughput: Spread | None = None  # tokens per second, of one data-parallel rank
    ranks: int = 1  # data-parallel ranks that speak
    running: int | None = None  # at the last line of each rank, summed
    queue: int | None = None
    tree: Tree | None = None
    history: tuple[tuple[float, float], ...] = ()  # (time, accept length), for a plot

    @classmethod
    def of(
        cls,
        samples: Iterable[Sample],
        *,
        interval: int = DEFAULT_INTERVAL,
        draft_tokens: int | None = None,
    ) -> Measured:
        decode: list[Sample] = []
        tree: list[Sample] = []
        for _, start in groupby(samples, key=lambda sample: sample.start):
            spoken = list(start)
            decode += _once(spoken, DecodeBatch)
            tree += _once(spoken, DdtreeMetrics)
        lines = [sample.line for sample in decode if isinstance(sample.line, DecodeBatch)]
        times = [sample.at for sample in decode]
        newest = {data_parallel_rank(line): line for line in lines}
        queues = [line.queue for line in newest.values() if line.queue is not None]
        speeds = [line.gen_throughput for line in lines if line.gen_throughput is not None]
        return cls(
            acceptance=Acceptance.of(lines),
            interval=interval,
            draft_tokens=draft_tokens,
            first=min(times, default=None),
            last=max(times, default=None),
            starts=len({sample.start for sample in decode}),
            batch_sizes=_by_batch_size(lines),
            gen_throughput=Spread.of(speeds),
            ranks=max(len(newest), 1),
            running=sum(line.running for line in newest.values()) if newest else None,
            queue=sum(queues) if queues else None,
            tree=_tree([s.line for s in tree if isinstance(s.line, DdtreeMetrics)]),
            history=tuple(
                (sample.at, line.accept_len)
                for sample, line in zip(decode, lines, strict=True)
                if line.accept_len is not None
            ),
        )

    @property
    def draft_acceptance(self) -> float | None:
        """Accepted drafts over drafted tokens, (accept length - 1) / (draft tokens - 1).

        The one definition, whatever `accept rate` means in the version at hand: 0 is nothing
        accepted, 1 is everything.
        """
        length = self.acceptance.accept_len
        if length is None or self.draft_tokens is None or self.draft_tokens < 2:
            return None
        return (length.mean - 1) / (self.draft_tokens - 1)

    @property
    def steps(self) -> int:
        """Decode steps that the lines stand for; each is a verify step when speculating."""
        return self.acceptance.count * self.interval

    def to_json(self) -> dict[str, object]:
        return {
            "acceptance": self.acceptance.to_json(),
            "draft_tokens": self.draft_tokens,
            "draft_acceptance": self.draft_acceptance,
            "decode_log_interval": self.interval,
            "steps": self.steps,
            "first": self.first,
            "last": self.last,
            "starts": self.starts,
            "data_parallel_ranks": self.ranks,
            "gen_throughput": asdict(self.gen_throughput) if self.gen_throughput else None,
            "running": self.running,
            "queue": self.queue,
            "tree": asdict(self.tree) if self.tree else None,
            "batch_sizes": [
                {"running": size, **asdict(found)} for size, found in self.batch_sizes.items()
            ],
        }


def _once(spoken: Sequence[Sample], kind: type[DecodeBatch] | type[DdtreeMetrics]) -> list[Sample]:
    mine = [sample for sample in spoken if isinstance(sample.line, kind)]
    kept = {id(line) for line in each_batch_once([sample.line for sample in mine])}
    return [sample for sample in mine if id(sample.line) in kept]


def _by_batch_size(lines: Iterable[DecodeBatch]) -> dict[int, BatchSize]:
    groups: dict[int, list[DecodeBatch]] = defaultdict(list)
    for line in lines:
        groups[line.running].append(line)
    found: dict[int, BatchSize] = {}
    for size, group in sorted(groups.items()):
        speeds = [line.gen_throughput for line in group if line.gen_throughput is not None]
        found[size] = BatchSize(
            lines=len(group),
            accept_len=Acceptance.of(group).accept_len,
            gen_throughput=statistics.median(speeds) if speeds else None,
        )
    return found


def _tree(lines: Sequence[DdtreeMetrics]) -> Tree | None:
    if not lines:
        return None
    steps = verifies = 0
    tokens, counted = 0.0, 0
    for line in lines:
        count, length = _whole(line, "verifies"), line.values.get("accept_len_mean")
        steps += _whole(line, "steps")
        verifies += count
        if count and isinstance(length, float):
            counted += count
            tokens += count * length
    return Tree(len(lines), steps, verifies, tokens / counted if counted else None)


def _whole(line: DdtreeMetrics, key: str) -> int:
    value = line.values.get(key)
    return int(value) if isinstance(value, float) else 0
