"""The log lines of SGLang: how the texts of `releases` are recognised and read.

A line is known by its head, the first sentence of its text; its values are read by key, since
their order, separators and neighbours differ from version to version (0.4.4 to 0.5.23 are
covered by the test data), and a line can be cut short.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from opsctl.sglang import lines as ln
from opsctl.sglang.releases import RELEASES, lines_of

# "[2026-01-31 10:20:30 DP0 TP1] ", "[2026-01-31 10:20:30] ", "[TP0] ", and 0.4's "[gpu_id=0] ".
PREFIX: Final = re.compile(
    r"\[(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)?"
    r"(?P<rank>(?: ?\b(?:DP|TP|PP|EP|CP|ATTN_\w+?|MOE_\w+?)\d+)*| ?gpu_id=\d+)\] "
)

# A bar ends without a newline, so the next writer continues its line.
_AFTER_BAR: Final = re.compile(r"(?<=it/s\]|s/it\])(?=\[\d{4}-\d\d-\d\d )")

_SECRET: Final = re.compile(r"key|token$|password|secret", re.IGNORECASE)
Build = Callable[[re.Match[str], str], ln.LogLine | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """`needle` is a plain substring of every match, which rejects most lines cheaply."""

    kind: str
    needle: str
    pattern: re.Pattern[str]
    build: Build


# A placeholder with what stands before it: `#token: {tokens}`, `elapsed={elapsed}`.
_KEYED: Final = re.compile(
    r"(?:^|(?<=[, .(}]))(?P<key>#?[A-Za-z][^#,={}.]*?(?:: |=))\{(?P<name>\w+)\}"
)
_PLACEHOLDER: Final = re.compile(r"\{(\w*)\}")
_SENTENCE: Final = re.compile(r"(?<=\.)(?= |$)|(?= \()")


def _keys(kind: str) -> dict[str, str]:
    """What stands before each value of a kind of line, and the value's name."""
    return {
        match["key"]: match["name"]
        for line in lines_of(kind)
        for part in line
        for match in _KEYED.finditer(part.text)
    }


def _head(kind: str) -> str:
    """A pattern for the first sentence of each form, up to a parenthesis; without one, for what
    comes before its values."""
    heads: dict[str, None] = {}
    for line in lines_of(kind):
        text = line[0].text
        if end := _SENTENCE.search(text):
            text = text[: end.start()]
        elif values := _PLACEHOLDER.search(text):
            text = text[: values.start()]
        heads[_pattern_of(text)] = None
    return f"(?:{'|'.join(heads)})"


def _pattern_of(text: str) -> str:
    literal, *rest = _PLACEHOLDER.split(text)  # literal, name, literal, name, ...
    pattern = re.escape(literal)
    for name, literal in zip(rest[::2], rest[1::2], strict=True):
        pattern += r"\w+ graph" if name == "graph_label" else r"[\w -]*?"
        pattern += re.escape(literal)
    return pattern


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text.rstrip("%"))
    except ValueError:
        return None


def _integer(text: str | None) -> int | None:
    number = _number(text)
    return None if number is None else int(number)


def _truth(text: str | None) -> bool | None:
    return {"True": True, "False": False}.get(text or "")


