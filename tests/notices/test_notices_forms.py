"""The two forms of a notice, held against golden files, and Slack's limits for any text."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from notice_samples import SAMPLES

from opsctl.hostside import notice_form
from opsctl.inventory.notices import Form

GOLDEN = Path(__file__).parent / "golden"
FORMS: tuple[Form, ...] = ("json", "slack")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SAMPLES)
def test_a_form_is_as_it_was(name: str, form: Form) -> None:
    """After a change that is meant: write what `body` gives into the file, and read the diff."""
    made = json.loads(notice_form.body(SAMPLES[name].record(), form))
    assert made == json.loads((GOLDEN / f"{name}.{form}.json").read_text(encoding="utf-8"))


def slack(notice: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(notice_form.body(notice, "slack"))
    return found


def texts(message: dict[str, Any]) -> list[str]:
    """Every text of the blocks."""
    found = []
    for block in message["blocks"]:
        parts = block["elements"] if block["type"] == "context" else [block["text"]]
        found += [part["text"] for part in parts]
    return found


TEXTS = ["command", "host", "service", "who", "why", "cause", "summary", "remedy", "next"]
ANY = st.one_of(st.none(), st.text(max_size=5000), st.just("&<>`*_" * 800))


@settings(deadline=None)
@given(
    st.fixed_dictionaries(
        {"event": st.sampled_from(sorted([*notice_form._HEADS, "else"]))},
        optional={
            **dict.fromkeys(TEXTS, ANY),
            "from": st.fixed_dictionaries({"generation": st.integers(0, 9), "set": ANY}),
            "to": st.fixed_dictionaries({"generation": st.none(), "set": ANY}),
            "duration_s": st.floats(0, 1e6),
            "exit_code": st.integers(0, 255),
            "generation": st.integers(0, 9),
        },
    )
)
def test_any_notice_is_within_slack_s_limits(notice: dict[str, Any]) -> None:
    """docs.slack.dev, Block Kit: 50 blocks, 3000 characters a section, 10 elements a context;
    chat.postMessage: 40,000 characters of text; and the three signs escaped."""
    message = slack(notice)
    assert 0 < len(message["blocks"]) <= 50
    assert 0 < len(message["text"]) <= 40_000
    for text in texts(message):
        assert 0 < len(text) <= 3000
    for text in [*texts(message), message["text"]]:
        assert not re.search(r"[<>]|&(?!(amp|lt|gt);)", text)
        assert text.replace("\n", "").isprintable()
    for block in message["blocks"]:
        if block["type"] == "context":
            assert len(block["elements"]) <= 10
    for part in (block["text"] for block in message["blocks"] if block["type"] == "section"):
        assert (part["type"], part["verbatim"]) == ("mrkdwn", True)


def test_an_escaped_text_reads_as_it_was() -> None:
    text = "if a < b && c > d: use <!channel> or &amp;"
    shown = texts(slack({"event": "rollback", "cause": text}))
    assert html.unescape(shown[1]) == f"Cause: {text}"
    assert not any("<!channel>" in each for each in shown)


def test_no_entity_is_cut() -> None:
    shown = texts(slack({"event": "rollback", "cause": "&" * 5000}))[1]
    assert shown.endswith("&amp;…")


def test_a_command_stays_in_its_quotes() -> None:
    (shown,) = (t for t in texts(slack({"event": "start", "next": "a`b"})) if "Next" in t)
    assert shown == "Next: `a'b`"


def test_a_long_cause_is_clipped_in_the_generic_form() -> None:
    made = json.loads(notice_form.body({"event": "failure", "cause": "x" * 9000}, "json"))
    assert len(made["cause"]) == 4000
    assert len(made["text"]) < 4100


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59.4, "59s"), (60, "1m00s"), (645, "10m45s")]
)
def test_a_duration(seconds: float, text: str) -> None:
    assert notice_form.took(seconds) == text


@pytest.mark.parametrize(
    ("sides", "text"),
    [
        (((3, "a 1"), (4, "a 2")), "a 1 (generation 3) to a 2 (generation 4)"),
        (((3, None), (3, None)), "generation 3"),
        (((None, None), (4, "a 2")), "a 2 (generation 4)"),
        (((3, "a 1"), (None, None)), "a 1 (generation 3)"),
        (((None, None), (None, None)), ""),
    ],
)
def test_a_move(sides: tuple[tuple[Any, Any], ...], text: str) -> None:
    first, second = ({"generation": number, "set": name} for number, name in sides)
    assert notice_form.move({"from": first, "to": second}) == text
