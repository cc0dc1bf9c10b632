"""`notices:` of the inventory: whose list counts, and that no message shows a URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsctl import inventory
from opsctl.errors import InventoryError
from opsctl.inventory import Webhook
from opsctl.inventory.notices import is_loopback

SECRET = "x7s3cr3t"
SERVICE = "unit: s.service, python: /p, port: 1, model: {path: /m, served_name: m}"


def labels(tmp_path: Path, defaults: str = "", host: str = "", service: str = "") -> list[str]:
    """What the service is to tell, where each of the three has or lacks a list."""
    path = tmp_path / "inventory.yaml"
    path.write_text(
        f"version: 1\ndefaults: {{{defaults}}}\nhosts:\n  alpha:\n    lab: x\n    "
        f"services:\n      serve: {{{SERVICE}{service}}}\n"
        + (f"    notices: {host}\n" if host else "")
    )
    book = inventory.load(path)
    again = type(book).model_validate(book.model_dump())  # as a running lab's entry is made
    (found, kept) = (each.hosts["alpha"].services["serve"].notices for each in (book, again))
    assert found is not None
    assert found == kept
    return [webhook.label for webhook in found]


@pytest.mark.parametrize(
    ("defaults", "host", "service", "expected"),
    [
        ("", "", "", []),
        ("notices: [{url: 'env:A'}]", "", "", ["json, env:A"]),
        ("notices: [{url: 'env:A'}]", "[{url: 'file:/b', form: slack}]", "", ["slack, file:/b"]),
        ("notices: [{url: 'env:A'}]", "[{url: 'env:B'}]", "[{url: {env: C}}]", ["json, env:C"]),
        ("notices: [{url: 'env:A'}]", "[]", "", []),
        ("notices: [{url: 'env:A'}]", "", "[]", []),
        (
            "notices: [{url: 'https://h.example/x'}, {url: 'env:A'}]",
            "",
            "",
            ["json", "json, env:A"],
        ),
    ],
)
def test_the_nearest_list_counts_whole(
    tmp_path: Path, defaults: str, host: str, service: str, expected: list[str]
) -> None:
    own = f", notices: {service}" if service else ""
    assert labels(tmp_path, defaults, host, own) == expected


def test_every_event_unless_it_says_which(tmp_path: Path) -> None:
    """An unquoted `on` is a boolean to YAML 1.1."""
    path = tmp_path / "inventory.yaml"
    text = (
        "version: 1\ndefaults:\n  notices: [{url: 'env:A'%s}]\nhosts: {a: {lab: x, services: {s: "
    )
    for more, events in (("", 7), (", on: [guard]", 1), (', "on": [guard, failure]', 2)):
        path.write_text(text % more + f"{{{SERVICE}}}}}}}}}\n")
        (webhook,) = inventory.load(path).defaults.notices
        assert len(webhook.on) == events
        assert "guard" in webhook.on


@pytest.mark.parametrize(
    ("webhook", "fault"),
    [
        (f"url: 'http://h.example/{SECRET}'", "its url is sent in the clear"),
        (f"url: 'https://ann:{SECRET}@h.example/'", "its url must not name a user"),
        (f"url: 'ftp://h.example/{SECRET}'", "its url must be env:NAME, file:PATH, or an https"),
        (f"url: '{SECRET}'", "its url must be env:NAME, file:PATH, or an https"),
        (f"url: 'https://[{SECRET}'", "its url is not a URL"),
        (f"url: 'https://h.example:99999/{SECRET}'", "its url is not a URL"),
        (f'url: "https://h.example/{SECRET}\\n"', "its url must be"),
        (f"url: 'env:https://h.example/{SECRET}'", "names no environment variable"),
        (f"url: {{file: 'https://h.example/{SECRET}'}}", "names no file"),
        (f"url: {{env: A, file: {SECRET}}}", "give exactly one of 'env' and 'file'"),
        (f"url: [{SECRET}]", "input should be a valid string"),
        (f"url: 'https://h.example/{SECRET}', form: teams", "form: input should be 'json' or"),
        (f"url: 'https://h.example/{SECRET}', on: [always]", "on.0: input should be 'start'"),
        (f"url: 'https://h.example/{SECRET}', on: []", "on: frozenset should have at least 1"),
        (f"url: 'https://h.example/{SECRET}', colour: red", "colour: no such key"),
    ],
)
def test_a_fault_is_named_without_the_url(tmp_path: Path, webhook: str, fault: str) -> None:
    with pytest.raises(InventoryError) as caught:
        labels(tmp_path, f"notices: [{{{webhook}}}]")
    assert f"{tmp_path / 'inventory.yaml'}:2: defaults.notices.0" in caught.value.message
    assert fault in caught.value.message
    assert SECRET not in caught.value.message
    assert "h.example" not in caught.value.message


@pytest.mark.parametrize(
    ("url", "insecure"),
    [
        ("https://h.example/x", False),
        ("http://127.0.0.1:8/x", False),
        ("http://127.77.0.1:8/x", False),
        ("http://[::1]:8/x", False),
        ("http://localhost/x", False),
        ("http://h.example/x", True),
    ],
)
def test_what_may_be_sent_to(url: str, insecure: bool) -> None:
    found = Webhook.model_validate({"url": url, "insecure": insecure})
    assert found.address() == url
    assert url not in repr(found)


def test_a_reference_is_held_to_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOOK", f"http://h.example/{SECRET}")
    with pytest.raises(LookupError, match="the URL is sent in the clear") as caught:
        Webhook.model_validate({"url": "env:HOOK"}).address()
    assert SECRET not in str(caught.value)
    kept = tmp_path / "hook"
    kept.write_text(f"https://h.example/{SECRET}\n")
    assert Webhook.model_validate({"url": f"file:{kept}"}).address().endswith(SECRET)


@pytest.mark.parametrize(
    ("host", "own"), [("localhost", True), ("127.9.9.9", True), ("10.0.0.1", False), ("x", False)]
)
def test_this_machine(host: str, own: bool) -> None:
    assert is_loopback(host) is own
