"""The same frames drawn by curses, by Rich's Live and by Textual: bytes sent to an 80x24 terminal.

    python tests/watch/compare_screens.py      (Textual is no dependency: install it beside)

Sixty frames of a healthy host, a decode line a second. What each library sends is counted on a pty.
"""

from __future__ import annotations

import curses
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from pseudo_terminal import Terminal
from watch_samples import NOW, T, decode, say, serving

from opsctl.watch.frame import View, frame, text_of

_COUNT: Final = 60
_PAUSE: Final = 0.1  # seconds, as nothing here depends on the time between two frames

Frames = list[list[str]]


def frames() -> Frames:
    dice, found = random.Random(1), []
    model = serving(generation={"number": 4, "set": {"name": "dd", "version": "1"}, "files": []})
    for at in range(1, _COUNT + 1):
        line = decode(1 + 7 * dice.random(), 50 + 400 * dice.random(), running=dice.randint(1, 4))
        say(model, line, at=float(at))
        found.append([text_of(each) for each in frame([model], View(80, 24, T + at), NOW + at)])
    return found


def by_curses(planned: Frames) -> None:
    def draw(window: curses.window) -> None:
        curses.curs_set(0)
        for lines in planned:
            for row, line in enumerate(lines):
                window.move(row, 0)
                window.clrtoeol()
                window.addstr(row, 0, line[: 80 - (row == 23)])
            window.refresh()
            time.sleep(_PAUSE)

    curses.wrapper(draw)


def by_rich(planned: Frames) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(screen=True, auto_refresh=False) as live:
        for lines in planned:
            live.update(Text("\n".join(lines), no_wrap=True), refresh=True)
            time.sleep(_PAUSE)


def by_textual(planned: Frames) -> None:
    """A widget a row, updated only where the row has changed."""
    import importlib

    app: Any = importlib.import_module("textual.app")
    widgets: Any = importlib.import_module("textual.widgets")

    class Rows(app.App):  # type: ignore[misc]
        CSS = "Static {height: 1; width: 80;}"

        def compose(self) -> Any:
            self.rows = [widgets.Static("", markup=False) for _ in range(24)]
            yield from self.rows

        def on_mount(self) -> None:
            self.shown, self.left = [""] * 24, iter(planned)
            self.set_interval(_PAUSE, self.step)

        def step(self) -> None:
            lines = next(self.left, None)
            if lines is None:
                self.exit()
                return
            for row, (line, before) in enumerate(zip(lines, self.shown, strict=True)):
                if line != before:
                    self.rows[row].update(line)
            self.shown = lines

    Rows().run()


WAYS: Final[dict[str, Callable[[Frames], None]]] = {
    "curses": by_curses,
    "rich": by_rich,
    "textual": by_textual,
}


def main() -> None:
    if len(sys.argv) > 1:
        WAYS[sys.argv[1]](frames())
        return
    for name in WAYS:
        argv = [sys.executable, __file__, name]
        terminal = Terminal(argv, env={"TERM": "xterm-256color", "COLORTERM": ""})
        status = terminal.finish(60)
        sent = len(terminal.raw)
        told = f"{sent / _COUNT:.0f} bytes a frame" if status == 0 else f"exit {status}"
        sys.stdout.write(f"{name}: {told}\n")


if __name__ == "__main__":
    main()
