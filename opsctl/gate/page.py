"""A gate's result as one HTML page that needs nothing but itself: no request, no script.

It is read on a phone at night and printed for a review; models' and users' text in it is untrusted.
Jinja2 escapes every expression, and before that `words.visible` takes what is not to be seen or
not allowed; a content security policy in the page forbids all that could be fetched or run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Final

import jinja2
from markupsafe import Markup

from opsctl.gate import plots, words
from opsctl.gate.model import GateCheck, GateResult, Phase, Shown
from opsctl.text import duration

_EVIDENCE: Final = 4_000  # characters of a check's evidence
_TEXT: Final = 4_000  # characters of an answer


@dataclass(frozen=True, slots=True)
class _Plot:
    title: str
    note: str
    svg: Markup


@dataclass(frozen=True, slots=True)
class _Side:
    """One of two answers: its tokens as (id, whether it is the first that differs), and its
    text before and from the first character that differs."""

    name: str
    tokens: tuple[tuple[int, bool], ...]
    ends: bool  # before the token that would differ
    same: str
    other: str


def page(result: GateResult) -> str:
    """The whole page, as UTF-8 text to be."""
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            result=result,
            phases=[(phase, list(each)) for phase, each in groupby(result.checks, _phase)],
            timed=any(check.seconds is not None for check in result.checks),
            plots=list(_plots(result)),
            divergences=[(shown, _sides(shown)) for shown in result.divergences],
        )
    )


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("opsctl.gate", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_seen,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(words=words, duration=duration, evidence_limit=_EVIDENCE)
    environment.filters.update(figure=words.figure, moment=words.moment)
    return environment


def _seen(value: object) -> object:
    """What every expression passes: only what this module drew is taken as it is."""
    return value if isinstance(value, Markup) else words.visible(str(value))


def _phase(check: GateCheck) -> Phase:
    return check.phase


def _plots(result: GateResult) -> Iterator[_Plot]:
    if result.load:
        took = duration(max(span.end for span in result.load))
        yield _Plot("Start", f"{took} until it answered", plots.timeline(result.load, "start"))
    if result.accept_lens:
        before = result.before or "the generation before"
        note = "bars are this generation" + (
            f", the dashed outline is {before}"
            if result.accept_lens_before
            else "; of the one before nothing is known"
        )
        drawn = plots.histogram(
            result.accept_lens,
            result.accept_lens_before,
            "accept",
            name="accept length, tokens a verify step",
            label=before,
        )
        yield _Plot("Accept length, distribution", note, drawn)
    for place, series in enumerate(result.series):
        name = f"{series.name[:1].upper()}{series.name[1:]}"
        note = f"{series.unit}: the mean, in a band from least to most"
        yield _Plot(name, note, plots.over_time(series, f"series-{place}"))


def _sides(shown: Shown) -> tuple[_Side, _Side]:
    expected, got = words.visible(shown.expected_text), words.visible(shown.got_text)
    same = words.parted(expected, got)
    return (
        _side("expected", shown, shown.expected_ids, expected, same),
        _side("got", shown, shown.got_ids, got, same),
    )


def _side(name: str, shown: Shown, ids: tuple[int, ...], text: str, same: int) -> _Side:
    at = shown.index - shown.begin
    return _Side(
        name=name,
        tokens=tuple((each, place == at) for place, each in enumerate(ids)),
        ends=at >= len(ids),
        same=text[:same],
        other=words.cut(text[same:], _TEXT),
    )
