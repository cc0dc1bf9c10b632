"""One question, asked of every source; and why the answers can differ. None is picked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from opsctl.acceptance.measure import Measured
from opsctl.sglang.metrics import by_rank
from opsctl.sglang.releases import RELEASES
from opsctl.text import counted

# Lines round to two digits, and a line's requests are those of its last step: answers closer
# than this are the same.
_TOLERANCE: Final = 0.02

_STATE: Final = RELEASES[0].state
_GAUGES: Final = RELEASES[0].gauges
_LIFETIME: Final = "since the server started or its cache was flushed"
_LAST: Final = "the last decode line's steps only"
_PASSES: Final = "every decode step since the server started"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """What the server's endpoints said; None where they could not be asked.

    `info` is `/server_info`, `metrics` is `parse_metrics` of `/metrics`. `faults` says why one
    is missing.
    """

    info: Mapping[str, Any] | None = None
    metrics: Mapping[str, float] | None = None
    faults: tuple[str, ...] = ()

    @property
    def version(self) -> str | None:
        found = (self.info or {}).get("version")
        return found if isinstance(found, str) else None


@dataclass(frozen=True, slots=True)
class Figure:
    """One source's answer. `over` says of which steps; `rank` is a data-parallel one."""

    source: str
    value: float
    over: str
    rank: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """`unit` is as Prometheus names it; `why` says how far the answers are apart, and why."""

    name: str
    unit: str
    figures: tuple[Figure, ...]
    why: str = ""

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def reconcile(measured: Measured, endpoints: Endpoints, *, lifetime: bool) -> tuple[Question, ...]:
    """Every question that some source answers.

    `lifetime` says that the span is the whole present start, as the server's own counters are.
    """
    metrics = dict(endpoints.metrics or {})
    asked = {
        ("accept_length", "tokens"): _accept_length(measured, endpoints, metrics),
        ("cuda_graph", "ratio"): _cuda_graph(measured, metrics),
        ("gen_throughput", "tokens_per_second"): _throughput(measured, endpoints, metrics),
        ("verify_steps", "steps"): _steps(measured, metrics),
        ("verifies", "requests"): _verifies(measured, metrics),
        ("requests_running", "requests"): _now(measured.running, "running", metrics),
        ("requests_queued", "requests"): _now(measured.queue, "queue", metrics),
    }
    found = []
    for (name, unit), answers in asked.items():
        figures = tuple(answers)
        if figures:
            why = _why(name, figures, measured, lifetime=lifetime)
            found.append(Question(name, unit, figures, why))
    return tuple(found)


def _accept_length(
    measured: Measured, endpoints: Endpoints, metrics: dict[str, float]
) -> Iterator[Figure]:
    length, tree = measured.acceptance.accept_len, measured.tree
    if length is not None:
        yield Figure("decode lines", length.mean, f"{_covered(measured)}, weighed by requests")
    if tree is not None and tree.accept_len is not None:
        over = f"this span, {tree.verifies} verifies in {counted(tree.lines, 'line')}"
        yield Figure("DDTREE lines", tree.accept_len, over)
    for rank, value in _states(endpoints, "accept_len"):
        yield Figure("/server_info", value, _LIFETIME, rank)
    for rank, value in by_rank(metrics, _GAUGES["accept_len"]).items():
        if value > 0:  # 0 stands for no decode line yet
            yield Figure("/metrics", value, _LAST, rank)


def _cuda_graph(measured: Measured, metrics: dict[str, float]) -> Iterator[Figure]:
    share = measured.acceptance.cuda_graph_share
    if share is not None:
        yield Figure("decode lines", share, "this span, the last step of each line")
    passes = _decode_passes(metrics)
    if total := sum(passes.values()):
        yield Figure("/metrics", passes.get("decode_cuda_graph", 0.0) / total, _PASSES)


def _throughput(
    measured: Measured, endpoints: Endpoints, metrics: dict[str, float]
) -> Iterator[Figure]:
    if measured.gen_throughput is not None:
        yield Figure("decode lines", measured.gen_throughput.p50, "this span, median of lines")
    for rank, value in _states(endpoints, "gen_throughput"):
        yield Figure("/server_info", value, _LAST, rank)
    for rank, value in by_rank(metrics, _GAUGES["gen_throughput"]).items():
        yield Figure("/metrics", value, _LAST, rank)


