"""Notices sent from the side: nobody waits for a receiver, but at the end, and not for long."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from notice_receiver import SECRET, Answer, receiver
from notice_samples import SAMPLES

from opsctl.inventory import Webhook
from opsctl.notices import Courier, Notice
from opsctl.notices.sender import NotDelivered

START, SUCCESS = SAMPLES["start"], SAMPLES["success"]


def hook(url: str, **changes: Any) -> Webhook:
    return Webhook.model_validate({"url": url, **changes})


def test_both_forms_arrive_in_order() -> None:
    with receiver() as one, receiver() as two:
        courier = Courier([hook(one.url), hook(two.url, form="slack")])
        for notice in (START, SUCCESS):
            courier.send(notice)
        outcomes = courier.close(10)
    assert [(each.webhook, each.event, each.error) for each in outcomes] == [
        ("webhook 1 (json)", "start", ""),
        ("webhook 1 (json)", "success", ""),
        ("webhook 2 (slack)", "start", ""),
        ("webhook 2 (slack)", "success", ""),
    ]
    assert one.events == ["start", "success"]
    assert [each.body["blocks"][0]["text"]["text"] for each in two.received] == [
        "*deploy on ct200 begins*",
        "*deploy on ct200 succeeded*",
    ]


def test_each_webhook_gets_what_it_asks_for() -> None:
    with receiver() as found:
        courier = Courier([hook(found.url, on=["success", "guard"]), hook(found.url, on=["guard"])])
        for notice in (START, SUCCESS, SAMPLES["test"]):
            courier.send(notice)
        courier.close(10)
    assert sorted(found.events) == ["success", "test", "test"]


def test_a_receiver_that_hangs_delays_nothing_and_nobody_else() -> None:
    with receiver(Answer(hang=60)) as slow, receiver() as quick:
        courier = Courier([hook(slow.url), hook(quick.url)])
        began = time.monotonic()
        courier.send(START)
        courier.send(SUCCESS)
        assert time.monotonic() - began < 1.0
        outcomes = courier.close(1.5)
        assert 1.0 < time.monotonic() - began < 4.0
        assert quick.events == ["start", "success"]
    late, _, *well = outcomes
    assert late.error == "not known to have arrived 2 s after the end"
    assert [each.error for each in well] == ["", ""]


def test_an_answer_without_end_is_given_up() -> None:
    with receiver(Answer(drip=True)) as found:
        courier = Courier([hook(found.url)])
        courier.send(START)
        (outcome,) = courier.close(1.0)
    assert "not known" in outcome.error


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Where the tests themselves run in the background, Ctrl-C is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_the_wait_and_no_more() -> None:
    with receiver(Answer(hang=60)) as found:
        courier = Courier([hook(found.url)])
        courier.send(START)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        (outcome,) = courier.close(30)
        assert time.monotonic() - began < 10
    assert "not known" in outcome.error


def test_nothing_sent_is_nothing_waited_for() -> None:
    began = time.monotonic()
    assert Courier([hook("https://hooks.example/x")]).close(30) == []
    assert time.monotonic() - began < 1


def test_a_reference_is_read_at_the_time_and_named_when_it_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPS_HOOK", raising=False)
    courier = Courier([hook("env:OPS_HOOK"), hook("file:/nonexistent/hook")])
    courier.send(START)
    one, two = courier.close(10)
    assert (one.webhook, one.error) == (
        "webhook 1 (json, env:OPS_HOOK)",
        "the environment variable OPS_HOOK is not set",
    )
    assert "cannot read /nonexistent/hook" in two.error
    monkeypatch.setenv("OPS_HOOK", f"ftp://{SECRET}")
    courier = Courier([hook("env:OPS_HOOK")])
    courier.send(START)
    (one,) = courier.close(10)
    assert one.error == "the URL must be env:NAME, file:PATH, or an https URL"


@pytest.mark.parametrize(
    ("error", "shown"),
    [(NotDelivered("HTTP 404"), "HTTP 404"), (ValueError(SECRET), "a bug: ValueError")],
)
def test_whatever_is_raised_is_an_outcome(error: Exception, shown: str) -> None:
    def post(url: str, content: bytes) -> None:
        raise error

    courier = Courier([hook(f"https://hooks.example/{SECRET}")], post)
    courier.send(START)
    (outcome,) = courier.close(10)
    assert outcome.error == shown


@pytest.mark.parametrize("answer", [Answer(), Answer(404), Answer(close=True)])
def test_no_log_line_holds_the_url(answer: Answer, caplog: pytest.LogCaptureFixture) -> None:
    """httpx writes each request's URL at INFO."""
    caplog.set_level(logging.DEBUG)
    with receiver(answer) as found:
        courier = Courier([hook(found.url)])
        courier.send(START)
        courier.close(10)
        assert found.received
        assert SECRET not in caplog.text
        assert str(found.port) not in caplog.text


def test_the_log_filter_is_what_keeps_it_out(caplog: pytest.LogCaptureFixture) -> None:
    from opsctl.notices import sender

    caplog.set_level(logging.DEBUG)
    with receiver() as found:
        sender.post(found.url, b"{}")  # on this thread, which is not the courier's
    assert SECRET in caplog.text


def test_a_webhook_shows_no_url() -> None:
    found = hook(f"https://hooks.example/{SECRET}")
    made = Courier([found])
    for text in (repr(found), str(found), found.model_dump_json(), repr(made._lanes)):
        assert SECRET not in text
        assert "hooks.example" not in text


def test_a_notice_that_cannot_be_a_body_is_a_bug_and_no_more() -> None:
    courier = Courier([hook("https://hooks.example/x")], _never)
    notice: Notice = SAMPLES["start"]
    courier.send(type(notice)(event="start", command="x", host="h", service="s", at=object()))  # type: ignore[arg-type]
    (outcome,) = courier.close(10)
    assert outcome.error == "a bug: TypeError"


def _never(url: str, content: bytes) -> None:
    raise AssertionError("not reached")
