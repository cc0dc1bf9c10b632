"""The prompts as data: the bundled set, and one of a user's own."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsctl.baseline.prompts import Prompt, bundled, read
from opsctl.errors import UsageError

OWN = "version: 1\nprompts:\n  - {id: mine, kind: chat, text: Hello}\n"


def test_the_bundled_set_has_what_the_levels_need() -> None:
    prompts = bundled().prompts
    assert len({each.id for each in prompts}) == len({each.sha256 for each in prompts})
    assert {each.kind for each in prompts} == {
        "code", "maths", "prose", "chat", "language", "long", "short",
    }  # fmt: skip
    assert sum(each.quick for each in prompts) >= 4  # a rung of 4 with 4 different answers
    assert all(each.answer for each in prompts if each.kind == "short")
    assert prompts[0].quick  # the canary is asked at every rung, too


def test_the_deep_level_has_enough_to_see_one_token_in_two_thousand() -> None:
    deep, others = bundled().deep, bundled().prompts
    assert len({each.sha256 for each in (*deep, *others)}) == len(deep) + len(others)
    assert math.exp(-sum(each.tokens for each in deep) / 2_000) < 0.01
    # A hit in the prefix cache would make what is wrong the cache's.
    assert len({re.split(r"\W", each.text)[0] for each in deep}) == len(deep)


@settings(deadline=None)
@given(st.integers(1, 20_000))
def test_a_long_prompt_outgrows_the_chunk(chunk: int) -> None:
    long = next(each for each in bundled().prompts if each.long)
    grown = long.longer_than(chunk)
    # A token of English is four to five characters.
    assert len(grown.text) > chunk * 5
    assert grown.longer_than(chunk) == grown
    assert grown.sha256 != long.sha256


def test_others_stay_as_they_are() -> None:
    short = next(each for each in bundled().prompts if not each.long)
    assert short.longer_than(10_000) is short


def test_the_hash_is_of_the_text_alone() -> None:
    one = Prompt(id="a", kind="chat", text="Hello", tokens=8)
    assert one.sha256 == Prompt(id="b", kind="code", text="Hello", tokens=9).sha256
    assert one.sha256 != Prompt(id="a", kind="chat", text="Hello ").sha256


def test_a_set_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(OWN, encoding="utf-8")
    (mine,) = read(path).prompts
    assert (mine.id, mine.text, mine.tokens) == ("mine", "Hello", 64)
    assert read(path).deep == ()
    path.write_text(OWN + "deep:\n  - {id: more, kind: words, text: Oak, tokens: 9}\n")
    assert [(each.id, each.tokens) for each in read(path).deep] == [("more", 9)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("version: 2\nprompts:\n  - {id: a, kind: chat, text: x}\n", "version"),
        ("version: 1\nprompts: []\n", "prompts"),
        ("version: 1\nprompts:\n  - {id: A B, kind: chat, text: x}\n", "prompts.0.id"),
        ("version: 1\nprompts:\n  - {id: a, kind: poem, text: x}\n", "prompts.0.kind"),
        ("version: 1\nprompts:\n  - {id: a, kind: chat, text: x, tokens: 0}\n", "prompts.0.tokens"),
        ("version: 1\nprompts:\n  - {id: a, kind: chat, text: x, tokns: 3}\n", "prompts.0.tokns"),
        (OWN + "  - {id: mine, kind: chat, text: Again}\n", "mine stands twice"),
        (OWN + "deep:\n  - {id: mine, kind: chat, text: Again}\n", "mine stands twice"),
        (OWN + "deep:\n  - {id: more, kind: chat}\n", "deep.0.text"),
        ("prompts: [", "own.yaml"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read(path)
    assert says in caught.value.message
    assert str(path) in caught.value.message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        read(tmp_path / "none.yaml")
