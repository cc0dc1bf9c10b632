"""One frame of `opsctl watch` as lines of text: pure, so that a test can look at any of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len

from opsctl.journal import Diagnosis
from opsctl.sglang.grammar import split_prefix
from opsctl.text import counted, duration
from opsctl.watch import words
from opsctl.watch.draw import BLOCKS, Glyphs, bar, cut, plot
from opsctl.watch.filter import Filter
from opsctl.watch.model import HostModel, Row
from opsctl.watch.series import LONGEST, columns_of
from opsctl.watch.words import Style

Span = tuple[str, Style]
Line = tuple[Span, ...]

SPANS: Final = (60.0, 300.0, 900.0, 3600.0, 6 * 3600.0, 86400.0, LONGEST)
_LABEL: Final = 11  # columns before what a line says
_MOST_PLOT: Final = 6
_LEAST_TAIL: Final = 6
_KEYS: Final = "q quit  p pause  tab 1-9 host  j k scroll  a all  / filter  + - span  ? help"
_HELP: Final = """\
q, Ctrl-C   leave; nothing on the host has been changed
p           pause the screen; what comes meanwhile is taken in
tab, 1-9    the next host, or that one
j k, arrows scroll the journal by a line; space and b by ten; G to its end
a           every line of the journal, or the telling ones
/           only its rows with a text: type it, then enter; esc ends that
+ -         a longer or a shorter span in the plots
?           this, and back

unit        systemd's properties, looked at each second
load        the journal; the time left by earlier loads on this host
accept len, token/s, cuda graph: decode lines, the last minute of them
requests    decode and prefill lines; while these are silent, the endpoint
!! KIND     what opsctl diagnose says (docs/diagnosis.md)

