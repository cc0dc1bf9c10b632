"""What the prefilter leaves out is of no matter: equal to reading everything."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsctl.journal import DecodeRun, Diagnoser, Diagnosis, Entry, Reader, Selection, source
from opsctl.journal import prefilter as pf
from opsctl.journal.lines import Lines
from opsctl.journal.matcher import Matcher
from opsctl.journal.routine import selection
from opsctl.journal.rules import needles
from opsctl.journal.windows import HEADS, SETTLED, WINDOW
from opsctl.sglang import DecodeBatch, parse

DATA = Path(__file__).parent / "data"
SELECTION = selection(needles())

DECODE = (
    "[2026-01-31 10:20:30 TP0] Decode batch, #running-req: 3, #token: 29, token usage: 0.01, "
    "accept len: {length}, accept rate: 0.50, cuda graph: {graph}, gen throughput (token/s): "
    "{speed}, #queue-req: 0"
)
STEADY = (
    DECODE.format(length="3.25", graph="True", speed="812.50"),
    DECODE.format(length="1.00", graph="False", speed="66.96"),
    "[2026-01-31 10:20:30 TP0] Decode batch. #running-req: 1, gen throughput (token/s): 20.00, ",
    "[2026-01-31 10:20:30 TP0] Prefill batch, #new-seq: 1, #new-token: 80, #running-req: 0",
    '[2026-01-31 10:20:30] INFO:     10.0.0.7:1 - "POST /generate HTTP/1.1" 200 OK',
    '[2026-01-31 10:20:30] INFO:     10.0.0.7:1 - "POST /generate HTTP/1.1" 500 Internal',
    '[2026-01-31 10:20:30] INFO:     10.0.0.7:1 - "GET /health HTTP/1.1" 200 OK',
    "a line that says nothing",
    "GET /health 200",
    '[2026-01-31 10:20:30] INFO:     10.0.0.7:1 - "GET /health_generate HTTP/1.1" 200 OK',
    '[2026-01-31 10:20:30] INFO:     10.0.0.7:1 - "GET /v1/models HTTP/1.1" 404 Not Found',
    "[2026-01-31 10:20:30 TP0] calm",
)
LOUD = (
    "[2026-01-31 10:20:31 TP1] Scheduler hit an exception: Traceback (most recent call last):",
    "Traceback (most recent call last):",
    '  File "/a/b.py", line 12, in verify',
    "    out = model(batch)",
    "RuntimeError: The size of tensor a (8) must match the size of tensor b (33) at non-singleton"
    " dimension 0",
    "torch.OutOfMemoryError: CUDA OUT OF MEMORY. Tried to allocate 2.00 GiB",
    "[2026-01-31 10:20:31 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1",
    "[2026-01-31 10:20:31 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300)",
    "SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
    "[2026-01-31 10:20:31 TP0] Subprocess scheduler_0 (pid=9) crashed with exit code -6",
    "[2026-01-31 10:20:31] server_args=ServerArgs(a=1, decode_log_interval=2)",
    "[2026-01-31 10:20:31] The server is fired up and ready to roll!",
    DECODE.format(length="2.00", graph="True", speed="9.00") + "RuntimeError: interleaved",
    "quotes a prompt: ] Decode batch, #running-req: 1, accept len: 9.99,",
    "[x] Decode batch of cookies, accept len: 7.00, said the user's Error",
    "two\nlines, Error: \u00e9clat\x1b[1m in\x1b[0m colour",
    "\x1b[31mNo space\x1b[0m left on device",
    "50%\r100% pool leak\r",
    "odd.package.Odd: an exception without the name of one",
    "[2026-01-31 10:20:30] Exception in ASGI application",
    "[2026-01-31 10:20:30] Receive: obj=GenerateReqInput(rid='7f', text='why",
    "[2026-01-31 10:20:31 TP0] Init torch distributed begin.",
    "[2026-01-31 10:20:31] SIGTERM received. signum=None frame=None. Draining requests...",
    "[2026-01-31 10:20:31] Abort request of a health check",
)


def as_json(message: str, pid: int) -> bytes:
    fields = {"_CMDLINE": "serve --batch --on-error", "MESSAGE": message, "_PID": str(pid)}
    return json.dumps(fields, ensure_ascii=False).encode()


def as_compact_json(message: str, pid: int) -> bytes:
    fields = {"_PID": str(pid), "MESSAGE": message, "__REALTIME_TIMESTAMP": "1795962504000001"}
    return json.dumps(fields, separators=(",", ":")).encode()


def as_bytes(message: str, pid: int) -> bytes:
    return json.dumps({"MESSAGE": list(message.encode()), "_PID": str(pid)}).encode()


def as_short(message: str, pid: int) -> bytes:
    head = f"Jan 31 10:20:31 gpu-a sglang[{pid}]: "
    return (head + message.replace("\n", "\n" + " " * len(head))).encode()


def as_plain(message: str, pid: int) -> bytes:
    return message.encode()


def as_compose(message: str, pid: int) -> bytes:
    return b"\n".join(b"\x1b[36msglang-1  | \x1b[0m" + m for m in message.encode().split(b"\n"))


FORMS = (as_json, as_compact_json, as_bytes, as_short, as_plain, as_compose)
Line = tuple[str, int, Callable[[str, int], bytes]]

LINES: st.SearchStrategy[list[Line]] = st.lists(
    st.tuples(
        st.one_of(st.sampled_from(STEADY), st.sampled_from(STEADY), st.sampled_from(LOUD)),
        st.integers(1, 3),
        st.sampled_from(FORMS),
    ),
    max_size=60,
)


def unfolded(reader: Reader) -> list[tuple[int, Entry]]:
    """Items as they come, decode lines as any other."""
    found: list[tuple[int, Entry]] = []
    for line, item in reader:
        if isinstance(item, DecodeRun):
            found += [(number, item.entry(at)) for at, number in enumerate(item.lines)]
        else:
            found.append((line, item))
    return found


def read(data: bytes, selection: Selection | None) -> list[tuple[int, Entry]]:
    return unfolded(Reader(io.BytesIO(data), selection))


def diagnosed(data: bytes, wanted: Selection | None) -> Diagnosis:
    """As `opsctl.rollout.diagnosing` does."""
    diagnoser, reader = Diagnoser(), Reader(io.BytesIO(data), wanted)
    for line, item in reader:
        if isinstance(item, DecodeRun):
            diagnoser.feed_run(item)
        else:
            diagnoser.feed(line, item)
    if wanted is not None:
        diagnoser.end(reader.backwards())
    return diagnoser.result()


def judgement(found: Diagnosis) -> dict[str, object]:
    names = ("incident", "kind", "also", "severity", "phase", "action", "decisive", "lines")
    return {name: getattr(found, name) for name in names}


def matters(entry: Entry) -> bool:
    message = entry.message
    if message.count("\n") == 0 and isinstance(parse(message), DecodeBatch):
        return True
    if any(head in message for head in HEADS):
        return True
    for sort in SELECTION.routine:
        for text in sort.texts:
            message = message.replace(text, "")
    low = message.lower()
    return any(needle in low for needle in SELECTION.caseless)


@settings(max_examples=150, deadline=None)
@given(LINES, st.sampled_from([64, 1000, 1 << 20]))
def test_what_matters_is_passed_on(lines: list[Line], block: int) -> None:
    data = b"".join(form(message, pid) + b"\n" for message, pid, form in lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "BLOCK", block)
        every, chosen = read(data, None), read(data, SELECTION)
        judged = [judgement(diagnosed(data, wanted)) for wanted in (SELECTION, None)]
    passed = {line for line, _ in chosen}
    assert len(passed) == len(chosen), "each line once"
    assert [each for each in every if each[0] in passed] == chosen, "the same entries, in order"
    assert {line for line, entry in every if matters(entry)} <= passed
    assert judged[0] == judged[1]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 11), st.integers(1, 16)), max_size=9), st.integers(1, 40))
def test_silence_is_judged_as_if_all_was_read(chosen: list[tuple[int, int]], seconds: int) -> None:
    """Health checks and batches with a time, and a line that tells of a death now and then."""
    health = [line for line in STEADY if '"GET /health' in line]
    alive = [line for line in STEADY if "batch" in line or "POST" in line]
    sorts = [*health, *health, *alive, LOUD[9]]
    lines = [sorts[n % len(sorts)] for n, times in chosen for _ in range(times)]
    stamped = (
        {"__REALTIME_TIMESTAMP": str((1_795_962_504 + n * seconds) * 10**6), "MESSAGE": line}
        for n, line in enumerate(lines)
    )
    data = "".join(json.dumps(fields) + "\n" for fields in stamped).encode()
    assert judgement(diagnosed(data, SELECTION)) == judgement(diagnosed(data, None))


def reported() -> list[str]:
    names = ("public-reports.jsonl", "unlike.jsonl", "own.jsonl")
    rows = [json.loads(row) for name in names for row in (DATA / name).read_text().splitlines()]
    return [line for row in rows for line in row["lines"]]


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_what_is_left_out_of_reported_lines_changes_no_diagnosis(rng: random.Random) -> None:
    """Excerpts of reports, between lines of a busy server, by several processes."""
    lines = reported()
    mixture: list[bytes] = []
    form = rng.choice([as_json, as_compact_json, as_plain, as_compose])
    for _ in range(rng.randrange(1, 8)):
        at, pid = rng.randrange(len(lines)), rng.randrange(1, 4)
        mixture += [form(line, pid) for line in lines[at : at + rng.randrange(1, 12)]]
        steady = (rng.choice(STEADY) for _ in range(rng.choice([0, 3, 40, 200])))
        mixture += [form(line, rng.randrange(1, 4)) for line in steady]
    data = b"\n".join(mixture) + b"\n"
    assert judgement(diagnosed(data, SELECTION)) == judgement(diagnosed(data, None))


@settings(max_examples=50, deadline=None)
@given(st.randoms(use_true_random=False))
def test_frames_follow_their_head_whatever_comes_between(rng: random.Random) -> None:
    """Ranks that interleave; the frames contain no needle, the exception is one of our own."""
    trace = [LOUD[0], *[f"  at {n} in frame" for n in range(rng.randrange(1, 300))], "Odd: x"]
    others = [rng.choice(STEADY) for _ in range(rng.randrange(1000))]
    lines = [(message, 1) for message in trace] + [(message, 2) for message in others]
    places = sorted(range(len(lines)), key=lambda n: (rng.random(), n))
    mixed = sorted(zip(places, lines, strict=True), key=lambda each: each[0])
    ordered = iter([line for line in lines if line[1] == 1])
    mixture = [next(ordered) if pid == 1 else (message, pid) for _, (message, pid) in mixed]
    data = b"".join(as_compact_json(message, pid) + b"\n" for message, pid in mixture)
    chosen = read(data, SELECTION)
    assert [entry.message for _, entry in chosen if entry.pid == 1] == trace


@pytest.mark.parametrize(("minute", "kind"), [(21, "load_progress"), (59, "nccl_hang")])
def test_silence_counts_up_to_a_line_that_says_nothing(minute: int, kind: str) -> None:
    lines = (
        "[2026-01-31 10:20:30 TP0] Init torch distributed begin.",
        "[2026-01-31 10:20:30 TP1] Init torch distributed begin.",
        "[2026-01-31 10:20:31 TP1] Init torch distributed ends. mem usage=1.1 GB",
        "[2026-01-31 10:20:31 TP0] sglang is using nccl==2.27.3",
        f"[2026-01-31 10:{minute}:30 TP0] calm",
        "without a time",
    )
    data = "".join(line + "\n" for line in lines).encode()
    assert diagnosed(data, None).kind == diagnosed(data, SELECTION).kind == kind


def test_an_indented_line_knows_its_head_in_the_block_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = as_short("calm", 1) + b"\n" + as_short("two\n\n{\nlines, Error: here", 23456) + b"\n"
    for block in range(40, len(data), 7):
        monkeypatch.setattr(source, "BLOCK", block)
        ((line, entry),) = read(data, SELECTION)
        assert (line, entry.message, entry.pid) == (4, "lines, Error: here", 23456)


def test_most_lines_are_left_out() -> None:
    steady = [message for message in STEADY if message.endswith(("200 OK", "req: 0", "calm"))]
    steady = [message for message in steady if "Decode" not in message]
    data = b"".join(as_compact_json(steady[n % len(steady)], 1) + b"\n" for n in range(10_000))
    reader = Reader(io.BytesIO(data), SELECTION)
    assert len(list(reader)) <= 20
    assert reader.lines == 10_000


def test_needles_in_other_fields_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(as_json("nothing", 1) + b"\n" for _ in range(5_000))
    data += as_json("RuntimeError: here", 1) + b"\n"
    parsed = []
    feed = Lines.feed

    def counted(self: Lines, raw: bytes) -> Entry | None:
        parsed.append(raw)
        return feed(self, raw)

    monkeypatch.setattr(Lines, "feed", counted)
    found = read(data, SELECTION)
    assert [(line, entry.message) for line, entry in found] == [(5_000, "RuntimeError: here")]
    assert len(parsed) < 10


def test_a_field_that_differs_from_line_to_line_is_not_learned() -> None:
    def line(number: int) -> bytes:
        fields = {"A": "same", "B": f"error {number}", "MESSAGE": "nothing", "C": "leak"}
        return json.dumps(fields).encode() + b"\n"

    data = b"".join(map(line, range(3_000)))
    filtered = pf.Prefilter(SELECTION, Lines(), lambda number, raw: None)
    block, hits = filtered._without_fields(data)
    assert len(hits.looked_for) == 3_000, "those of B"
    assert b"leak" not in block
    assert block.count(b'"A": "same"') == 3_000


@given(st.lists(st.sampled_from([b"text", b"te", b"x" * 31 + b"yz", b"x" * 32, b"\n"])))
def test_a_text_is_taken_out(parts: list[bytes]) -> None:
    block = b"".join(parts)
    for text in (b"text", b"x" * 31 + b"yz"):
        assert pf._without(text, block) == block.replace(text, b'"":""')


def test_after_its_window_a_process_is_left_out_again() -> None:
    calm = [("[2026-01-31 10:20:30 TP0] calm", 1)] * 200
    lines = [(LOUD[0], 1), ("  frame", 1), *calm, ("  odd", 1)]
    data = b"".join(as_compact_json(*line) + b"\n" for line in lines)
    assert len(read(data, SELECTION)) == 2 + SETTLED
    bare = [(LOUD[0], 1), *[("  frame", 1)] * 500]
    data = b"".join(as_compact_json(*line) + b"\n" for line in bare)
    assert len(read(data, SELECTION)) == 1 + WINDOW
    apart = [(LOUD[0], 1), *[("nothing", 2)] * 5_000, ("  frame", 1)]
    data = b"".join(as_compact_json(*line) + b"\n" for line in apart)
    assert [line for line, _ in read(data, SELECTION)] == [0]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_a_run_says_what_the_grammar_does(form: Callable[[str, int], bytes]) -> None:
    messages = [message for message in STEADY if "Decode" in message]
    data = b"".join(form(message, 4) + b"\n" for message in messages)
    expected = [parse(message) for message in messages]
    items = [item for _, item in Reader(io.BytesIO(data), SELECTION)]
    if form is as_bytes:  # which only a parser can read
        assert [parse(item.message) for item in items if isinstance(item, Entry)] == expected
        return
    (run,) = items
    assert isinstance(run, DecodeRun)
    assert len(run) == len(expected)
    assert run.lines == [0, 1, 2]
    assert run.accept_lens == [3.25, 1.0]
    assert run.ranks == ["TP0"] * 3
    assert [parse(run.entry(at).message) for at in range(3)] == expected
    assert parse(run.entry(-1).message) == expected[-1]


def test_runs_of_each_version_say_what_the_grammar_does() -> None:
    rows = (DATA.parent.parent / "sglang" / "data" / "lines.jsonl").read_text("utf-8")
    lines = [str(json.loads(row).get("line", "")) for row in rows.splitlines()]
    known = [(line, parse(line)) for line in lines if "\n" not in line]
    batches = [(line, batch) for line, batch in known if isinstance(batch, DecodeBatch)]
    assert len(batches) > 5
    for line, batch in batches:
        for _, item in Reader(io.BytesIO(as_compact_json(line, 1)), SELECTION):
            entry = item
            if isinstance(item, DecodeRun):
                lengths = [] if batch.accept_len is None else [batch.accept_len]
                assert (item.ranks, item.accept_lens) == ([batch.rank], lengths), line
                entry = item.entry(0)
            assert isinstance(entry, Entry)
            assert parse(entry.message) == batch, line


def test_a_needle_needs_something_to_search_for() -> None:
    with pytest.raises(ValueError, match="nothing to search for"):
        Matcher(["\u00e9"])
