"""Posting to a real receiver on the loopback, whatever that does."""

from __future__ import annotations

import email.utils
import socket
import time
from pathlib import Path

import pytest
from notice_receiver import SECRET, Answer, Receiver, certificate, receiver

from opsctl.notices import sender
from opsctl.notices.sender import NotDelivered, post

BODY = b'{"event": "start"}'


def fails(url: str, within: float = 5.0) -> str:
    """Why `url` was not delivered to; the reason shows nothing of it."""
    with pytest.raises(NotDelivered) as caught:
        post(url, BODY, within=within)
    shown = f"{caught.value}{caught.value!r}{caught.value.__cause__!r}"
    assert SECRET not in shown
    assert "127.0.0.1" not in shown
    assert "localhost" not in shown
    return caught.value.reason


def tries(found: Receiver) -> int:
    return len(found.received)


def test_what_arrives() -> None:
    with receiver() as found:
        post(found.url, BODY)
        (got,) = found.received
    assert got.path == f"/services/{SECRET}"
    assert got.agent.startswith("opsctl/")
    assert got.body == {"event": "start"}


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_a_fault_of_the_moment_is_tried_again(status: int) -> None:
    with receiver(Answer(status), Answer(status)) as found:
        post(found.url, BODY)
        assert tries(found) == 3


@pytest.mark.parametrize("status", [400, 403, 404, 410])
def test_a_fault_of_ours_is_not(status: int) -> None:
    with receiver(Answer(status)) as found:
        assert fails(found.url) == f"HTTP {status}"
        assert tries(found) == 1


def test_tries_end() -> None:
    with receiver(*[Answer(500)] * 50) as found:
        began = time.monotonic()
        assert fails(found.url, within=1.2) == "HTTP 500"
        assert time.monotonic() - began < 5
        assert 2 <= tries(found) <= 3  # at 0 s and 0.5 s; the third would be at 1.5 s


def test_retry_after_is_kept() -> None:
    with receiver(Answer(429, {"Retry-After": "1"})) as found:
        post(found.url, BODY)
        first, second = found.received
        assert second.at - first.at >= 1.0


def test_a_retry_after_beyond_the_bound_ends_it_at_once() -> None:
    with receiver(Answer(429, {"Retry-After": "3600"})) as found:
        began = time.monotonic()
        assert fails(found.url) == "HTTP 429"
        assert time.monotonic() - began < 4
        assert tries(found) == 1


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), (" 7 ", 7.0), ("soon", None), ("-1", None), ("", None), (None, None)],
)
def test_retry_after_in_seconds(header: str | None, seconds: float | None) -> None:
    assert sender._seconds(header) == seconds


def test_retry_after_as_a_date() -> None:
    later = sender._seconds(email.utils.formatdate(time.time() + 30, usegmt=True))
    assert later is not None
    assert 25 < later <= 30
    assert sender._seconds(email.utils.formatdate(time.time() - 30, usegmt=True)) == 0.0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with receiver() as other, receiver(Answer(status, {"Location": other.url})) as found:
        assert "redirect" in fails(found.url)
        assert (tries(found), tries(other)) == (1, 0)


def test_a_receiver_that_closes() -> None:
    with receiver(Answer(close=True)) as found:
        assert fails(found.url) == "the connection was closed without an answer"
        assert tries(found) == 1, "it may have arrived"


def test_a_receiver_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "_SILENCE", 0.3)
    with receiver(Answer(hang=30)) as found:
        began = time.monotonic()
        assert fails(found.url).startswith("no answer in")
        assert time.monotonic() - began < 5
        assert tries(found) == 1, "it may have arrived"


def test_a_slow_receiver_is_waited_for() -> None:
    with receiver(Answer(hang=1.0)) as found:
        post(found.url, BODY)


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/{SECRET}"
        assert fails(url, within=0.2) == "no connection"


def test_no_such_name() -> None:
    assert fails(f"https://{SECRET.replace('/', '-')}.invalid/", within=0.2) == "no connection"


def test_a_url_that_httpx_refuses() -> None:
    assert "cannot be used" in fails(f"http://{'a' * 300}\x00/{SECRET}")


def test_a_certificate_that_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, path = certificate(tmp_path, "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    with receiver(tls=context) as found:
        post(found.url, BODY)
        assert tries(found) == 1


@pytest.mark.parametrize("trusted", [False, True])
def test_a_certificate_that_is_not(
    trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of nobody that is known, or for another name, which the message does not show."""
    context, path = certificate(tmp_path, "127.0.0.1" if not trusted else "elsewhere.example")
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
    with receiver(tls=context) as found:
        reason = fails(found.url)
        assert tries(found) == 0
    assert reason.startswith("its certificate is not trusted: ")
    assert ("another name" in reason) == trusted


def test_no_tls_there() -> None:
    with receiver() as found:
        assert fails(found.url.replace("http:", "https:")) == "no TLS connection"


def test_a_proxy_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with receiver() as found:
        post(found.url, BODY)
        assert tries(found) == 1
