"""The tables and the plot of `opsctl metrics`."""

from __future__ import annotations

import contextlib
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from opsctl.cli.terminal import console, plain
from opsctl.columns import runs
from opsctl.text import duration

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from opsctl.acceptance import Measured
    from opsctl.report import Report
    from opsctl.rollout.metering import Previous, Reading

Draw = Callable[["Reading", "Previous", "Report"], None]

# More batch sizes than this are put together: 1, 2, 3-4, 5-8, ...
_SIZES = 8
_PLOT_WIDTH, _PLOT_HEIGHT = 64, 8
_BRAILLE = "\u28ff"  # what a plot is made of


def show(reading: Reading, previous: Previous, sources: Sequence[Mapping[str, Any]]) -> None:
    """On stdout: the span beside the generation before, by batch size, by source, over time."""
    out = console(sys.stdout)
    for part in _parts(reading, previous, sources, out):
        out.print(part)


@contextlib.contextmanager
def live(stream: TextIO, *, quiet: bool) -> Iterator[Draw]:
    """Where `stream` is a terminal, tables that redraw themselves; elsewhere a line each."""
    from rich.console import Group
    from rich.live import Live

    out = console(stream)
    if quiet or not out.is_terminal:
        yield lambda reading, previous, report: out.print(_escaped(report.summary))
        return
    with Live(console=out, auto_refresh=False, transient=False) as screen:

        def draw(reading: Reading, previous: Previous, report: Report) -> None:
            parts = _parts(reading, previous, (), out)  # a screen is no higher
            screen.update(Group(*parts, _escaped(report.summary)), refresh=True)

        yield draw


def _parts(
    reading: Reading,
    previous: Previous,
    sources: Sequence[Mapping[str, Any]],
    out: Console,
) -> Iterator[RenderableType]:
    measured = reading.measured
    if not measured.acceptance.count:
        return
    yield _title(reading, previous)
    yield _comparison(measured, previous)
    yield ""
    if len(measured.batch_sizes) > 1:
        yield _by_batch_size(measured, previous.measured)
        yield ""
    if sources:
        yield _sources(sources)
        yield ""
    if plot := _plot(measured, out):
        yield plot


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(plain(text))


def _table(*heads: str) -> Table:
    from rich.table import Table

    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, head in enumerate(heads):
        found.add_column(_escaped(head), justify="right" if place else "left", no_wrap=True)
    return found


def _title(reading: Reading, previous: Previous) -> str:
    told = reading.generation is None or "generation" in reading.label
    number = "" if told else f" (generation {reading.generation})"
    beside = f" beside {previous.label}" if previous.measured else ""
    return _escaped(f"{reading.label}{number}{beside}")


def _comparison(now: Measured, previous: Previous) -> Table:
    then = previous.measured
    if then is None or not then.acceptance.count or previous.stay is None:
        found = _table("", "now")
        for name, value, style in _rows(now):
            found.add_row(name, _shown(value, style))
        return found
    found = _table("", "now", f"generation {previous.stay.number}", "ratio")
    for (name, value, style), (_, other, _) in zip(_rows(now), _rows(then), strict=True):
        ratio = ""
        if value is not None and other and name not in _NO_RATIO:
            ratio = f"{value / other:.2f}"
        found.add_row(name, _shown(value, style), _shown(other, style), ratio)
    return found


_NO_RATIO = frozenset({"decode lines", "requests running", "requests queued"})


def _rows(measured: Measured) -> list[tuple[str, float | None, str]]:
    length, speed = measured.acceptance.accept_len, measured.gen_throughput
    return [
        ("accept length, mean", length.mean if length else None, ".2f"),
        ("accept length, p10", length.p10 if length else None, ".2f"),
        ("accept length, p50", length.p50 if length else None, ".2f"),
        ("accept length, p90", length.p90 if length else None, ".2f"),
        ("draft acceptance", measured.draft_acceptance, ".0%"),
        ("cuda graph", measured.acceptance.cuda_graph_share, ".0%"),
        ("gen throughput, p50, token/s", speed.p50 if speed else None, ".1f"),
        ("decode lines", measured.acceptance.count, "d"),
        ("requests running", measured.running, "d"),
        ("requests queued", measured.queue, "d"),
    ]


def _shown(value: float | None, style: str) -> str:
    return "-" if value is None else format(value, style)


