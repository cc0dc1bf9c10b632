"""Plots as inline SVG that needs no script, no style sheet and no font of its own.

The libraries that draw SVG in pure Python were looked at: pygal puts a script and colours of its
own into each plot, leather cannot follow the reader's light or dark scheme, and neither
has a bar from one moment to another. What is needed of them is ticks and four kinds of shapes.

Shapes carry plain presentation attributes, so that they stay readable where a style sheet is
blocked (Jenkins' content security policy); the page's classes lay its colours over them. All
have the same width in user units, so text has the same size in each.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from opsctl.columns import Column, runs
from opsctl.gate.model import Series, Span
from opsctl.gate.words import cut, figure, visible
from opsctl.text import duration

WIDTH: Final = 360
_HEIGHT: Final = 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 12, 38
_COLUMNS: Final = 150  # of a series: two user units each
_LEAST: Final = 1e-12  # what is less apart is the same, in any unit
_ROW: Final = 34  # of a timeline, with the name above its bar
_NAME: Final = 36  # characters of a span's name that fit beside its duration
_BINS: Final = 14
_NARROW: Final = 0.5  # the least width of a histogram, in its values' unit

_LOOKS: Final = {
    "grid": {"stroke": "currentColor", "stroke-opacity": "0.2"},
    "label": {"fill": "currentColor", "font-size": "11"},
    "band": {"fill": "currentColor", "fill-opacity": "0.18"},
    "line": {"fill": "none", "stroke": "currentColor", "stroke-width": "1.5"},
    "dot": {"fill": "currentColor"},
    "bar": {"fill": "currentColor", "fill-opacity": "0.35", "stroke": "currentColor"},
    "before": {
        "fill": "none",
        "stroke": "currentColor",
        "stroke-width": "1.8",
        "stroke-dasharray": "5 3",
    },
    "span": {"fill": "currentColor", "fill-opacity": "0.85"},
}


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to user units."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        part = (value - self.low) / (self.high - self.low)
        return round(self.start + part * (self.end - self.start), 2)


def ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart), about `count` of them: the first
    at or below `low`, the last at or above `high`. They differ though the two do not.

    After P. Heckbert, Nice Numbers for Graph Labels, in Graphics Gems (1990).
    """
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low < _LEAST:
        high = low + 1.0
    rough = (high - low) / max(count - 1, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(nice for nice in (1, 2, 5, 10) if rough <= nice * power * (1 + 1e-9)) * power
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [place * step for place in range(first, last + 1)]


def over_time(series: Series, key: str) -> Markup:
    """A line through the mean of each column's points, in a band from the least to the most.

    `key` is the first part of the ids, which must differ between the plots of a page.
    """
    points = [point for point in series.points if all(map(math.isfinite, point))]
    told = f"{series.name} over time, {series.unit}"
    if not points:
        return _svg(key, told, "no figures", 40, [])
    values = [value for _, value in points]
    mean = math.fsum(values) / len(values)
    unit, factor = _time_unit(points[-1][0])
    across = ticks(points[0][0] / factor, points[-1][0] / factor, 6)
    up = ticks(min(*values, 0.0), max(values), 5)
    x = Scale(across[0] * factor, across[-1] * factor, _LEFT, WIDTH - _RIGHT)
    y = Scale(up[0], up[-1], _HEIGHT - _BOTTOM, _TOP)
    shapes = _axes(x, y, [(at * factor, figure(at)) for at in across], up, figure)
    shapes.append(_caption(f"{unit} since the first request"))
    for run in runs(points, _COLUMNS):
        shapes += _run(run, x, y)
    story = (
        f"{len(points):,} points from {duration(points[0][0])} to {duration(points[-1][0])}: "
        f"mean {figure(mean)}, least {figure(min(values))}, most {figure(max(values))}"
    )
    return _svg(key, told, story, _HEIGHT, shapes)


def histogram(
    now: Sequence[float], before: Sequence[float], key: str, *, name: str, label: str
) -> Markup:
    """How the values of `now` lie, as bars, and those of `before` (`label` says what that is) as
    a dashed outline: each in per cent of its own count."""
    sets = [[value for value in values if math.isfinite(value)] for values in (now, before)]
    if not sets[0]:
        return _svg(key, name, "no figures", 40, [])
    together = sets[0] + sets[1]
    low, high = min(together), max(together)
    wider = max(_NARROW - (high - low), 0.0) / 2  # or bins would differ in the fourth digit
    edges = ticks(low - wider, high + wider, _BINS)
    shares = [_shares(values, edges) for values in sets]
    up = ticks(0.0, max(max(each, default=0.0) for each in shares), 5)
    x = Scale(edges[0], edges[-1], _LEFT, WIDTH - _RIGHT)
    y = Scale(up[0], up[-1], _HEIGHT - _BOTTOM, _TOP)
    step, every = edges[1] - edges[0], math.ceil(len(edges) / 9)
    marks = [(edge, figure(edge)) for edge in edges if round(edge / step) % every == 0]
    shapes = _axes(x, y, marks, up, lambda value: f"{figure(value)}%")
    shapes.append(_caption(name))
    for place, part in enumerate(shares[0]):
        left, right, top = x(edges[place]), x(edges[place + 1]), y(part)
        width = max(right - left - 1, 0.5)
        shapes.append(_shape("rect", "bar", x=left + 0.5, y=top, width=width, height=y(0) - top))
    if sets[1]:
        shapes.append(_outline(shares[1], edges, x, y))
    stories = [f"now {_spread(sets[0])}"]
    stories += [f"{label} {_spread(sets[1])}"] if sets[1] else []
    return _svg(key, f"{name}: how often", "; ".join(stories), _HEIGHT, shapes)


def timeline(spans: Sequence[Span], key: str) -> Markup:
    """The parts of a start, a bar each from its begin to its end."""
    told = "Where the time of the start went"
    if not spans:
        return _svg(key, told, "no parts are known", 40, [])
    unit, factor = _time_unit(max(span.end for span in spans))
    across = ticks(0.0, max(span.end for span in spans) / factor, 6)
    bottom = _ROW * len(spans) + 4
    x = Scale(0.0, across[-1] * factor, 10, WIDTH - _RIGHT)
    shapes = _verticals(x, [(at * factor, figure(at)) for at in across], 0, bottom)
    shapes.append(_caption(f"{unit} since the start began", bottom + 32))
    for row, span in enumerate(spans):
        top, left = row * _ROW, x(span.begin)
        took = duration(span.end - span.begin)
        width = max(x(span.end) - left, 1.5)
        shapes += [
            _text(14, top + 14, _shortened(span.name), anchor="start"),
            _text(WIDTH - _RIGHT - 4, top + 14, took, anchor="end"),
            _shape("rect", "span", x=left, y=top + 19, width=width, height=12, rx=2),
        ]
    story = "; ".join(
        f"{span.name} from {duration(span.begin)} to {duration(span.end)}" for span in spans
    )
    return _svg(key, told, story, bottom + 40, shapes)


def _time_unit(most: float) -> tuple[str, float]:
    """Which unit gives short labels up to `most` seconds, and its seconds."""
    if most <= 180:
        return "seconds", 1.0
    return ("minutes", 60.0) if most <= 3 * 3600 else ("hours", 3600.0)


def _shortened(name: str) -> str:
    shown = visible(name)  # before it is cut: an escape takes more room than its character
    return shown if len(shown) <= _NAME else f"{shown[: _NAME - 1]}…"


def _shares(values: Sequence[float], edges: Sequence[float]) -> list[float]:
    """Per cent of the values between each two edges; the last edge belongs to its bin."""
    count = [0] * (len(edges) - 1)
    step = edges[1] - edges[0]
    for value in values:
        count[min(int((value - edges[0]) / step), len(count) - 1)] += 1
    return [100 * each / len(values) for each in count] if values else []


def _spread(values: Sequence[float]) -> str:
    mean = math.fsum(values) / len(values)
    return (
        f"{len(values):,} values, mean {figure(mean)}, least {figure(min(values))}, "
        f"most {figure(max(values))}"
    )


def _run(run: Sequence[Column], x: Scale, y: Scale) -> list[ET.Element]:
    if len(run) == 1:
        return [_shape("circle", "dot", cx=x(run[0].at), cy=y(run[0].mean), r=2.5)]
    upper = [(x(column.at), y(column.high)) for column in run]
    lower = [(x(column.at), y(column.low)) for column in reversed(run)]
    means = [(x(column.at), y(column.mean)) for column in run]
    return [
        _shape("polygon", "band", points=_points([*upper, *lower])),
        _shape("polyline", "line", points=_points(means)),
    ]


def _outline(shares: Sequence[float], edges: Sequence[float], x: Scale, y: Scale) -> ET.Element:
    corners = [(x(edges[0]), y(0))]
    for place, part in enumerate(shares):
        corners += [(x(edges[place]), y(part)), (x(edges[place + 1]), y(part))]
    corners.append((x(edges[-1]), y(0)))
    return _shape("polyline", "before", points=_points(corners))


def _axes(
    x: Scale,
    y: Scale,
    across: Iterable[tuple[float, str]],
    up: Iterable[float],
    name: Callable[[float], str],
) -> list[ET.Element]:
    found = _verticals(x, across, _TOP, _HEIGHT - _BOTTOM)
    for value in up:
        at = y(value)
        found.append(_shape("line", "grid", x1=x.start, x2=x.end, y1=at, y2=at))
        found.append(_text(x.start - 6, at + 4, name(value), anchor="end"))
    return found


def _verticals(
    x: Scale, across: Iterable[tuple[float, str]], top: float, bottom: float
) -> list[ET.Element]:
    found = []
    for value, name in across:
        at = x(value)
        found.append(_shape("line", "grid", x1=at, x2=at, y1=top, y2=bottom))
        found.append(_text(at, bottom + 15, name))
    return found


def _caption(text: str, at: float = _HEIGHT - 6) -> ET.Element:
    return _text((_LEFT + WIDTH - _RIGHT) / 2, at, text)


def _text(x: float, y: float, text: str, anchor: str = "middle") -> ET.Element:
    found = _shape("text", "label", x=x, y=y)
    found.set("text-anchor", anchor)
    found.text = visible(text)
    return found


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def _shape(tag: str, look: str, **geometry: str | float) -> ET.Element:
    shown = {
        name: value if isinstance(value, str) else f"{round(value, 2):g}"
        for name, value in geometry.items()
    }
    return ET.Element(tag, {"class": look, **shown, **_LOOKS[look]})


def _svg(key: str, title: str, story: str, height: float, shapes: Iterable[ET.Element]) -> Markup:
    """With a title and the figures in words for who does not see it."""
    svg = ET.Element(
        "svg",
        {
            "role": "img",
            "width": str(WIDTH),
            "height": f"{height:g}",
            "viewBox": f"0 0 {WIDTH} {height:g}",
            "aria-labelledby": f"{key}-title {key}-desc",
        },
    )
    for tag, text in (("title", title), ("desc", cut(story, 1000))):
        ET.SubElement(svg, tag, {"id": f"{key}-{tag}"}).text = visible(text)
    svg.extend(shapes)
    # Safe: ElementTree escapes every text and attribute.
    return Markup(ET.tostring(svg, encoding="unicode"))  # noqa: S704