def _steps(measured: Measured, metrics: dict[str, float]) -> Iterator[Figure]:
    if measured.acceptance.accept_len is not None:
        yield Figure("decode lines", measured.steps, _covered(measured))
    if measured.tree is not None and measured.tree.steps:
        over = f"this span, counted in {counted(measured.tree.lines, 'line')}"
        yield Figure("DDTREE lines", measured.tree.steps, over)
    if total := sum(_decode_passes(metrics).values()):
        yield Figure("/metrics", total, _PASSES)


def _verifies(measured: Measured, metrics: dict[str, float]) -> Iterator[Figure]:
    """Verify steps times the requests in each."""
    if measured.verifies:
        yield Figure("decode lines", measured.verifies, _covered(measured))
    if measured.tree is not None and measured.tree.verifies:
        over = f"this span, counted in {counted(measured.tree.lines, 'line')}"
        yield Figure("DDTREE lines", measured.tree.verifies, over)
    ranks = by_rank(metrics, _GAUGES["verifies"])  # 0.5.23 and newer
    if total := sum(ranks.values()):
        yield Figure("/metrics", total, "of requests that ended since the server started")


def _now(count: int | None, what: str, metrics: dict[str, float]) -> Iterator[Figure]:
    if count is not None:
        yield Figure("decode lines", count, "at the last decode line")
    ranks = by_rank(metrics, _GAUGES[what])
    if ranks:
        yield Figure("/metrics", sum(ranks.values()), "as the scheduler last reported")


def _covered(measured: Measured) -> str:
    lines = counted(measured.acceptance.count, "line")
    return f"this span, {lines} for {counted(measured.steps, 'step')}"


def _states(endpoints: Endpoints, what: str) -> Iterator[tuple[str, float]]:
    """A value of each data-parallel rank's internal state."""
    told = (endpoints.info or {}).get("internal_states")
    states = [state for state in told if isinstance(state, dict)] if isinstance(told, list) else []
    for place, state in enumerate(states):
        value = state.get(_STATE[what])
        if isinstance(value, int | float):
            yield (f"DP{place}" if len(states) > 1 else ""), float(value)


def _decode_passes(metrics: Mapping[str, float]) -> dict[str, float]:
    """Decode steps of all ranks by mode: decode_cuda_graph and decode_none."""
    passes: dict[str, float] = {}
    for key, value in metrics.items():
        name, _, labels = key.partition("{")
        if name == _GAUGES["passes"]:
            for mode in ("decode_cuda_graph", "decode_none"):
                if f'mode="{mode}"' in labels:
                    passes[mode] = passes.get(mode, 0.0) + value
    return passes


def _why(name: str, figures: Sequence[Figure], measured: Measured, *, lifetime: bool) -> str:
    """How far the answers are apart, and why those that differ from the first one may."""
    first = figures[0]
    scale = max(abs(figure.value) for figure in figures)
    apart = [f for f in figures if abs(f.value - first.value) > _TOLERANCE * scale]
    if not apart:
        return ""
    reasons: dict[str, dict[str, None]] = {}
    for figure in apart:
        reason = _reason(name, figure, measured, lifetime=lifetime)
        reasons.setdefault(reason, {})[figure.source] = None
    furthest = max(abs(figure.value - first.value) for figure in apart)
    told = "; ".join(f"{', '.join(sources)}: {reason}" for reason, sources in reasons.items())
    return f"up to {furthest:.3g} apart ({told})"


def _reason(name: str, other: Figure, measured: Measured, *, lifetime: bool) -> str:
    by_ddtree = other.source == "DDTREE lines"
    counted_steps = measured.tree.steps if measured.tree else 0
    reasons = {
        "an idle scheduler reports seldom, and prints no decode line": name.startswith("requests_"),
        "only what the last decode line covers": other.over == _LAST,
        "a data-parallel rank has batches of its own": bool(other.rank),
        f"they cover {counted_steps} of {measured.steps} steps": (
            by_ddtree and counted_steps < (1 - _TOLERANCE) * measured.steps
        ),
        "every verify is counted, a decode line's requests are those at its end": by_ddtree,
        "counted from the server's start, which is not this span": not lifetime,
        "also the steps that no line has yet": name == "verify_steps",
        "only of requests that have ended": name == "verifies",
        "every step is counted; lines are rounded, and the journal may lack some": True,
    }
    return next(text for text, applies in reasons.items() if applies)
