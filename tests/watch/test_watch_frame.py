"""Frames: what is where, how wide, and that nothing depends on colour or on block characters."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from rich.cells import cell_len
from watch_samples import (
    ARGS,
    CRASH,
    NOW,
    READY,
    T,
    connected,
    decode,
    lost,
    restarted,
    say,
    serving,
    unit,
)

from opsctl.watch import heard
from opsctl.watch.draw import ASCII, BLOCKS, bar, glyphs, plot
from opsctl.watch.filter import BACKSPACE, ENTER, ESCAPE, Filter
from opsctl.watch.frame import Line, View, frame, report, text_of
from opsctl.watch.model import HostModel
from opsctl.watch.pace import Pace
from opsctl.watch.screen import _Screen

VIEW = View(80, 24, T)


def shown(*models: HostModel, view: View = VIEW, now: float = NOW + 1) -> list[str]:
    return [text_of(line) for line in frame(models, view, now)]


def fits(lines: list[Line], view: View) -> bool:
    widths = [sum(cell_len(text) for text, _ in line) for line in lines]
    # A character in the last corner would scroll the screen.
    return len(lines) == view.height and max(widths) <= view.width and widths[-1] <= view.width - 1


def test_a_healthy_host_at_80x24() -> None:
    model = serving(generation={"number": 4, "set": {"name": "dd", "version": "1"}, "files": []})
    model.feed(heard.Asked(running=2, queued=0, usage=0.5), NOW + 1)
    lines = shown(model)
    assert fits(frame([model], VIEW, NOW + 1), VIEW)
    assert "ct200  live" in lines[0]
    assert lines[1] == "unit       s.service  active (running), up 1m41s, 0 restarts"
    assert lines[2] == "start      invocation aaaa1111  generation 4, dd 1"
    assert lines[3] == "phase      ready"
    assert lines[4] == "incident   none seen"
    assert lines[5] == "requests   2 running, 0 queued   kv 50%   cuda graph 100%   (endpoint)"
    assert lines[6].startswith("accept len 4.00  p10 4.00  p50 4.00  p90 4.00  drafts accepted 43%")
    assert lines[-1].startswith("q quit")
    text = "\n".join(lines)
    assert "token/s    200  p10 200  p90 200" in text
    assert any(set(line[11:].strip()) & set(BLOCKS.levels) for line in lines), "plotted"
    assert READY in text, "the journal's tail"


def test_a_load_shows_its_phase_and_the_time_left() -> None:
    model = connected(loads=[200.0])
    say(model, ARGS, "Load weight begin. avail mem=70.00 GB")
    lines = shown(model, now=NOW)
    assert lines[3] == f"load       {bar(0.5, 20, BLOCKS)} loading weights, 1m40s, about 1m40s left"
    late = shown(model, now=NOW + 150)
    assert "4m10s, longer than before" in late[3]
    assert "1m40s of 15m00s" in shown(replace(model, loads=()), now=NOW)[3], "else of the budget"


def test_an_incident_and_the_restart_after_it() -> None:
    model = serving()
    say(model, *CRASH, at=1.0)
    text = "\n".join(shown(model, now=NOW + 4))
    assert "incident   FATAL illegal_memory_access in serve, 3s ago\n" in text
    assert "!! FATAL illegal_memory_access: RuntimeError: CUDA error" in text
    assert "crashed: illegal_memory_access" in text
    restarted(model)
    lines = shown(model, now=NOW + 6, view=replace(VIEW, span=60.0))
    text = "\n".join(lines)
    assert "FATAL illegal_memory_access in serve, 5s ago (an earlier start)" in text
    assert "restart by systemd, 1 so far: invocation bbbb2222" in text
    assert "requests   - running, - queued   kv -   cuda graph -" in text
    beside = shown(serving("other"), model, now=NOW + 6)
    assert beside[2].endswith("FATAL illegal_memory_access in an earlier start")
    marked = [line for line in lines if BLOCKS.restart in line]
    assert len(marked) == 2 * 2, "in each row of both plots"
    assert len({line.index(BLOCKS.restart) for line in marked}) == 1


TERMS = {"command": "deploy", "who": "ann@laptop", "to": 3, "armed": T - 50, "budget": 900.0}


def test_an_armed_guard_is_shown_on_the_screen_and_once() -> None:
    """As long as its client lives, that it is there; then what it does, and when."""
    guard = {"terms": TERMS, "report": None}
    held = serving(guard=guard, lock={"who": "ann@laptop", "why": "rope"})
    lost = serving(guard=guard)
    for told in (shown, _once):
        lines = told(held)
        place = lines.index("guard      armed for the deploy of ann@laptop")
        assert lines[place - 1] == "lock       ann@laptop: rope"
        assert not lines[place + 1].startswith(" "), "nobody has to do anything"
        text = "\n".join(told(lost))
        assert "\nguard      puts generation 3 back at " in text
        assert " (in 13m50s): the deploy of " in text, "930 s less 100 s"
        assert "\n           opsctl confirm ct200 to keep what is there, opsctl roll" in text
        assert not any(line.startswith("guard") for line in told(serving()))
    assert "ready, " in shown(held, serving("b"))[1]
    assert "guard armed" in shown(held, serving("b"), view=replace(VIEW, width=120))[1]


def _once(model: HostModel) -> list[str]:
    return [text_of(line) for line in report(model, VIEW, NOW + 1)]


def test_an_unreachable_host_stands_beside_one_that_is_not() -> None:
    gone = HostModel("ct201", "serve")
    lost(gone, 0.0, "cannot reach root@ct201: no answer in time")
    cut = serving("ct202")
    lost(cut, 1.0)
    models = [serving(), gone, cut]
    lines = shown(*models, now=NOW + 3)
    assert lines[1] == ">1 ct200  ready, 2 running 1 queued, accept 4.00, 200 token/s"
    assert lines[2].startswith(" 2 ct201  UNREACHABLE, never heard, attempt 2: cannot reach")
    assert lines[3].startswith(" 3 ct202  CONNECTION LOST, last heard 3s ago, attempt 2, ready")
    view = replace(VIEW, chosen=1)
    text = "\n".join(shown(*models, view=view, now=NOW + 3))
    assert "look at the network" in text, "the remedy"
    assert fits(frame(models, view, NOW + 3), view)


def test_the_chosen_host_is_seen_among_many() -> None:
    models = [serving(f"h{n}") for n in range(12)]
    for chosen in (0, 5, 11):
        lines = shown(*models, view=replace(VIEW, chosen=chosen))
        listed = [line for line in lines if line[:1] in {">", " "} and " h" in line[:7]]
        assert len(listed) == 6
        assert any(line.startswith(f">{chosen + 1} h{chosen}") for line in listed)


@pytest.mark.parametrize("size", [(80, 24), (132, 50), (40, 12), (20, 6), (8, 3), (300, 100)])
@pytest.mark.parametrize("signs", [BLOCKS, ASCII])
def test_it_fits_any_terminal(size: tuple[int, int], signs: object) -> None:
    first = serving()
    say(first, *CRASH, "漢字 " * 60, "é" * 200, "a\nb\nc", at=1.0)
    restarted(first)
    gone = HostModel("ct201 漢字漢字漢字漢字漢字漢字", "serve")
    lost(gone, 0.0, "x" * 300)
    for models in ([first], [first, gone]):
        for extra in (
            {},
            {"help": True},
            {"scroll": 3},
            {"everything": True, "paused": True},
            {"filter": Filter("x" * 60)},
            {"filter": Filter("a", "x" * 60), "scroll": 3},
        ):
            width, height = size
            view = View(width, height, T, signs=signs, **extra)  # type: ignore[arg-type]
            assert fits(frame(models, view, NOW + 7), view), (extra, models)


def test_without_block_characters_everything_is_ascii() -> None:
    model = serving()
    say(model, *CRASH, "Ein Fehler: ärgerlich 漢", at=1.0)
    restarted(model)
    lines = shown(model, view=replace(VIEW, signs=ASCII), now=NOW + 6)
    assert all(line.isascii() for line in lines)
    assert any("#" in line for line in lines)


def test_styles_only_underline_what_words_say() -> None:
    """Without colour, a good and a bad host still differ, in capitals where it matters."""
    good, bad = serving(), serving()
    say(bad, *CRASH, at=1.0)
    lost(bad, 2.0)
    plain = "\n".join(shown(bad, now=NOW + 3))
    assert "FATAL" in plain
    assert "CONNECTION LOST" in plain
    assert "connection the connection was closed" in plain
    assert "FATAL" not in "\n".join(shown(good))


def test_the_journal_is_scrolled_and_can_show_every_line() -> None:
    model = serving()
    say(model, *(f"line {n}" for n in range(50)), at=0.0)
    assert "line 49" in shown(model)[-2]
    lines = shown(model, view=replace(VIEW, scroll=10))
    assert "line 39" in lines[-2]
    assert any("10 rows below" in line for line in lines)
    assert "line 0 " not in "\n".join(lines)
    top = shown(model, view=replace(VIEW, scroll=10_000))
    assert "line 49" not in "\n".join(top)
    assert "Decode batch" not in "\n".join(shown(model))
    say(model, decode(), at=1.0)
    assert "Decode batch" in shown(model, view=replace(VIEW, everything=True))[-2]


def pressed(*keys: str, view: View = VIEW) -> View:
    """The view after these keys, each of which is the filter's."""
    for key in keys:
        found = view.filter.press(key)
        assert found is not None, key
        view = replace(view, filter=found)
    return view


