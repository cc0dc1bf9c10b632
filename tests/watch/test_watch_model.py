"""What the model of a host makes of what is heard."""

from __future__ import annotations

from typing import Any

import pytest
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

from opsctl.watch import heard, words
from opsctl.watch.model import STALE, HostModel
from opsctl.watch.series import TIERS


def test_a_load_and_the_time_that_is_left() -> None:
    model = connected(loads=[140.0, 130.0, 150.0])
    say(model, ARGS, "Load weight begin. avail mem=70.00 GB")
    assert words.phase(model)[0] == "loading: loading weights"
    assert model.remaining(NOW) == pytest.approx(40.0), "the median of earlier loads, 140 s"
    assert model.remaining(NOW + 30) == pytest.approx(10.0), "it goes on between two looks"
    say(model, READY, at=31.0)
    assert words.phase(model)[0] == "ready"


def test_while_its_journal_is_read_nothing_is_claimed() -> None:
    model = HostModel("ct200", "serve")
    model.feed(heard.Connected("root@ct200"), NOW)
    model.feed(heard.UnitSeen(unit()), NOW)
    assert not model.loading
    assert words.phase(model)[0] == "its journal is being read"


def test_figures_are_of_the_last_minute_of_lines() -> None:
    model = connected()
    say(model, ARGS, READY, decode(accept=1.0), at=-200.0)
    say(model, decode(4.0, 100.0), decode(6.0, 300.0, graph=False), at=-1.0)
    start = model.start
    assert start is not None
    measured = start.measured
    assert measured.acceptance.accept_len is not None
    assert measured.acceptance.accept_len.mean == pytest.approx(5.0), "not that of long ago"
    assert measured.acceptance.cuda_graph_share == 0.5
    assert measured.draft_acceptance == pytest.approx(4 / 7), "of the start's own 8 draft tokens"
    assert measured.steps == 8, "its --decode-log-interval is 4"
    assert (start.now.running, start.now.queued, start.now.usage) == (2, 1, 0.25)


def test_ranks_that_repeat_a_batch_count_once_and_data_parallel_ones_each() -> None:
    model = connected()
    say(model, READY, *(decode(rank=f" TP{n % 2}") for n in range(4)))
    assert model.start is not None
    assert model.start.measured.acceptance.count == 2
    assert len(model.start.samples) == 2
    other = connected()
    say(other, READY, *(decode(rank=f" DP{n % 2} TP0") for n in range(4)))
    assert other.start is not None
    assert other.start.measured.ranks == 2
    assert other.start.measured.acceptance.count == 4
    assert (other.start.now.running, other.start.now.queued) == (4, 2), "of both"
    assert (model.start.now.running, model.start.now.queued) == (2, 1), "said twice of one batch"


def test_nothing_of_an_old_start_passes_for_the_new_ones() -> None:
    model = serving()
    restarted(model)
    start = model.start
    assert start is not None
    assert start.invocation == "bbbb2222"
    assert not start.samples
    assert (start.now.running, start.now.usage) == (None, None)
    assert not start.measured.acceptance.count
    assert words.acceptance(model, T + 5) == "no decode line of this start yet"
    assert model.loading
    columns = model.plots.accept_len.columns(T + 5, 60.0, 12)
    assert 4.0 in columns, "plots go on, with the restart marked"
    assert list(model.restarts) == [pytest.approx(T + 5)]
    assert [row.text for row in model.told if row.kind == "restart"] == [
        "restart by systemd, 1 so far: invocation bbbb2222"
    ]


def test_last_words_count_for_the_start_that_said_them() -> None:
    """They may come after the news of the next start."""
    model = serving()
    restarted(model)
    say(model, "Started s.service", at=5.1, invocation="bbbb2222")
    say(model, *CRASH, at=4.0)
    say(model, "no such start", at=6.0, invocation="cccc3333")
    model.judge(NOW + 6)
    assert model.start is not None
    assert not model.start.diagnosis.incident
    found = model.last_incident()
    assert found is not None
    diagnosis, at, present = found
    assert (diagnosis.kind, present) == ("illegal_memory_access", False)
    assert at == pytest.approx(T + 4.2), "when the deciding line was written"
    texts = [row.text for row in model.told]
    assert texts.index(CRASH[2]) < texts.index("restart by systemd, 1 so far: invocation bbbb2222")
    assert texts[-1] == "Started s.service"
    assert "no such start" not in texts