def _by_batch_size(now: Measured, then: Measured | None) -> Table:
    heads = ["requests running", "lines", "accept length", "token/s"]
    found = _table(*heads, *(["before"] if then else []))
    for low, high in _bins(list(now.batch_sizes)):
        mine, others = _within(now, low, high), _within(then, low, high) if then else None
        row = [f"{low}" if low == high else f"{low}-{high}", *mine]
        found.add_row(*row, *([others[1]] if others else []))
    return found


def _bins(sizes: Sequence[int]) -> list[tuple[int, int]]:
    if len(sizes) <= _SIZES:
        return [(size, size) for size in sizes]
    bins: list[tuple[int, int]] = [(0, 0)] if 0 in sizes else []
    low = high = 1
    while low <= max(sizes):
        if any(low <= size <= high for size in sizes):
            bins.append((low, high))
        low, high = high + 1, high * 2
    return bins


def _within(measured: Measured, low: int, high: int) -> tuple[str, str, str]:
    """Lines, accept length and median throughput of the batch sizes from `low` to `high`."""
    chosen = {size: one for size, one in measured.batch_sizes.items() if low <= size <= high}
    lengths = [
        (one.accept_len.mean, one.lines * max(size, 1))
        for size, one in chosen.items()
        if one.accept_len is not None
    ]
    speeds = [one.gen_throughput for one in chosen.values() if one.gen_throughput is not None]
    mean = statistics.fmean(*zip(*lengths, strict=True)) if lengths else None
    return (
        str(sum(one.lines for one in chosen.values())),
        _shown(mean, ".2f"),
        _shown(statistics.median(speeds) if speeds else None, ".1f"),
    )


def _sources(sources: Sequence[Mapping[str, Any]]) -> Table:
    from rich.table import Table

    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    found.add_column("what", no_wrap=True)
    found.add_column("source", no_wrap=True)
    found.add_column("value", justify="right", no_wrap=True)
    found.add_column("over")
    for question in sources:
        name = str(question["name"]).replace("_", " ")
        style = {"ratio": ".0%", "requests": ".0f", "steps": ".0f"}.get(question["unit"], ".2f")
        for figure in question["figures"]:
            source = f"{figure['source']} {figure['rank']}".strip()
            value = _shown(figure["value"], style)
            found.add_row(name, source, value, _escaped(figure["over"]))
            name = ""
        if question["why"]:
            found.add_row("", "", "", f"[yellow]{_escaped(question['why'])}[/]")
    return found


def _plot(measured: Measured, out: Console) -> RenderableType | None:
    """Accept length over time; nothing where no terminal is there to show it."""
    from rich.text import Text

    drawn = runs(measured.history, _PLOT_WIDTH)
    points = [column for run in drawn for column in run]
    if not out.is_terminal or len(points) < 2 or not _can_print(_BRAILLE, out.encoding):
        return None
    import plotille

    end = points[-1].at
    top = max(column.mean for column in points)
    figure = plotille.Figure()
    figure.width = min(_PLOT_WIDTH, max(out.width - 24, 16))
    figure.height = _PLOT_HEIGHT
    figure.origin = False
    figure.color_mode = "names"
    figure.with_colors = not out.no_color
    figure.x_label, figure.y_label = "before the last decode line", "accept length"
    figure.register_label_formatter(float, _label)
    figure.set_y_limits(min_=1.0, max_=max(top, 1.5))
    figure.set_x_limits(min_=points[0].at - end, max_=0.0)
    figure.x_ticks_fkt = lambda least, most: _ago(-least, most - least)
    figure.y_ticks_fkt = lambda least, most: f"{least:.1f}"
    for run in drawn:
        draw = figure.plot if len(run) > 1 else figure.scatter
        color = None if out.no_color else "cyan"
        draw([column.at - end for column in run], [column.mean for column in run], lc=color)
    return Text.from_ansi(figure.show())


def _ago(seconds: float, step: float) -> str:
    return f"{seconds:.1f}s" if step < 5 else duration(max(seconds, 0.0))


def _label(value: float, chars: int, delta: float, left: bool = False) -> str:
    return f"{value:.1f}".ljust(chars) if left else f"{value:.1f}".rjust(chars)


def _can_print(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeError, LookupError):
        return False
    return True
