"""What acceptance and throughput say over many lines, in bounded memory.

Every figure is an accept length in tokens a verify step, the bonus token included: 1.00 means
that nothing drafted was accepted. Decode lines average `--decode-log-interval` steps; lines of
other servers and of comparisons average whatever they say.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from opsctl.sglang.lines import DecodeBatch

DEFAULT_INTERVAL: Final = 40  # --decode-log-interval
# Decode steps at accept length 1 before that is a finding: two lines at the default interval.
_ZERO_STEPS: Final = 64
_NOTHING: Final = 1.05
# … and at the maximum: a short answer can be foreseen as a whole, hundreds of steps cannot.
_FULL_STEPS: Final = 128
_FULL_RATE: Final = 0.995  # (len - 1) / (drafted - 1), and len / drafted before 0.5.6
# Both changes below are far outside what prompts of different kinds do to acceptance.
_COLLAPSE: Final = 0.5  # of the drafted tokens' share, from one request to two
_DECAY: Final = 0.7  # of the accept length
_SLOW: Final = 0.2  # of a request's throughput
_LONGER: Final = 4.0  # times as long: another class of sequence length
_LONG: Final = 8192  # tokens; below this, length does not matter to a drafter
_MANY: Final = 16  # lines before a trend counts as one, or a stretch among others
_LONG_STEPS: Final = 10 * _ZERO_STEPS  # … and decode steps of such a stretch
_ENOUGH: Final = 5  # lines on either side of a comparison; fewer only where there are no more
_KEPT: Final = 512  # points; more are merged by pairs

_LENGTH: Final = re.compile(
    r"(?i)\baccept(?:ance|ed)?[ _]len(?:gth)?\b\W{0,3}\s*(\d+(?:\.\d+)?)|\blen (\d+\.\d+)"
)
_RATE: Final = re.compile(r"(?i)\baccept(?:ance)?[ _]rate\b\W{0,3}\s*(\d+(?:\.\d+)?)\s*(%?)")
_RUNNING: Final = re.compile(
    r"(?i)(?:#?running(?:-req)?|concurrency|batch[ _]size|\bbs)\b\W{1,3}(\d+)"
)
_TOKENS: Final = re.compile(r"(?i)(?:#token|context|seq(?:uence)?[_ ]len\w*)\W{1,3}(\d+)(k\b)?")
# Of a decode line's rest, where the input begins in the middle of one.
_TORN: Final = "gen throughput (token/s)"
_FROM_TO: Final = re.compile(
    r"(?i)\baccept\w*[ _](?:len\w*|rate)\D{0,20}(\d+(?:\.\d+)?)[^>→]{0,60}(?:->|→|=>)\D{0,20}?"
    r"(\d+(?:\.\d+)?)"
)


@dataclass(slots=True)
class Point:
    """One line, or neighbouring ones merged: means, and the first of their lines."""

    line: int
    count: int
    steps: int
    running: float
    tokens: float | None  # of one request
    length: float
    speed: float | None  # tokens per second of one request
    full: bool
    decode: bool  # a decode line, not somebody's summary
    whole: bool = False  # a whole number, and no rate to tell whether it is the maximum
    text: str = ""

    def absorb(self, other: Point) -> None:
        """Stand for the lines of `other`, too."""
        mine, theirs = self.count, other.count
        total = self.count = mine + theirs
        self.whole = self.whole and other.whole and self.length == other.length
        self.steps += other.steps
        self.running = (self.running * mine + other.running * theirs) / total
        self.length = (self.length * mine + other.length * theirs) / total
        self.tokens = _mean(self.tokens, other.tokens, mine, theirs)
        self.speed = _mean(self.speed, other.speed, mine, theirs)
        self.full = self.full and other.full
        self.decode = self.decode and other.decode


@dataclass(frozen=True, slots=True)
class Verdict:
    """A kind that numbers give, and the lines that show it."""

    kind: str
    lines: tuple[int, ...]
    action: str = ""


@dataclass(slots=True)
class Numbers:
    """Fed with decode lines and with other lines about acceptance, in their order."""

    interval: int = DEFAULT_INTERVAL
    drafted: int | None = None  # tokens a verify step, from the server's arguments
    _points: list[Point] = field(default_factory=list)
    _speakers: dict[str, str] = field(default_factory=dict)
    _trends: list[Verdict] = field(default_factory=list)
    _every: int = 1  # lines that one point stands for

    @property
    def every(self) -> int:
        """Lines that one point stands for: more, the longer the input."""
        return self._every

    def decode(
        self, number: int, line: DecodeBatch, text: str = "", alike: Sequence[float] = ()
    ) -> None:
        """Take in a decode line, of which `text` is shown. Where all ranks print the same batch,
        the first one's count. It stands for as many lines as `alike` has accept lengths."""
        group = line.rank.partition(" ")[0] if line.rank.startswith("DP") else ""
        if self._speakers.setdefault(group, line.rank) != line.rank or line.accept_len is None:
            return
        running = max(line.running, 1)
        speed = line.gen_throughput
        lengths = alike or (line.accept_len,)
        self._add(
            Point(
                line=number,
                count=len(lengths),
                steps=self.interval * len(lengths),
                running=running,
                tokens=None if line.tokens is None else line.tokens / running,
                length=statistics.fmean(lengths),
                speed=None if speed is None else speed / running,
                full=min(lengths) >= line.accept_len - 0.005
                and self._full(line.accept_len, line.accept_rate),
                decode=True,
                whole=line.accept_rate is None
                and self.drafted is None
                and line.accept_len > _NOTHING
                and line.accept_len.is_integer()
                and min(lengths) == max(lengths),
                text=text,
            )
        )

    def text(self, number: int, text: str) -> bool:
        """Take in a line of another form. True if it says something of acceptance."""
        if (change := _FROM_TO.search(text)) is not None:
            before, after = float(change[1]), float(change[2])
            if after <= _NOTHING < before and "rate" not in change[0].lower():
                self._trends.append(Verdict("zero_acceptance", (number,)))
            elif after < 0.9 * before:
                self._trends.append(Verdict("acceptance_decay", (number,), action="upgrade"))
            return True
        length = _LENGTH.search(text)
        if length is None or _TORN in text:
            return False
        rate = _RATE.search(text)
        share = None if rate is None else float(rate[1]) / (100 if rate[2] else 1)
        value = float(length[1] or length[2])
        running, tokens = _RUNNING.search(text), _TOKENS.search(text)
        self._add(
            Point(
                line=number,
                count=1,
                steps=DEFAULT_INTERVAL,
                running=int(running[1]) if running else 1,
                tokens=float(tokens[1]) * (1024 if tokens[2] else 1) if tokens else None,
                length=value,
                speed=None,
                full=self._full(value, share),
                decode=False,
                text=text,
            )
        )
        return True

    def verdicts(self) -> Iterator[Verdict]:
        """Everything that the lines show, the worst first."""
        points = self._points
        if self.full and sum(point.steps for point in points) >= _FULL_STEPS:
            yield Verdict("implausible_acceptance", self.full)
        elif stretch := _sits(points):
            yield Verdict("implausible_acceptance", stretch)
        collapse = _collapse(points)
        yield from collapse
        yield from _zero(points)
        yield from self._trends
        if not collapse:
            yield from _decay(points)
        yield from _slow(points)

    def shown(self, line: int) -> str:
        """The text of a line that a verdict names."""
        return next((point.text for point in self._points if point.line == line), "")

    @property
    def full(self) -> tuple[int, ...]:
        """Lines, if all there are, on which everything drafted was accepted; however few."""
        return _ends(self._points) if self._points and all(p.full for p in self._points) else ()

    def _full(self, length: float, rate: float | None) -> bool:
        if length <= _NOTHING:
            return False
        if self.drafted is not None:
            return length >= self.drafted - 0.005
        return rate is not None and rate >= _FULL_RATE

    def _add(self, point: Point) -> None:
        last = self._points[-1] if self._points else None
        if last is not None and last.count < self._every:
            last.absorb(point)
            return
        self._points.append(point)
        if len(self._points) > _KEPT:
            rest = self._points.pop() if len(self._points) % 2 else None
            for one, other in zip(self._points[::2], self._points[1::2], strict=True):
                one.absorb(other)
            self._points = [*self._points[::2], *([] if rest is None else [rest])]
            self._every *= 2


