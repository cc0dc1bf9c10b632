"""Plots: ticks, and shapes that lie where the figures say."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup
from samples import LOAD, NASTY

from opsctl.gate import Series, Span, plots, words

FIGURES = st.floats(-1e12, 1e12)
TIMES = st.floats(0, 1e6)


def drawn(svg: Markup) -> ET.Element:
    root = ET.fromstring(svg)
    for element in root.iter():
        assert "on" not in {name[:2] for name in element.attrib}
    return root


def shapes(root: ET.Element, look: str) -> list[ET.Element]:
    return [each for each in root.iter() if each.get("class") == look]


def numbers(root: ET.Element) -> Iterator[tuple[str, float]]:
    """Every coordinate as (axis, value), the far ends of boxes included."""
    for each in root.iterfind(".//*"):
        if "points" in each.attrib:
            for pair in each.attrib["points"].split():
                x, y = map(float, pair.split(","))
                yield from (("x", x), ("y", y))
        for name, axis in (("x", "x"), ("x1", "x"), ("x2", "x"), ("cx", "x")):
            if name in each.attrib:
                yield axis, float(each.attrib[name]) + float(each.get("width", 0))
        for name in ("y", "y1", "y2", "cy"):
            if name in each.attrib:
                yield "y", float(each.attrib[name]) + float(each.get("height", 0))


def assert_inside(svg: Markup) -> None:
    root = drawn(svg)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for axis, value in numbers(root):
        assert -0.5 <= value <= (width if axis == "x" else height) + 0.5


@settings(deadline=None)
@given(FIGURES, FIGURES, st.integers(2, 12))
def test_ticks_are_round_and_reach_around(one: float, other: float, count: int) -> None:
    low, high = min(one, other), max(one, other)
    found = plots.ticks(low, high, count)
    step = found[1] - found[0]
    slack = step * 1e-6
    assert 2 <= len(found) <= count + 2
    assert found[0] <= low + slack
    assert found[-1] >= high - slack
    leading = float(f"{step:.6e}".split("e")[0])
    assert min(abs(leading - nice) for nice in (1, 2, 5, 10)) < 1e-4


@pytest.mark.parametrize(
    ("low", "high", "count", "expected"),
    [
        (0.0, 8.0, 5, [0, 2, 4, 6, 8]),
        (0.0, 1340.0, 5, [0, 500, 1000, 1500]),
        (0.0, 0.0, 5, [0, 0.5, 1]),
        (5.0, 5.0, 6, [0, 1, 2, 3, 4, 5]),
        (0.0, 5e-324, 5, [0, 0.5, 1]),
        (-4.0, -4.0, 5, [-4, -3, -2, -1, 0]),
    ],
)
def test_ticks(low: float, high: float, count: int, expected: list[float]) -> None:
    assert plots.ticks(low, high, count) == pytest.approx(expected)


@settings(deadline=None)
@given(st.lists(st.tuples(TIMES, st.floats(-1e9, 1e9)), max_size=60))
def test_nothing_of_a_series_lies_outside(points: list[tuple[float, float]]) -> None:
    assert_inside(plots.over_time(Series("s", "u", tuple(sorted(points))), "k"))


@settings(deadline=None)
@given(st.lists(st.floats(0, 64), max_size=60), st.lists(st.floats(0, 64), max_size=60))
def test_nothing_of_a_histogram_lies_outside(now: list[float], before: list[float]) -> None:
    assert_inside(plots.histogram(now, before, "k", name="n", label="b"))


@settings(deadline=None)
@given(st.lists(st.tuples(TIMES, TIMES).map(sorted), max_size=12))
def test_nothing_of_a_timeline_lies_outside(parts: list[list[float]]) -> None:
    assert_inside(plots.timeline([Span("s", begin, end) for begin, end in parts], "k"))


def test_the_line_is_where_the_values_are() -> None:
    root = drawn(plots.over_time(Series("s", "u", ((0.0, 0.0), (50.0, 10.0), (100.0, 5.0))), "k"))
    (line,) = shapes(root, "line")
    (x0, y0), (x1, y1), (x2, y2) = (
        tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()
    )
    assert x1 - x0 == pytest.approx(x2 - x1)
    assert y1 < y2 < y0  # up is less
    assert y0 - y2 == pytest.approx(y2 - y1)


def test_a_pause_parts_the_line_and_a_lone_point_is_a_dot() -> None:
    points = [(float(at), 3.0) for at in (*range(40), *range(400, 440), 900)]
    root = drawn(plots.over_time(Series("s", "u", tuple(points)), "k"))
    assert len(shapes(root, "line")) == len(shapes(root, "band")) == 2
    assert len(shapes(root, "dot")) == 1


def test_the_band_holds_every_value_and_a_long_series_stays_small() -> None:
    points = tuple((at / 10, float(at % 7)) for at in range(50_000))
    svg = plots.over_time(Series("s", "u", points), "k")
    assert len(svg) < 20_000
    (band,) = shapes(drawn(svg), "band")
    (line,) = shapes(drawn(svg), "line")
    heights = [
        [float(pair.split(",")[1]) for pair in shape.attrib["points"].split()]
        for shape in (band, line)
    ]
    assert min(heights[0]) < min(heights[1]) <= max(heights[1]) < max(heights[0])


def test_bars_are_shares() -> None:
    root = drawn(plots.histogram([1.0] * 30 + [4.0] * 10, [], "k", name="n", label="b"))
    heights = [float(bar.attrib["height"]) for bar in shapes(root, "bar")]
    assert min(height for height in heights if height) * 3 == pytest.approx(max(heights), rel=1e-3)
    assert shapes(root, "before") == []


def test_the_generation_before_is_an_outline_of_its_own_shares() -> None:
    now, before = [2.0] * 10, [2.0] * 1000
    root = drawn(plots.histogram(now, before, "k", name="n", label="generation 3"))
    (outline,) = shapes(root, "before")
    assert outline.attrib["stroke-dasharray"]  # not by colour alone
    tops = [float(pair.split(",")[1]) for pair in outline.attrib["points"].split()]
    highest = min(float(bar.attrib["y"]) for bar in shapes(root, "bar"))
    assert min(tops) == pytest.approx(highest)  # as many per cent, of a hundred times as many
    assert "generation 3 1,000 values, mean 2" in "".join(root.itertext())


def test_the_bars_of_a_start_have_their_lengths() -> None:
    root = drawn(plots.timeline(LOAD, "k"))
    bars = shapes(root, "span")
    per_second = [
        float(bar.attrib["width"]) / (span.end - span.begin)
        for bar, span in zip(bars, LOAD, strict=True)
    ]
    assert per_second == pytest.approx([per_second[1]] * len(LOAD), rel=0.01)
    texts = [each.text for each in shapes(root, "label")]
    assert all(span.name in texts for span in LOAD)
    assert "6m30s" in texts


def test_a_long_name_is_cut_in_the_plot_and_whole_in_its_words() -> None:
    root = drawn(plots.timeline([Span("n" * 90, 0.0, 3.0)], "k"))
    longest = max(len(each.text or "") for each in shapes(root, "label"))
    assert longest < 45
    assert "n" * 90 in (root.findtext("desc") or "")


@pytest.mark.parametrize(
    "svg",
    [
        plots.over_time(Series("s", "u", ((0.0, 2.0), (1.0, math.nan), (2.0, 4.0))), "k"),
        plots.histogram([2.0, math.inf, 4.0], [], "k", name="n", label="b"),
    ],
)
def test_what_is_no_number_is_left_out(svg: Markup) -> None:
    assert not re.search(r"\b(?:nan|inf)\b", svg)
    assert "mean 3," in svg


@pytest.mark.parametrize(
    "svg",
    [
        plots.over_time(Series("s", "u", ()), "k"),
        plots.histogram([], [1.0], "k", name="n", label="b"),
        plots.timeline([], "k"),
    ],
)
def test_an_empty_plot_says_so(svg: Markup) -> None:
    assert drawn(svg).findtext("desc")


def test_text_is_escaped() -> None:
    for svg in (
        plots.over_time(Series(NASTY, NASTY, ((0.0, 1.0),)), "k"),
        plots.histogram([1.0], [1.0], "k", name=NASTY, label=NASTY),
        plots.timeline([Span(NASTY, 0.0, 1.0)], "k"),
    ):
        root = drawn(svg)
        assert words.visible("<script>alert(1)</script>") in "".join(root.itertext())
        assert {each.tag for each in root.iter()} <= {
            "svg", "title", "desc", "line", "text", "rect", "polyline", "polygon", "circle",
        }  # fmt: skip
