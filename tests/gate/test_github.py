"""Commands, summary and outputs, read as GitHub reads them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import html5lib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from samples import ALL, FAILED, HOSTILE, INCONCLUSIVE, LOCKED, PASSED

from opsctl.gate import GateCheck, GateResult, words
from opsctl.gate import github as gh

MANY = tuple(GateCheck("smoke", f"check-{at}", "fail", f"reason {at}") for at in range(25))


def read(line: str) -> tuple[str, str, str]:
    """A command as actions/runner takes it apart (ActionCommand.cs)."""
    found = re.fullmatch(r"::(error|warning|notice) title=([^:,\r\n]*)::([^\r\n]*)", line)
    assert found is not None, line
    kind, title, message = found.groups()
    for escape, text in (("%3A", ":"), ("%2C", ",")):
        title = title.replace(escape, text)
    return kind, _data(title), _data(message)


def _data(text: str) -> str:
    return text.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")


def html_of(markdown: str) -> ET.Element:
    """As GitHub's Markdown makes it, before its sanitizer: what is here must need none."""
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown)
    found: ET.Element = html5lib.parse(rendered, namespaceHTMLElements=False)
    return found


def text_of(element: ET.Element) -> str:
    parts = [element.text or ""]
    for child in element:
        parts += [" " if child.tag in {"br", "p", "td", "h3"} else "", text_of(child)]
        parts.append(child.tail or "")
    return " ".join("".join(parts).split())


@settings(deadline=None)
@given(st.text(max_size=200), st.text(max_size=60))
def test_a_command_is_read_back(message: str, title: str) -> None:
    assert read(gh.command("error", message, title)) == (
        "error",
        words.visible(title),
        words.visible(message),
    )


def test_what_looks_like_an_escape_stays_as_it_is() -> None:
    text = "100%0A%25: a, b\r\nc\n::error::d"
    line = gh.command("notice", text, text)
    assert "\n" not in line
    assert read(line) == ("notice", *[words.visible(text)] * 2)


def test_a_failure_is_an_error_and_the_verdict_is_first() -> None:
    commands = [read(line) for line in gh.commands(FAILED)]
    assert [kind for kind, _, _ in commands] == ["error", "error", "error", "warning"]
    assert FAILED.remedy in commands[0][2]
    for (_, title, message), check in zip(commands[1:], FAILED.reasons, strict=True):
        assert title == f"{check.phase}: {check.name}"
        assert check.reason in message
        assert check.policy in message
    assert [read(line)[0] for line in gh.commands(PASSED)] == ["notice"]
    assert [read(line)[0] for line in gh.commands(INCONCLUSIVE)] == ["warning"] * 2


def test_no_more_annotations_than_github_shows_and_the_rest_is_named() -> None:
    unsure = tuple(replace(check, outcome="inconclusive") for check in MANY)
    commands = [read(line) for line in gh.commands(replace(FAILED, checks=(*MANY, *unsure)))]
    assert Counter(kind for kind, _, _ in commands) == {"error": 10, "warning": 10}
    for kind in ("error", "warning"):
        told = " ".join(f"{title} {text}" for each, title, text in commands if each == kind)
        assert all(re.search(rf"\b{check.name}\b", told) for check in MANY)
    exactly = replace(FAILED, checks=MANY[:9])
    assert [read(line)[2] for line in gh.commands(exactly)][1:] == [c.reason for c in MANY[:9]]


def test_a_long_message_is_cut_and_says_so() -> None:
    _, _, message = read(gh.command("error", "x" * 10_000, "t"))
    assert len(message) <= gh.MESSAGE
    assert "more characters" in message
    assert read(gh.command("error", "x" * gh.MESSAGE, "t"))[2] == "x" * gh.MESSAGE


