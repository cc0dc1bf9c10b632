"""The page, read by a strict HTML parser: what it has, what it must not have."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import replace
from importlib import resources
from xml.etree import ElementTree as ET

import html5lib
import pytest
from samples import ALL, FAILED, HOSTILE, INCONCLUSIVE, LOCKED, PASSED

from opsctl.gate import GateResult, words
from opsctl.gate.page import page

CSS = resources.files("opsctl.gate").joinpath("templates/page.css").read_text(encoding="utf-8")
EVERY = pytest.mark.parametrize("result", [*ALL.values(), HOSTILE], ids=[*ALL, "hostile"])
XML = "{http://www.w3.org/XML/1998/namespace}"


def parsed(result: GateResult) -> ET.Element:
    parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
    found: ET.Element = parser.parse(page(result))
    for element in found.iter():
        if isinstance(element.tag, str):  # SVG's namespace says nothing here
            element.tag = element.tag.rpartition("}")[2]
    return found


def text_of(element: ET.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def seen(text: str) -> str:
    return " ".join(words.visible(text).split())


def classed(root: ET.Element, name: str) -> list[ET.Element]:
    return [each for each in root.iter() if name in each.get("class", "").split()]


@EVERY
def test_nothing_is_fetched_or_run(result: GateResult) -> None:
    root = parsed(result)
    assert not {"script", "link", "img", "iframe", "object", "base"} & {e.tag for e in root.iter()}
    for element in root.iter():
        for name, value in element.attrib.items():
            assert not name.startswith("on")
            assert name not in {"href", "src", "action", "style", "srcdoc"}
            assert "//" not in value
    (style,) = root.iter("style")
    assert not re.search(r"url\(|@import|expression", style.text or "")
    policy = next(e for e in root.iter("meta") if e.get("http-equiv") == "Content-Security-Policy")
    assert policy.attrib["content"].startswith("default-src 'none'")


@EVERY
def test_every_check_is_in_it(result: GateResult) -> None:
    root = parsed(result)
    rows = [row for row in root.iter("tr") if classed(row, "badge")]
    for check, row in zip(result.checks, rows, strict=True):
        text = text_of(row)
        assert text.split()[:2] == [words.SIGNS[check.outcome], check.outcome]
        for part in (check.name, check.reason, check.kind, check.policy):
            assert seen(part) in text


@EVERY
def test_the_verdict_its_reasons_and_the_remedy_come_first(result: GateResult) -> None:
    root = parsed(result)
    text = text_of(root)
    assert text_of(next(root.iter("h1"))).endswith(words.verdict(result))
    assert seen(words.ending(result)) in text
    first = text[: text.index("What was gated")]
    for part in (result.summary, result.remedy, *(check.reason for check in result.reasons)):
        assert seen(part) in first
    told = {text_of(div[0]): text_of(div[1]) for div in root.iterfind(".//dl/div")}
    assert {name: seen(value) for name, value in words.facts(result)}.items() <= told.items()


@EVERY
def test_each_plot_has_a_title_and_its_figures_in_words(result: GateResult) -> None:
    root = parsed(result)
    plots = list(root.iter("svg"))
    given = bool(result.load) + len(result.series) + bool(result.accept_lens)
    assert len(plots) == given == len(list(root.iter("figcaption")))
    ids = Counter(each.attrib["id"] for each in root.iter() if "id" in each.attrib)
    assert set(ids.values()) <= {1}
    for plot in plots:
        assert plot.get("role") == "img"
        told = {each.attrib["id"]: each.text for each in plot if each.tag in {"title", "desc"}}
        assert plot.attrib["aria-labelledby"].split() == list(told)
        assert all(told.values())


@EVERY
def test_sections_are_named_by_what_is_there(result: GateResult) -> None:
    root = parsed(result)
    ids = {each.attrib["id"] for each in root.iter() if "id" in each.attrib}
    assert all(
        e.attrib["aria-labelledby"] in ids
        for e in root.iter("section")
        if "aria-label" not in e.attrib
    )
    levels = [int(each.tag[1]) for each in root.iter() if re.fullmatch(r"h[1-6]", str(each.tag))]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later <= former + 1 for former, later in itertools.pairwise(levels))


def test_untrusted_text_is_only_text() -> None:
    tame = replace(
        HOSTILE,
        checks=tuple(replace(check, name="n", reason="r") for check in HOSTILE.checks),
        summary="s",
        remedy="r",
        host="h",
    )
    assert Counter(e.tag for e in parsed(HOSTILE).iter()) == Counter(
        e.tag for e in parsed(tame).iter()
    )
    html = page(HOSTILE)
    assert not re.search(
        "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u200b\ufeff\ufffe\uffff]", html
    )
    html.encode()  # no lone surrogate is left
    text = text_of(parsed(HOSTILE))
    assert "<script>alert(1)</script>" in text
    assert "{{ 7*7 }}" in text
    assert "\\u202egnp.exe" in text


def test_long_words_wrap() -> None:
    assert "overflow-wrap: anywhere" in CSS
    assert "white-space: pre-wrap" in CSS


def test_divergences_stand_side_by_side_with_the_difference_marked() -> None:
    articles = classed(parsed(FAILED), "divergence")
    assert len(articles) == len(FAILED.divergences)
    for shown, article in zip(FAILED.divergences, articles, strict=True):
        assert words.difference(shown) in text_of(article)
        pairs = (shown.expected_ids, shown.expected_text), (shown.got_ids, shown.got_text)
        for (ids, text), side in zip(pairs, article.iter("section"), strict=True):
            (marked,) = classed(side, "ids")[0].iter("mark")
            assert text_of(marked) == f"first different: {ids[shown.index - shown.begin]}"
            assert all(str(each) in text_of(side) for each in ids)
            (pre,) = side.iter("pre")
            assert "".join(pre.itertext()) == text
        expected, got = (
            "".join(next(side.iter("pre")).find("mark").itertext())  # type: ignore[union-attr]
            for side in article.iter("section")
        )
        assert expected[0] != got[0]


def test_an_answer_that_ends_too_early_says_so() -> None:
    (article,) = classed(parsed(HOSTILE), "divergence")
    expected, got = article.iter("section")
    assert "ends here" not in text_of(expected)
    assert "ends here" in text_of(got)


def test_texts_that_do_not_differ_yet_say_so() -> None:
    shown = replace(FAILED.divergences[0], got_text=FAILED.divergences[0].expected_text)
    (article,) = classed(parsed(replace(FAILED, divergences=(shown,))), "divergence")
    assert "The texts shown are the same." in text_of(article)
    assert all(
        "The texts shown" not in text_of(other) for other in classed(parsed(FAILED), "divergence")
    )


def test_only_what_is_known_is_shown() -> None:
    root = parsed(LOCKED)
    assert not list(root.iter("svg"))
    assert not classed(root, "divergence")
    assert "Not begun" in text_of(root)
    assert "nothing was changed" in text_of(root)
    again = replace(FAILED, ending="untouched", exit_code=11)
    assert "Failed" in text_of(next(parsed(again).iter("h1")))
    assert "was in place already" in text_of(parsed(again))
    unsure = parsed(INCONCLUSIVE)
    assert not classed(unsure, "before")
    assert "of the one before nothing is known" in text_of(unsure)
    assert classed(parsed(PASSED), "before")


def test_soak_figures() -> None:
    text = text_of(
        next(s for s in parsed(FAILED).iter("section") if s.get("aria-labelledby") == "soak")
    )
    for part in ("1,832", "3 (0.164%)", "1,066 token/s", "16 at once for 4m00s", "0.97", "6.02"):
        assert part in text


def luminance(color: str) -> float:
    """WCAG 2.2, relative luminance."""
    channels = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_text_has_contrast_in_both_schemes() -> None:
    """WCAG 2.2 AA: 4.5 for text, 3 for what is drawn."""
    light, dark = (
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block))
        for block in re.findall(r":root \{([^}]*)\}", CSS)[:2]
    )
    assert light.keys() == dark.keys()
    for colors in (light, dark):
        for back in ("back", "raised"):
            for front in ("text", "soft", "pass", "fail", "unsure", "skipped"):
                assert contrast(colors[front], colors[back]) >= 4.5, (front, back)
        assert contrast(colors["text"], colors["mark"]) >= 4.5
        for drawn in ("now", "before"):
            assert contrast(colors[drawn], colors["back"]) >= 3