docs/watch.md has more."""


@dataclass(frozen=True, slots=True)
class View:
    """What the operator has chosen, and what the terminal has room for. `scroll` is rows from
    the journal's end; `span` is seconds in the plots; `wall` is this machine's clock."""

    width: int
    height: int
    wall: float
    chosen: int = 0
    scroll: int = 0
    span: float = 300.0
    everything: bool = False
    filter: Filter = Filter()  # noqa: RUF009 - frozen
    paused: bool = False
    help: bool = False
    signs: Glyphs = BLOCKS


def frame(models: Sequence[HostModel], view: View, now: float) -> list[Line]:
    """Exactly `view.height` lines of at most `view.width` cells; `now` is monotonic seconds."""
    model = models[view.chosen]
    model.judge(now)
    head = [_bar(model, view, now), *_hosts(models, view, now)]
    keys = view.filter.foot(_KEYS)
    foot: Line = ((cut(keys, view.width - 1, view.signs), ""),)  # its corner would scroll
    body = _help(view) if view.help else _body(model, view, now, view.height - len(head) - 1)
    lines = [*head, *body][: max(view.height - 1, 1)]
    lines += [()] * (view.height - 1 - len(lines))
    return [_fit(line, view) for line in (*lines, foot)][: view.height]


def report(model: HostModel, view: View, now: float) -> list[Line]:
    """One host without the parts that only a screen needs, as high as it is."""
    lines = [_bar(model, view, now), *_body(model, view, now, view.height)]
    return [_fit(line, view) for line in lines]


def text_of(line: Line) -> str:
    return "".join(text for text, _ in line).rstrip()


def _fit(line: Line, view: View) -> Line:
    left, found = view.width, []
    for text, style in line:
        shown = cut(view.signs.safe(text), left, view.signs)
        left -= cell_len(shown)
        if shown:
            found.append((shown, style))
    return tuple(found)


def _bar(model: HostModel, view: View, now: float) -> Line:
    how, _ = words.link(model, now)
    left = f" opsctl watch  {model.name}  {how}"
    right = ("  PAUSED " if view.paused else "  ") + time.strftime(
        "%H:%M:%S ", time.localtime(view.wall)
    )
    left = cut(left, view.width - len(right), view.signs)
    return ((left + " " * (view.width - cell_len(left) - len(right)) + right, "bar"),)


def _hosts(models: Sequence[HostModel], view: View, now: float) -> list[Line]:
    """Each of several hosts in a row; the chosen one is among them however many there are."""
    if len(models) == 1:
        return []
    room = max(2, min(len(models), view.height // 4))
    first = max(0, min(view.chosen - room // 2, len(models) - room))
    widest = min(max(cell_len(model.name) for model in models), 20)
    lines: list[Line] = []
    for place in range(first, first + room):
        model = models[place]
        if place != view.chosen:
            model.judge(now)
        sign = ">" if place == view.chosen else " "
        name = cut(model.name, widest, view.signs)
        grave = not model.fresh(now) and model.link == "lost"
        style: Style = "bad" if grave else ""
        head = f"{sign}{place + 1} {name}{' ' * (widest - cell_len(name))}  "
        lines.append(((head, "bold"), (words.one_line(model, now), style)))
    return lines


def _body(model: HostModel, view: View, now: float, room: int) -> list[Line]:
    host_now = model.host_now(now)
    lines = _about(model, view, now)
    spare = room - len(lines) - 5 - _LEAST_TAIL  # headings, axis and rule
    height = min(max(spare // 2, 0 if room < 14 else 1), _MOST_PLOT)
    lines += _plots(model, view, host_now, height)
    return lines + _tail(model, view, room - len(lines))


def _labelled(label: str, text: str, style: Style = "") -> Line:
    return ((f"{label:<{_LABEL}}", "bold"), (text, style))


def _about(model: HostModel, view: View, now: float) -> list[Line]:
    unit, host_now = model.unit, model.host_now(now)
    state, style = words.phase(model)
    if unit is None:
        lines = [_labelled("host", state, style)]
        if model.lost is not None and model.lost.remedy:
            lines.append(_labelled("", model.lost.remedy))
        return lines
    active = model.active_for(now)
    up = "" if active is None else f", up {duration(active)}"
    lines = [
        _labelled("unit", f"{unit.name}  {unit.state}{up}, {counted(unit.n_restarts, 'restart')}"),
        _labelled("start", f"invocation {unit.invocation_id[:8] or 'none'}"),
        _load(model, view, now) if model.loading else _labelled("phase", state, style),
    ]
    if model.generation:
        lines[1] = (*lines[1], (f"  {model.generation}", ""))
    said, remedy, style = words.incident(model, host_now)
    lines.append(_labelled("incident", said, style))
    if remedy:
        lines.append(_labelled("", remedy))
    if model.lost is not None:
        lines.append(_labelled("connection", model.lost.message, "bad"))
    if model.lock:
        lines.append(_labelled("lock", model.lock, "warn"))
    armed, ways_out, style = words.guard(model)
    lines += [_labelled("guard", armed, style)] if armed else []
    lines += [_labelled("", ways_out)] if ways_out else []
    return [*lines, _labelled("requests", words.requests(model, host_now))]


def _load(model: HostModel, view: View, now: float) -> Line:
    """As `opsctl wait` shows it: of the time that earlier loads took, else of the budget."""
    elapsed, remaining = model.active_for(now) or 0.0, model.remaining(now)
    assert model.start is not None
    whole = model.budget if remaining is None else elapsed + remaining
    share = min(elapsed / whole, 1.0) if whole else 0.0
    left = ", longer than before"
    if remaining is None:
        left = f" of {duration(model.budget)}"
    elif remaining:
        left = f", about {duration(max(remaining, 1.0))} left"
    said = f" {model.start.progress.label}, {duration(elapsed)}{left}"
    return _labelled("load", bar(share, 20, view.signs) + said, "warn")


def _plots(model: HostModel, view: View, host_now: float, height: int) -> list[Line]:
    lines: list[Line] = []
    drafts = model.start.draft_tokens if model.start is not None else None
    for label, said, series, least, most in (
        ("accept len", words.acceptance(model, host_now), model.plots.accept_len, 1.0, drafts),
        ("token/s", words.speed(model, host_now), model.plots.throughput, 0.0, None),
    ):
        lines.append(_labelled(label, said))
        width = max(view.width - _LABEL, 1)
        values = series.columns(host_now, view.span, width)
        marks = columns_of(list(model.restarts), host_now, view.span, width)
        top = max((value for value in values if value is not None), default=least)
        scale = (least, max(top, float(most or 0), least + 0.5))
        lines += _plot(values, marks, height, scale, view)
    if height:
        width = view.width - _LABEL
        first, last = f"{duration(view.span)} ago", "now"
        gap = " " * (width - len(first) - len(last))
        lines.append(_labelled("", f"{first}{gap}{last}"))
    return lines


def _plot(
    values: list[float | None], marks: set[int], height: int, scale: tuple[float, float], view: View
) -> list[Line]:
    least, high = scale
    rows = plot(values, marks, height, low=least, high=high, signs=view.signs)
    labels = [""] * height
    if height:
        labels[-1] = f"{least:.0f}"
        labels[0] = f"{high:.1f}" if high < 100 else f"{high:.0f}"
    return [
        ((f"{label:>{_LABEL - 2}}  {row}", ""),) for label, row in zip(labels, rows, strict=True)
    ]


def _help(view: View) -> list[Line]:
    return [((view.signs.safe(line), ""),) for line in ["", *_HELP.splitlines()]]


def _tail(model: HostModel, view: View, room: int) -> list[Line]:
    every = model.all if view.everything else model.told
    marks = model.marks()
    rows = view.filter.rows(every, marks)
    room = max(room - 1, 0)
    scroll = min(view.scroll, max(len(rows) - room, 0))
    shown = rows[max(len(rows) - scroll - room, 0) : len(rows) - scroll]
    what = "journal" + (", every line" if view.everything else "")
    if view.filter.text:
        what += f", {len(rows)} of {counted(len(every), 'row')}"
    if model.restarts:
        what += f", {counted(len(model.restarts), 'restart')}"
    if scroll:
        what += f", {counted(scroll, 'row')} below"
    head = f"{view.signs.rule * 2} {what} "
    rule = head + view.signs.rule * (view.width - cell_len(head))
    return [
        ((rule, "bold"),),
        *(row_of(row, marks.get(row.number), view.signs, view.width) for row in shown),
    ]


def row_of(row: Row, found: Diagnosis | None, signs: Glyphs, width: int = 0) -> Line:
    """A row of the journal, `found` where it decides that; a restart is ruled to `width`."""
    stamp = time.strftime("%H:%M:%S ", time.localtime(row.at))
    if row.kind == "restart":
        text = f"{signs.rule * 2} {row.text} "
        return ((stamp, ""), (text + signs.rule * (width - len(stamp) - len(text)), "bold"))
    if row.kind != "line":
        return ((stamp, ""), (f"-- {row.text}", "warn"))
    first, *more = [line for line in row.text.split("\n") if line.strip()] or [""]
    rank, said = split_prefix(first)
    text = f"{rank} {said}".strip() + (f" (+{counted(len(more), 'line')})" if more else "")
    if found is None:
        return ((stamp, ""), (text, ""))
    word, style = words.severity(found)
    return ((stamp, ""), (f"!! {word} {found.kind}: ", style), (text, "bold"))