def test_an_incident_is_marked_as_soon_as_its_line_is_there() -> None:
    model = serving()
    model.judge(NOW)
    assert not model.marks()
    say(model, *CRASH, at=1.0)
    diagnosis = model.judge(NOW + 2)
    assert (diagnosis.kind, diagnosis.severity) == ("illegal_memory_access", "fatal")
    marked = [row.text for row in model.told if row.number in model.marks()]
    assert marked == [CRASH[2]]
    for n in range(3):
        restarted(model, f"{n}", at=5.0 + n)
    assert [row.text for row in model.told if row.number in model.marks()] == [CRASH[2]]


def test_what_numbers_say_is_told_once_it_stays() -> None:
    """A first few lines say all sorts of things; a look at a start that long ran counts at once."""
    lines = [decode(accept=1.0) for _ in range(40)]
    model = connected()
    say(model, ARGS, READY, at=-9.0)
    model.judge(NOW)
    say(model, *lines, at=1.0)
    assert not model.judge(NOW + 5).incident
    say(model, decode(accept=1.0), at=50.0)
    assert not model.judge(NOW + 50).incident
    say(model, decode(accept=1.0), at=66.0)
    assert model.judge(NOW + 66).kind == "zero_acceptance"
    assert words.phase(model)[0] == "ready", "it works, if to no use"
    look = connected()
    say(look, ARGS, READY, *lines, at=-9.0)
    assert look.judge(NOW).kind == "zero_acceptance"


def test_silence_is_judged_only_while_the_host_is_heard() -> None:
    model = connected()
    say(model, ARGS, "Init torch distributed begin.", at=0.0)
    model.feed(heard.UnitSeen(unit(at=10.0)), NOW + 10)
    assert not model.judge(NOW + 11).incident
    lost(model, at=12.0)
    assert not model.judge(NOW + 500).incident, "who knows what it has said meanwhile"
    model.feed(heard.Connected("root@ct200"), NOW + 500)
    model.feed(heard.UnitSeen(unit(at=500.0)), NOW + 500)
    assert model.judge(NOW + 501).kind == "nccl_hang"


def test_a_lost_connection_says_so_and_how_old_the_data_is() -> None:
    model = serving()
    assert words.link(model, NOW) == ("live", "good")
    assert not model.fresh(NOW + STALE + 1)
    assert words.link(model, NOW + 12) == ("last heard 12s ago", "warn")
    lost(model, at=10.0)
    assert words.link(model, NOW + 12)[0] == "CONNECTION LOST, last heard 12s ago, attempt 2"
    assert "CONNECTION LOST" in words.one_line(model, NOW + 12)
    model.feed(heard.Connected("root@ct200"), NOW + 15)
    model.feed(heard.UnitSeen(unit(at=15)), NOW + 15)
    assert words.link(model, NOW + 16) == ("live", "good")
    assert [row.text for row in model.told if row.kind == "link"] == [
        "connection lost: the connection was closed",
        "connected again to root@ct200 after 15 s without a word",
    ]


def test_a_host_that_was_never_reached() -> None:
    model = HostModel("ct201", "serve")
    model.feed(heard.Connecting(1), NOW)
    assert words.link(model, NOW) == ("connecting", "warn")
    lost(model, 1.0, "cannot reach root@ct201: no answer in time")
    assert words.link(model, NOW + 3)[0] == "UNREACHABLE, never heard, attempt 2"
    assert "no answer in time" in words.one_line(model, NOW + 3)
    assert model.settled


