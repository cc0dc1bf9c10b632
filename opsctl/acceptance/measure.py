"""What the decode lines and DDTREE lines of a span say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby

from opsctl.journal.acceptance import Acceptance, Spread, data_parallel_rank, each_batch_once
from opsctl.journal.entry import Entry
from opsctl.sglang.grammar import parse_all
from opsctl.sglang.lines import DdtreeMetrics, DecodeBatch

DEFAULT_INTERVAL = 40  # decode steps a line: --decode-log-interval's default


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of one start, at `at` (Unix seconds, by the host's clock).

    `steps` is how many decode steps it covers, the start's `--decode-log-interval`.
    """

    at: float
    start: str  # the invocation
    line: DecodeBatch | DdtreeMetrics
    steps: int = DEFAULT_INTERVAL


def samples_of(
    entries: Iterable[Entry], steps: Callable[[str], int] = lambda start: DEFAULT_INTERVAL
) -> Iterator[Sample]:
    """The lines that say something of decoding, in the journal's order."""
    for entry in entries:
        for line in parse_all(entry.message):
            if isinstance(line, DecodeBatch | DdtreeMetrics):
                yield Sample(entry.realtime, entry.invocation, line, steps(entry.invocation))


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
    """Of a span. `steps` are decode steps that its lines cover, each a verify step when
    speculating; `verifies` are the requests of these, summed, by the lines' own count of them;
    `starts` is how many starts it has."""

    acceptance: Acceptance
    steps: int = 0
    verifies: int = 0
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
        draft_tokens: int | None = None,
    ) -> Measured:
        decode: list[Sample] = []
        tree: list[Sample] = []
        for _, start in groupby(samples, key=lambda sample: sample.start):
            spoken = list(start)
            decode += _once(spoken, DecodeBatch)
            tree += _once(spoken, DdtreeMetrics)
        lines = [sample.line for sample in decode if isinstance(sample.line, DecodeBatch)]
        times, steps = [sample.at for sample in decode], [sample.steps for sample in decode]
        newest = {data_parallel_rank(line): line for line in lines}
        queues = [line.queue for line in newest.values() if line.queue is not None]
        speeds = [line.gen_throughput for line in lines if line.gen_throughput is not None]
        return cls(
            acceptance=Acceptance.of(lines, steps),
            steps=sum(steps),
            verifies=sum(
                max(line.running, 1) * count
                for line, count in zip(lines, steps, strict=True)
                if line.accept_len is not None
            ),
            draft_tokens=draft_tokens,
            first=min(times, default=None),
            last=max(times, default=None),
            starts=len({sample.start for sample in decode}),
            batch_sizes=_by_batch_size(lines, steps),
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

    def to_json(self) -> dict[str, object]:
        return {
            "acceptance": self.acceptance.to_json(),
            "draft_tokens": self.draft_tokens,
            "draft_acceptance": self.draft_acceptance,
            "steps": self.steps,
            "verifies": self.verifies,
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


def _by_batch_size(lines: Sequence[DecodeBatch], steps: Sequence[int]) -> dict[int, BatchSize]:
    groups: dict[int, list[tuple[DecodeBatch, int]]] = defaultdict(list)
    for line, count in zip(lines, steps, strict=True):
        groups[line.running].append((line, count))
    found: dict[int, BatchSize] = {}
    for size, group in sorted(groups.items()):
        one = Acceptance.of([line for line, _ in group], [count for _, count in group])
        found[size] = BatchSize(one.count, one.accept_len, one.gen_throughput)
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
