"""`opsctl metrics` against a scripted host: which lines it asks for, and what it makes of them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from rollout_tools import SERVICE

from opsctl.errors import Refused
from opsctl.journal import Entry
from opsctl.report import Report
from opsctl.rollout.metering import Meter, Scope, report_of
from opsctl.rollout.session import Session, StartJournal
from opsctl.sglang import SglangClient
from opsctl.units.properties import Unit

ARGUMENTS = "server_args=ServerArgs(speculative_num_draft_tokens=8, decode_log_interval=40)"
READY = "[2026-01-31 10:00:10] The server is fired up and ready to roll!"


def decode(length: float) -> str:
    return (
        f"[2026-01-31 10:00:20] Decode batch, #running-req: 1, #token: 9, token usage: 0.01, "
        f"accept len: {length:.2f}, accept rate: 0.10, cuda graph: True, "
        "gen throughput (token/s): 10.00, #queue-req: 0"
    )


class Host:
    """A journal of starts, each with its own lines, and the calls that were made."""

    def __init__(self, log: list[dict[str, Any]] | None = None) -> None:
        self.host = SimpleNamespace(name="alpha")
        self.service = SERVICE
        self.entries: list[Entry] = []
        self.asked: list[dict[str, Any]] = []
        self.log = (
            [
                {"event": "stage", "number": 1, "time": 90.0},
                {"event": "swap", "number": 1, "time": 100.0},
            ]
            if log is None
            else log
        )
        self.records = {0: "found", 1: "confirmed", 2: "rolled_back"}
        self.invocation = ""
        self.now = 1000.0
        self.active = True
        self.info: dict[str, Any] | None = {
            "version": "0.5.12.post1",
            "internal_states": [{"avg_spec_accept_length": 3.0}],
        }

    def say(self, at: float, message: str) -> None:
        self.entries.append(
            Entry(at, message, invocation=self.invocation, cursor=f"c{len(self.entries)}")
        )

    def start(
        self, invocation: str, at: float, *lengths: float, arguments: str = ARGUMENTS
    ) -> None:
        self.invocation = invocation
        for place, message in enumerate([arguments, READY, *map(decode, lengths)]):
            self.say(at + place, message)

    def journal(
        self,
        invocation: str | None,
        *,
        lines: int = 20000,
        since: float | None = None,
        grep: str | None = None,
    ) -> list[Entry]:
        self.asked.append({"invocation": invocation, "since": since, "grep": grep, "lines": lines})
        return [
            entry
            for entry in self.entries
            if (invocation is None or entry.invocation == invocation)
            and entry.realtime >= (since or 0.0)
            and re.search(grep or "", entry.message)
        ][-lines:]

    def read(self, invocation: str, lines: int) -> StartJournal:
        return StartJournal(self.journal(invocation, lines=lines), invocation)

    def unit(self) -> Unit:
        state = ("active", "running") if self.active else ("failed", "failed")
        return Unit.from_show(
            {
                "Id": SERVICE.unit,
                "LoadState": "loaded",
                "ActiveState": state[0],
                "SubState": state[1],
                "InvocationID": self.invocation,
                "time": self.now,
            }
        )

    def call(self, op: str, **parameters: Any) -> Any:
        if op == "audit_log":
            return self.log
        chosen = {"name": "ddtree", "version": "1.1.0"}
        return [
            {
                "number": number,
                "status": status,
                "set": chosen if number else None,
                "predecessor": number - 1 if number else None,
            }
            for number, status in self.records.items()
        ]

    @contextlib.contextmanager
    def client(self) -> Iterator[SglangClient]:
        def answer(request: httpx.Request) -> httpx.Response:
            if request.url.path == "/server_info" and self.info is not None:
                return httpx.Response(200, json=self.info)
            return httpx.Response(404 if self.info is not None else 503)

        with SglangClient("http://server", None, httpx.MockTransport(answer)) as client:
            yield client


def look(host: Host, scope: Scope = Scope()) -> Report:  # noqa: B008 - frozen
    session = cast(Session, host)
    meter = Meter(session, scope)
    return report_of(session, meter.read(), meter.previous(), lifetime=meter.lifetime)


def mean(measured: dict[str, Any]) -> float:
    return float(measured["acceptance"]["accept_len"]["mean"])


@pytest.fixture
def host() -> Host:
    """Generation 0 ran at 2.0, then generation 1 at 4.0, restarted once since."""
    found = Host()
    found.start("zero", 10.0, 2.0, 2.0)
    found.start("one", 110.0, 6.0)
    found.start("two", 210.0, 4.0, 4.0)
    return found


def test_the_present_start_beside_the_generation_before(host: Host) -> None:
    report = look(host)
    assert (report.verdict, report.exit_code, report.generation) == ("pass", 0, 1)
    data = report.data
    assert data["acceptance"]["count"] == 2
    assert mean(data["measured"]) == 4.0
    assert data["measured"]["draft_acceptance"] == pytest.approx(3 / 7)
    assert (data["previous"]["generation"], data["previous"]["invocation"]) == (0, "zero")
    assert mean(data["previous"]["measured"]) == 2.0
    assert data["previous"]["measured"]["draft_acceptance"] == pytest.approx(1 / 7)
    assert data["endpoint_faults"] == ["/metrics: not served (--enable-metrics)"]


def test_only_lines_of_decoding_travel(host: Host) -> None:
    look(host)
    whole = [asked for asked in host.asked if asked["grep"] is None]
    assert [asked["lines"] for asked in whole] == [1000]  # the tail, where a crash would be


def test_since_a_generations_start(host: Host) -> None:
    one = look(host, Scope(generation=1))
    assert one.data["acceptance"]["count"] == 3
    assert one.data["measured"]["starts"] == 2
    assert one.data["previous"]["generation"] == 0
    zero = look(host, Scope(generation=0))
    assert zero.data["acceptance"]["count"] == 5
    assert (zero.data["previous"], zero.generation) == (None, 0)
    assert "no generation" in zero.data["previous_note"]
    with pytest.raises(Refused, match="generation 2 was never in place here"):
        look(host, Scope(generation=2))


def test_each_start_has_its_own_arguments(host: Host) -> None:
    """A restart with a tenth of the steps a line, and other drafts."""
    host.start("three", 300.0, 8.0, arguments=ARGUMENTS.replace("40", "4").replace("=8", "=16"))
    measured = look(host, Scope(generation=1)).data["measured"]
    assert measured["steps"] == 3 * 40 + 4
    assert mean(measured) == pytest.approx((40 * (6.0 + 4.0 + 4.0) + 4 * 8.0) / 124)
    assert measured["draft_acceptance"] is None
    assert look(host).data["measured"]["draft_acceptance"] == pytest.approx(7 / 15)


def test_the_last_so_long(host: Host) -> None:
    host.now = 213.0
    assert look(host, Scope(last=0.5)).data["acceptance"]["count"] == 1
    assert look(host, Scope(last=101.0)).data["acceptance"]["count"] == 3
    why = look(host, Scope(last=101.0)).data["sources"][0]["why"]
    assert "which is not this span" in why


def test_no_line_is_inconclusive(host: Host) -> None:
    report = look(host, Scope(last=1.0))
    assert (report.verdict, report.exit_code) == ("inconclusive", 12)
    assert report.summary == "no decode line in this span: send traffic or widen it"
    assert report.data["acceptance"]["accept_len"] is None


def test_a_dead_unit_fails(host: Host) -> None:
    host.active = False
    report = look(host)
    assert (report.verdict, report.exit_code) == ("fail", 11)
    assert report.summary.startswith("serve.service is failed")
    assert mean(report.data["measured"]) == 4.0


def test_a_crash_fails_while_the_unit_is_up(host: Host) -> None:
    host.say(300.0, "[2026-01-31 10:01:00 TP0] Scheduler hit an exception: Traceback (most recent")
    host.say(301.0, "RuntimeError: CUDA error: an illegal memory access was encountered")
    report = look(host)
    assert report.exit_code == 11
    assert report.summary.startswith("this start crashed: ")
    assert report.data["incident"]["incident"] is True


def test_what_the_journal_has_lost_is_said(host: Host) -> None:
    host.entries = [entry for entry in host.entries if entry.invocation != "zero"]
    report = look(host)
    assert report.data["previous"]["measured"] is None
    assert report.data["previous_note"] == "the journal has no start of generation 0 any more"


def test_a_log_that_was_shortened_does_not_tell_what_was_before(host: Host) -> None:
    host.log = host.log[1:]  # a swap whose deploy is not in it: a rollback, perhaps
    report = look(host)
    assert (report.generation, report.data["previous"]) == (1, None)


def test_without_generations_there_is_none_before() -> None:
    host = Host(log=[])
    host.records = {}
    host.start("one", 10.0, 3.0)
    report = look(host)
    assert (report.generation, report.data["previous"]) == (None, None)
    assert report.exit_code == 0


def test_the_next_look_takes_what_is_new(host: Host) -> None:
    meter = Meter(cast(Session, host), Scope())
    assert meter.read().measured.acceptance.count == 2
    host.say(214.0, decode(1.0))
    assert meter.read().measured.acceptance.count == 3
    assert host.asked[-1]["since"] == pytest.approx(211.0)
    host.start("three", 400.0, 8.0)  # a restart begins anew
    again = meter.read()
    assert again.measured.acceptance.count == 1
    assert again.unit.invocation_id == "three"


def test_a_sliding_span_forgets(host: Host) -> None:
    host.now = 214.0
    meter = Meter(cast(Session, host), Scope(last=5.0))
    assert meter.read().measured.acceptance.count == 2
    host.now = 218.0
    host.say(217.0, decode(1.0))
    assert meter.read().measured.acceptance.count == 2  # the first has passed out of it


def test_endpoints_that_are_silent(host: Host) -> None:
    host.info = None
    report = look(host)
    assert report.exit_code == 0
    assert report.data["sources"][0]["name"] == "accept_length"
    assert {f["source"] for q in report.data["sources"] for f in q["figures"]} == {"decode lines"}
    assert len(report.data["endpoint_faults"]) == 2