def test_the_newer_of_journal_and_endpoint_counts() -> None:
    model = serving()
    model.feed(heard.Asked(running=0, queued=None, usage=0.0), NOW + 20)
    assert model.start is not None
    now = model.start.now
    assert (now.running, now.queued, now.usage, now.source) == (0, 1, 0.0, "endpoint")
    model.feed(heard.Asked(fault="GET /get_load: no answer within 10 s"), NOW + 30)
    assert "NO ANSWER: GET /get_load" in words.requests(model, T + 31)
    say(model, decode(running=5), at=32.0)
    assert "NO ANSWER" not in words.requests(model, T + 33), "it works again"
    assert now.running == 5
    restarted(model, at=40.0)
    model.feed(heard.Asked(fault="refused"), NOW + 41)
    assert "NO ANSWER" not in words.requests(model, T + 41), "nothing listens during a load"


def test_a_prefill_counts_the_new_requests_as_running() -> None:
    model = connected()
    say(model, READY, "Prefill batch, #new-seq: 3, #new-token: 9, #cached-token: 0, "
        "token usage: 0.10, #running-req: 2, #queue-req: 7, #pending-token: 0, ")  # fmt: skip
    assert model.start is not None
    assert (model.start.now.running, model.start.now.queued) == (5, 7)


def test_routine_lines_are_in_the_whole_tail_alone() -> None:
    model = connected()
    tag = "[2027-01-15 08:00:00]"
    for text in (
        READY,
        decode(),
        f'{tag} INFO:     1.2.3.4:5 - "GET /get_load HTTP/1.1" 200 OK',
        f"{tag} Endpoint '/get_load' is deprecated and will be removed",
        f'{tag} INFO:     1.2.3.4:5 - "POST /generate HTTP/1.1" 500 Internal',
    ):
        say(model, text)
    assert [row.text[-12:] for row in model.told] == [READY[-12:], "500 Internal"]
    assert len(model.all) == 5
    assert model.counts == {True: 5, False: 2}


def test_secrets_do_not_reach_the_screen() -> None:
    model = serving()
    assert not any("s3cret" in row.text for row in model.all)


def test_who_holds_the_lock_and_which_generation_is_in_place() -> None:
    generation = {"number": 4, "set": {"name": "ddtree", "version": "1.1.0"}, "files": []}
    model = connected(generation=generation, lock={"who": "ann@laptop", "why": "a deploy"})
    assert model.generation == "generation 4, ddtree 1.1.0"
    assert model.lock == "ann@laptop: a deploy"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"LoadState": "not-found", "ActiveState": "inactive"}, "there is no unit s.service"),
        ({"ActiveState": "failed", "SubState": "failed", "Result": "signal"}, "failed (signal)"),
        ({"ActiveState": "activating", "SubState": "auto-restart"}, "it died"),
        ({"ActiveState": "deactivating", "SubState": "stop-sigterm"}, "deactivating (stop"),
    ],
)
def test_a_unit_that_does_not_run(changes: dict[str, Any], said: str) -> None:
    model = serving()
    model.feed(heard.UnitSeen(unit(**changes)), NOW)
    assert words.phase(model)[0].startswith(said)
    assert model.active_for(NOW) is None
    assert not model.loading


def test_days_of_lines_and_restarts_fit_into_bounded_memory() -> None:
    model = connected()
    for n in range(120):
        restarted(model, f"i{n}", at=n * 600.0)
        lines = [decode(), "[2027-01-15 08:00:00] something else"] * 10
        say(model, READY, *lines, at=n * 600.0 + 1, invocation=f"i{n}")
        model.judge(NOW + n * 600.0 + 2)
    assert len(model.told) <= 2000
    assert len(model.all) <= 500
    assert len(model.ended) <= 100
    assert len(model.restarts) <= 100
    bins = sum(len(archive) for archive in model.plots.accept_len._archives)
    assert bins <= sum(kept for _, kept in TIERS)
    model = connected()
    say(model, READY)
    for n in range(21):
        say(model, *(decode() for _ in range(100)), at=n * 10.0)
    assert model.start is not None
    assert len(model.start.samples) <= 2000