def _mean(one: float | None, other: float | None, mine: int, theirs: int) -> float | None:
    return None if one is None or other is None else (one * mine + other * theirs) / (mine + theirs)


def _ends(points: Sequence[Point]) -> tuple[int, ...]:
    return tuple(dict.fromkeys((points[0].line, points[-1].line)))


def _sits(points: Sequence[Point]) -> tuple[int, ...]:
    """The ends of the stretch at the maximum in which the decode lines end, if it is a long one.

    A text of which the better part is a loop ends in it; one that is left again is foreseen for
    a while only. A mean over tens of steps that is the same whole number line after line is a
    maximum, too.
    """
    decode = [point for point in reversed(points) if point.decode]
    if not decode or not (decode[0].full or decode[0].whole):
        return ()

    def alike(point: Point) -> bool:
        return point.full if decode[0].full else point.whole and point.length == decode[0].length

    tail = list(takewhile(alike, decode))
    long = sum(p.count for p in tail) >= _MANY and sum(p.steps for p in tail) >= _LONG_STEPS
    return _ends(tail[::-1]) if long else ()


def _zero(points: Sequence[Point]) -> Iterator[Verdict]:
    """Every decode line at accept length 1, or every one for long at the end, or a summary."""
    decode = [point for point in points if point.decode]
    tail: list[Point] = []
    for point in reversed(decode):
        if point.length > _NOTHING:
            break
        tail.append(point)
    count = sum(point.count for point in tail)
    steps = sum(point.steps for point in tail)
    whole = len(tail) == len(decode) and count >= 2 and steps >= _ZERO_STEPS
    if whole or (count >= _MANY and steps >= _LONG_STEPS):
        yield Verdict("zero_acceptance", _ends(tail[::-1]))
    zero = [point for point in points if not point.decode and point.length <= _NOTHING]
    if zero:
        mended = any(not p.decode and p.line > zero[0].line and p not in zero for p in points)
        yield Verdict("zero_acceptance", _ends(zero), action="upgrade" if mended else "")