def tail(lines: list[str]) -> list[str]:
    """The rows of the journal, without their times."""
    head = next(place for place, line in enumerate(lines) if line.startswith(BLOCKS.rule * 2))
    return [line[9:] for line in lines[head + 1 : -1] if line]


def test_the_journal_is_filtered_by_a_typed_text() -> None:
    model = serving()
    say(model, *(f"line {n}" for n in range(50)), *CRASH, at=0.0)
    typing = pressed("/", *"INE 4q", BACKSPACE, *"qj", BACKSPACE, BACKSPACE)
    assert shown(model, view=typing)[-1] == "/INE 4_  enter: only rows with that  esc: all rows"
    assert shown(model, view=typing)[:-1] == shown(model)[:-1], "not before it is meant"
    view = pressed(ENTER, view=typing)
    lines = shown(model, view=view)
    rows = [f"line {n}" for n in (4, *range(40, 50))]
    assert tail(lines) == rows[-len(tail(lines)) :], "in whatever case"
    assert lines[-1].startswith("/INE 4  esc: all rows  q quit")
    total = len(model.told)
    assert f" journal, 11 of {total} rows " in "\n".join(lines)
    assert tail(shown(model, view=replace(view, scroll=9)))[0] == "line 4", "from end to end"
    assert fits(frame([model], view, NOW + 1), view)
    for again in (pressed(ESCAPE, view=view), pressed("/", ENTER, view=view)):
        assert shown(model, view=again) == shown(model), "all of it, and the keys"
    assert pressed(ESCAPE, view=typing).filter == VIEW.filter


