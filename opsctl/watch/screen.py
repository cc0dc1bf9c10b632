"""The screen of `opsctl watch`, by curses: it sends a terminal no more than what has changed, in
that terminal's own words, from a vt100 on.
"""

from __future__ import annotations

import contextlib
import curses
import locale
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from opsctl.watch.board import Board
from opsctl.watch.draw import glyphs
from opsctl.watch.filter import BACKSPACE, ENTER
from opsctl.watch.frame import SPANS, Line, View, frame
from opsctl.watch.pace import Pace, cost

# Bytes a second: less than 19,200 baud carry.
RATE: Final = 1500.0
_TICK = 200  # milliseconds to wait for a key
_STEPS: Final = {
    "j": -1, "down": -1, "k": 1, "up": 1, " ": -10, "next": -10, "b": 10, "previous": 10,
}  # fmt: skip
_KEYS: Final = {
    curses.KEY_DOWN: "down", curses.KEY_UP: "up", curses.KEY_NPAGE: "next",
    curses.KEY_PPAGE: "previous", curses.KEY_END: "end", curses.KEY_RESIZE: "resize",
    curses.KEY_ENTER: ENTER, ord("\r"): ENTER,
    curses.KEY_BACKSPACE: BACKSPACE, 127: BACKSPACE,  # DEL, which most terminals send
}  # fmt: skip
# Which of the eight colours every terminal has; yellow, blue and cyan are hard to read on one of
# light and dark.
_COLOURS: Final = {
    "good": curses.COLOR_GREEN,
    "warn": curses.COLOR_MAGENTA,
    "bad": curses.COLOR_RED,
}


def usable(stream_fd: int) -> bool:
    """Whether the terminal (TERM) can put text anywhere on its screen."""
    try:
        curses.setupterm(fd=stream_fd)
    except curses.error:
        return False
    return bool(curses.tigetstr("cup")) and bool(curses.tigetstr("clear"))


def show(board: Board, *, rate: float = RATE, colour: bool = True) -> None:
    """Until q is pressed.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM; the terminal is as it was.
    """
    with _terminal() as window:
        encoding = locale.nl_langinfo(locale.CODESET)
        view = View(80, 24, time.time(), signs=glyphs(encoding))
        _Screen(window, board, _attributes(colour=colour), Pace(rate), view).run()


@contextlib.contextmanager
def _terminal() -> Iterator[curses.window]:
    locale.setlocale(locale.LC_ALL, "")
    for name in ("LINES", "COLUMNS"):  # a shell's own copies would hide a resize
        os.environ.pop(name, None)
    window = curses.initscr()
    try:
        curses.noecho()
        curses.cbreak()
        curses.set_escdelay(50)
        window.keypad(True)
        window.timeout(_TICK)
        with contextlib.suppress(curses.error):  # a vt100 has its cursor always
            curses.curs_set(0)
        yield window
    finally:
        with contextlib.suppress(curses.error):
            curses.curs_set(1)
        window.keypad(False)
        curses.nocbreak()
        curses.echo()
        curses.endwin()


def _attributes(*, colour: bool) -> Mapping[str, int]:
    found = {"": 0, "bold": curses.A_BOLD, "bar": curses.A_REVERSE, "good": 0}
    found |= {"warn": curses.A_BOLD, "bad": curses.A_BOLD}
    if colour and curses.tigetnum("colors") >= 8:
        curses.start_color()
        curses.use_default_colors()  # whether it is light or dark is the terminal's to know
        for number, (style, foreground) in enumerate(_COLOURS.items(), 1):
            curses.init_pair(number, foreground, -1)
            found[style] |= curses.color_pair(number)
    return found


@dataclass(slots=True)
class _Screen:
    window: curses.window
    board: Board
    attributes: Mapping[str, int]
    pace: Pace
    view: View
    _shown: Sequence[Line] = field(default_factory=list)
    _counts: dict[tuple[str, bool], int] = field(default_factory=dict)

    def run(self) -> None:
        while True:
            key = self._key()
            if key == "q" and self.view.filter.typed is None:
                return
            asked = bool(key) and self._press(key)
            self.board.take()
            now = time.monotonic()
            if asked or (self.pace.due(now) and not self.view.paused):
                self._draw(now)

    def _key(self) -> str:
        began = time.monotonic()
        code = self.window.getch()
        if code < 0:
            if time.monotonic() - began < _TICK / 4000:  # nobody is there to press one any more
                time.sleep(_TICK / 1000)
            return ""
        return _KEYS.get(code) or (chr(code) if code < 256 else "")

    def _press(self, key: str) -> bool:
        """What a key changes in the view; whether it is one that does."""
        filtered = self.view.filter.press(key)
        if filtered is None:
            return self._choose(key)
        self.view = replace(self.view, filter=filtered, scroll=0)
        return True

    def _choose(self, key: str) -> bool:
        view, hosts = self.view, len(self.board.models)
        match key:
            case "\t":
                found = replace(view, chosen=(view.chosen + 1) % hosts, scroll=0)
            case "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9":
                found = replace(view, chosen=min(int(key), hosts) - 1, scroll=0)
            case "p":
                found = replace(view, paused=not view.paused)
            case "a":
                found = replace(view, everything=not view.everything, scroll=0)
            case "?":
                found = replace(view, help=not view.help)
            case "+" | "=" | "-":
                found = replace(view, span=_other_span(view.span, -1 if key == "-" else 1))
            case "G" | "end":
                found = replace(view, scroll=0)
            case "resize":
                curses.update_lines_cols()
                self.window.erase()
                self._shown = []
                return True
            case _:
                if key not in _STEPS:
                    return False
                found = replace(view, scroll=max(view.scroll + _STEPS[key], 0))
        self.view = found
        return True

    def _draw(self, now: float) -> None:
        height, width = self.window.getmaxyx()
        self._hold_place()
        self.view = replace(self.view, width=width, height=height, wall=time.time())
        lines = frame(self.board.models, self.view, now)
        self.pace.spend(cost(self._shown, lines), now)
        for place, line in enumerate(lines):
            if place >= len(self._shown) or self._shown[place] != line:
                self._line(place, line)
        self.window.refresh()
        self._shown = lines

    def _line(self, place: int, line: Line) -> None:
        # A terminal that shrinks meanwhile has no such place; the next frame is as it then is.
        with contextlib.suppress(curses.error):
            self.window.move(place, 0)
            self.window.clrtoeol()
            for text, style in line:
                self.window.addstr(text, self.attributes[style])

    def _hold_place(self) -> None:
        """Who has scrolled back reads on where he is, whatever comes meanwhile."""
        model, view = self.board.models[self.view.chosen], self.view
        key = (model.name, view.everything)
        count = model.counts[view.everything]
        fresh = count - self._counts.get(key, count)
        self._counts[key] = count
        if view.scroll:
            rows, marks = model.all if view.everything else model.told, model.marks()
            more = len(view.filter.rows(islice(reversed(rows), fresh), marks))
            most = len(view.filter.rows(rows, marks))
            self.view = replace(view, scroll=min(view.scroll + more, most))


def _other_span(span: float, step: int) -> float:
    place = SPANS.index(span) + step
    return SPANS[max(0, min(place, len(SPANS) - 1))]