def _collapse(points: Sequence[Point]) -> list[Verdict]:
    """One request alone against two or more, at sequences of like length."""
    alone = [point for point in points if point.running < 1.5]
    together = [point for point in points if point.running >= 1.5]
    if not _comparable(alone, together, points):
        return []
    before, after = _length(alone), _length(together)
    longer = _tokens(together) > _LONGER * _tokens(alone) > 0
    if longer or before < 1.5 or after - 1 > _COLLAPSE * (before - 1):
        return []
    lines = tuple(point.line for point in together)[:1]
    return [Verdict("acceptance_collapse", lines)]


def _decay(points: Sequence[Point]) -> Iterator[Verdict]:
    """By the sequences' length where it differs much, else by time."""
    known = sorted((p for p in points if p.tokens), key=lambda point: point.tokens or 0.0)
    if known:
        middle = (known[0].tokens or 1.0) * _LONGER
        short = [point for point in known if (point.tokens or 0.0) < middle]
        long = [point for point in known if (point.tokens or 0.0) >= max(middle, _LONG)]
        if _comparable(short, long, points) and _length(long) < _DECAY * _length(short):
            yield Verdict("acceptance_decay", (min(point.line for point in long),))
            return
    if _falls([point.length for point in points], _DECAY, points):
        yield Verdict("acceptance_decay", (points[-1].line,))


def _slow(points: Sequence[Point]) -> Iterator[Verdict]:
    speeds = [point.speed for point in points if point.speed]
    enough = sum(p.count for p in points) >= 4 * _MANY and len(speeds) == len(points)
    if enough and _falls(speeds, _SLOW, points):
        yield Verdict("throughput_collapse", (points[-1].line,))


def _falls(values: Sequence[float], share: float, points: Sequence[Point]) -> bool:
    """Whether the quarters fall one after the other, to `share` of the first or less, at a
    load that stays what it was."""
    size = len(values) // 4
    if sum(point.count for point in points) < _MANY or size == 0:
        return False
    quarters = [statistics.median(values[n * size : (n + 1) * size]) for n in range(4)]
    first, last = points[:size], points[-size:]
    load = statistics.fmean(p.running for p in last) / statistics.fmean(p.running for p in first)
    return (
        0.5 <= load <= 2.0
        and quarters[0] > quarters[1] > quarters[2] > quarters[3]
        and quarters[3] < share * quarters[0]
        and min(values[:size]) > max(values[-size:])
    )


def _comparable(one: Sequence[Point], other: Sequence[Point], every: Sequence[Point]) -> bool:
    """Lines enough on both sides; a few are enough where that is all there are."""
    if not one or not other:
        return False
    if len(every) < 2 * _ENOUGH:
        return True
    return min(sum(p.count for p in one), sum(p.count for p in other)) >= _ENOUGH


def _length(points: Iterable[Point]) -> float:
    return statistics.median(point.length for point in points)


def _tokens(points: Sequence[Point]) -> float:
    known = [point.tokens for point in points if point.tokens]
    return statistics.median(known) if known else 0.0