def test_who_has_scrolled_back_reads_on_where_he_is() -> None:
    """Rows that the filter leaves out move nothing."""
    model = serving()
    say(model, *(f"line {n}" for n in range(50)), at=0.0)
    board: Any = SimpleNamespace(models=[model])
    window: Any = None
    for view in (VIEW, replace(VIEW, filter=Filter("line"))):
        screen = _Screen(window, board, {}, Pace(1.0), replace(view, scroll=9))
        screen._hold_place()
        before = tail(shown(model, view=screen.view))
        say(model, "line of late", "another", "another line", at=9.0)
        assert tail(shown(model, view=screen.view)) != before
        screen._hold_place()
        assert tail(shown(model, view=screen.view)) == before


def test_an_incident_is_filtered_by_its_name() -> None:
    model = serving()
    say(model, "line", *CRASH, at=0.0)
    rows = tail(shown(model, view=pressed("/", *"fatal ill", ENTER)))
    assert rows
    assert all(row.startswith("!! FATAL illegal_memory_access: ") for row in rows)


def test_other_keys_are_not_the_filters() -> None:
    assert VIEW.filter.press("j") is None
    assert VIEW.filter.press(ESCAPE) is None, "there is nothing to end"
    typing = pressed("/")
    assert typing.filter.press("resize") is None
    assert pressed(*"x" * 200, view=typing).filter.typed == "x" * 60
    assert pressed("\t", "é", view=typing).filter.typed == "", "they do nothing meanwhile"


def test_old_data_is_called_old() -> None:
    model = serving()
    assert "live" in shown(model)[0]
    assert "last heard 30s ago" in shown(model, now=NOW + 30)[0]


def test_a_report_has_no_keys() -> None:
    lines = [text_of(line) for line in report(serving(), VIEW, NOW + 1)]
    assert len(lines) <= VIEW.height
    assert not any("q quit" in line for line in lines)


def test_a_plot_and_its_signs() -> None:
    values = [1.0, None, 4.0, 8.0, 2.0]
    rows = plot(values, {4}, 2, low=1.0, high=8.0, signs=BLOCKS)
    assert rows == ["   █┊", "▁ ▇█┊"]
    assert plot(values, (), 1, low=1.0, high=8.0, signs=ASCII) == [". -#."]
    assert plot([5.0], (), 1, low=5.0, high=5.0, signs=BLOCKS) == ["█"]
    assert bar(0.5, 10, ASCII) == "[####....]"
    assert (bar(-1.0, 10, ASCII), bar(9.0, 10, ASCII)) == ("[........]", "[########]")


@pytest.mark.parametrize(
    ("encoding", "signs"), [("utf-8", BLOCKS), ("ascii", ASCII), ("latin-1", ASCII), ("x", ASCII)]
)
def test_what_an_encoding_can_print(encoding: str, signs: object) -> None:
    assert glyphs(encoding) is signs


def test_a_unit_without_a_start() -> None:
    model = HostModel("ct200", "serve")
    model.feed(heard.Connected("x"), NOW)
    model.feed(heard.UnitSeen(unit("", ActiveState="inactive", SubState="dead")), NOW)
    model.feed(heard.CaughtUp(), NOW)
    text = "\n".join(shown(model))
    assert "inactive (dead)" in text
    assert "invocation none" in text