@pytest.mark.parametrize("result", [*ALL.values(), HOSTILE], ids=[*ALL, "hostile"])
def test_the_summary_has_every_check(result: GateResult) -> None:
    page = html_of(gh.summary(result))
    allowed = {"h2", "h3", "p", "br", "strong", "ul", "li", "blockquote", "table", "thead", "tbody"}
    allowed |= {"tr", "th", "td", "pre", "b", "html", "head", "body"}
    assert {element.tag for element in page.iter()} <= allowed
    assert words.headline(result).split()[0] in text_of(next(page.iter("h2")))
    shown = text_of(page)
    for text in (result.summary, result.remedy):
        assert " ".join(words.visible(text).split()) in shown
    rows = [[text_of(cell) for cell in row.iter("td")] for row in page.iter("tr")]
    for check in result.checks:
        name, reason, kind, policy = (
            " ".join(words.visible(text).split())
            for text in (f"{check.phase}: {check.name}", check.reason, check.kind, check.policy)
        )
        (row,) = (row for row in rows if len(row) == 5 and row[1] == name)
        assert check.outcome in row[0]
        assert row[2:] == [reason, kind, policy]


def test_divergences_mark_the_first_token_that_differs() -> None:
    page = html_of(gh.summary(FAILED))
    marked = [each.text for each in page.iter("b")]
    expected = [
        str(ids[shown.index - shown.begin])
        for shown in FAILED.divergences
        for ids in (shown.expected_ids, shown.got_ids)
    ]
    assert marked == expected
    texts = ["".join(each.itertext()) for each in page.iter("pre")]
    assert texts == [t for d in FAILED.divergences for t in (d.expected_text, d.got_text)]


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_reason_is_itself_in_a_cell(text: str) -> None:
    check = GateCheck("smoke", "answered", "fail", text)
    page = html_of(gh.summary(replace(LOCKED, checks=(check,))))
    (row,) = page.findall(".//tbody/tr")
    assert text_of(row[2]) == " ".join(words.visible(text).split())


def test_what_has_no_room_is_counted() -> None:
    many = tuple(replace(check, reason=f"{check.reason} {'ä' * 900}") for check in MANY)
    for limit in (4_000, 20_000, 10_000_000):
        text = gh.summary(replace(FAILED, checks=many), limit)
        assert len(text.encode()) <= limit
        shown = len(re.findall(r"^\| ❌ fail ", text, re.MULTILINE))
        left = re.search(r"Left out.*?\b(\d+) checks, ", text)
        assert shown + (int(left[1]) if left else 0) == len(many)
        assert (left is None) == (limit == 10_000_000)
    text = gh.summary(replace(FAILED, checks=(*many, *PASSED.checks)), 20_000)
    assert "check-3" in text
    assert "preflight" not in text  # the end is left out, though a short row would fit
    assert "Left out" in gh.summary(FAILED, 350)
    assert gh.summary(FAILED, 100) == ""


def test_the_summary_is_added_to_what_is_there(tmp_path: Path) -> None:
    file = tmp_path / "summary"
    gh.write_summary(PASSED, file)
    assert file.read_text(encoding="utf-8") == gh.summary(PASSED)
    before = "x" * (gh.SUMMARY - 3000)
    file.write_text(before, encoding="utf-8")
    gh.write_summary(FAILED, file)
    text = file.read_text(encoding="utf-8")
    assert text.startswith(before)
    assert len(text.encode()) <= gh.SUMMARY
    assert "Left out" in text


def test_outputs_are_lines_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "output"
    file.write_text("mine=1\n", encoding="utf-8")
    gh.write_outputs(FAILED, file)
    gh.write_outputs(HOSTILE, file)
    lines = [line.split("=", 1) for line in file.read_text(encoding="utf-8").splitlines()]
    assert lines == [
        ["mine", "1"],
        *(
            [name, value]
            for result in (FAILED, HOSTILE)
            for name, value in gh.outputs(result).items()
        ),
    ]
    assert gh.outputs(FAILED) == {
        "verdict": "fail",
        "exit_code": "10",
        "ending": "rolled back",
        "generation": "3",
    }