def _batch(kind: str) -> Callable[[str], dict[str, str]]:
    """A reader of `#running-req: 3, token usage: 0.10`, by the names of the values."""
    fields = {key.removesuffix(": "): name for key, name in _keys(kind).items()}
    fields |= {label: "cuda_graph" for release in RELEASES for label in release.graph_labels}

    def read(text: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for part in text.split(","):
            key, colon, value = part.partition(": ")
            if colon and (name := fields.get(key.strip())) is not None:
                found.setdefault(name, value.strip())
        return found

    return read


def _decode() -> Build:
    read = _batch("decode")

    def build(match: re.Match[str], rank: str) -> ln.DecodeBatch:
        fields = read(match["fields"])
        return ln.DecodeBatch(
            rank=rank,
            running=_integer(fields.get("running")) or 0,
            tokens=_integer(fields.get("tokens")),
            usage=_number(fields.get("usage")),
            accept_len=_number(fields.get("accept_len")),
            accept_rate=_number(fields.get("accept_rate")),
            cuda_graph=_truth(fields.get("cuda_graph")),
            gen_throughput=_number(fields.get("gen_throughput")),
            queue=_integer(fields.get("queue")),
        )

    return build


def _prefill() -> Build:
    read = _batch("prefill")

    def build(match: re.Match[str], rank: str) -> ln.PrefillBatch:
        fields = read(match["fields"])
        return ln.PrefillBatch(
            rank=rank,
            new_seqs=_integer(fields.get("new_seqs")),
            new_tokens=_integer(fields.get("new_tokens")),
            cached_tokens=_integer(fields.get("cached_tokens")),
            usage=_number(fields.get("usage")),
            running=_integer(fields.get("running")),
            queue=_integer(fields.get("queue")),
        )

    return build


def _keyed(kind: str, make: Callable[[dict[str, str], str], ln.LogLine | None]) -> Build:
    """Values by what stands before them, wherever in the line."""
    patterns = [
        (name, re.compile(r"(?<![\w_])" + re.escape(key) + r"([^\s,]+)"))
        for key, name in _keys(kind).items()
    ]

    def build(match: re.Match[str], rank: str) -> ln.LogLine | None:
        values: dict[str, str] = {}
        for name, pattern in patterns:
            if found := pattern.search(match.string):
                values.setdefault(name, found[1])
        return make(values, rank)

    return build


def _capture(state: Literal["begin", "end"]) -> Build:
    return _keyed(
        f"graph_{state}",
        lambda values, rank: ln.GraphCapture(
            rank=rank,
            state=state,
            elapsed_s=_number(values.get("elapsed")),
            tokens_per_request=_integer(values.get("width")),
        ),
    )


def _kv_cache(values: dict[str, str], rank: str) -> ln.KvCacheAllocated | None:
    tokens = _integer(values.get("tokens"))
    return None if tokens is None else ln.KvCacheAllocated(rank=rank, tokens=tokens)


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


def _rule(kind: str, needle: str, build: Build, *, tail: str = "") -> Rule:
    return Rule(kind, needle, re.compile(_head(kind) + tail), build)


_BATCH: Final = r"[.,]?(?: \[\d+\])?[.,]? (?P<fields>.*)"
# tqdm's own format, and SGLang's BAR_FORMAT (srt/utils/common.py), after a bar's text.
_TQDM: Final = r"[^|\n]*?: +\d+%\|[^|]*\| (?P<done>\d+)/(?P<total>\d+)"
_BAR: Final = r": +\d+% Completed \| (?P<done>\d+)/(?P<total>\d+)"

# Tried in order at the start of a line, after its prefix.
RULES: Final[tuple[Rule, ...]] = (
    _rule("decode", "Decode batch", _decode(), tail=_BATCH),
    _rule("prefill", "Prefill batch", _prefill(), tail=_BATCH),
    _rule("shards", " shards: ", _last(ln.WeightShards), tail=_BAR),
    _rule("capturing", "Capturing batches", _last(ln.CapturingBatches), tail=_TQDM),
    _rule("distributed_begin", "Init torch distributed begin", _plain(ln.DistributedBegin)),
    _rule(
        "distributed_end",
        "Init torch distributed ends",
        _keyed(
            "distributed_end",
            lambda values, rank: ln.DistributedEnd(
                rank=rank, elapsed_s=_number(values.get("elapsed"))
            ),
        ),
    ),
    _rule("weights_begin", "Load weight begin", _plain(ln.LoadWeightBegin)),
    _rule(
        "weights_end",
        "Load weight end",
        _keyed(
            "weights_end",
            lambda values, rank: ln.LoadWeightEnd(
                rank=rank,
                elapsed_s=_number(values.get("elapsed")),
                model_type=values.get("type", ""),
            ),
        ),
    ),
    _rule("kv_cache", "Cache is allocated", _keyed("kv_cache", _kv_cache)),
    _rule("memory_pool_end", "Memory pool end", _plain(ln.MemoryPoolEnd)),
    _rule("graph_begin", "graph begin", _capture("begin")),
    _rule("graph_end", "graph end", _capture("end")),
    _rule("draft_ready", "DFLASH draft runner ready", _plain(ln.DraftRunnerReady)),
    _rule("verify_completed", "DFLASH verify completed", _plain(ln.VerifyCompleted)),
    _rule("ready", "fired up and ready to roll", _plain(ln.ServerReady), tail=r"\s*$"),
    _rule("server_args", "server_args=", _server_args, tail=r"(?P<call>ServerArgs\(.*\))\s*$"),
    # Not of SGLang: uvicorn's own line, and that of the ddtree patch set.
    Rule(
        "uvicorn",
        "Uvicorn running on",
        re.compile(r"(?:INFO: +)?Uvicorn running on "),
        _plain(ln.UvicornRunning),
    ),
    Rule(
        "ddtree",
        "DDTREE metrics",
        re.compile(r".{0,80}?DDTREE metrics\b(?P<fields>.*)"),
        _ddtree,
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
