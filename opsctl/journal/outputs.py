"""What probes wrote about answers: loops, emptiness, and arms that differ.

A probe's line begins with what it is (``smoke:``, ``probe NAME:``, ``arm A=1 B=0:``), as the
lines of SGLang never do. Its text is the probe's own and no user's, so it is read and shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from opsctl.journal import answers
from opsctl.repetition import tail_loop, words

NEEDLES: Final = (
    "smoke", "probe", "canary", "stream:", "arm ", "greedy", "eager", "reference", "content=",
    "spec", "differ", "diverge", *answers.NEEDLES,
)  # fmt: skip
_PROBE: Final = re.compile(
    r"(?i)(?:smoke|probe|canary|stream|arm|greedy|eager|spec(?:ulation)?|no-?spec|reference)\b"
    r"[^{}]{0,80}?[:=]"
)
_ANSWER: Final = re.compile(r"(?:GET|POST) /\S+ (?:HTTP/[\d.]+\"? )?\d{3}\b.*\bcontent=")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"(?: ?x ?(\d+))?')
_ARM: Final = re.compile(r"(?i)\barm ([^:\"]{1,60}):\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\"]*))")
_EMPTY: Final = re.compile(r"(?:text|content|output)\s*[=:]\s*(?:\"\"|'')")
_TOKENS: Final = re.compile(r"(?:completion_tokens|output_tokens)\W{1,3}(\d+|max_tokens)")
_GARBLED: Final = re.compile(r"(?i)\b(?:garbled|gibberish|garbage|mojibake|nonsense)\b")
_SCORE: Final = re.compile(r"\b(\d+)/(\d+) (?:correct|right|ok|pass\w*|match\w*)")
_UNLIKE: Final = re.compile(
    r"(?i)\b(?:texts?|outputs?|tokens?|answers?)\b.{0,40}\b(?:differ|diverge)\w*"
    r"|\b(?:first )?(?:divergence|difference|mismatch)\b.{0,30}\b(?:at|index|token|position)\b"
    r"|\bdiverge\w* (?:at|from|after)\b"
)
_SAME: Final = re.compile(r"(?i)\bno (?:first )?(?:divergence|difference|mismatch)\b|\bidentical$")
_COMPARED: Final = re.compile(r"(?i)\b(?:eager|graph\w*|spec\w*|concurrency|bs|batch)\b")
# Doubled in good English.
_DOUBLED: Final = frozenset({"that", "had", "is", "bye", "no", "very", "so", "ha", "la", "now"})
_WORST_SCORE: Final = 0.8  # of the best arm's share of right answers
_SHOWN: Final = 8


@dataclass(slots=True)
class Outputs:
    """Fed line by line; keeps the first lines that show something."""

    degenerate: list[int] = field(default_factory=list)
    divergent: list[int] = field(default_factory=list)
    loops: list[int] = field(default_factory=list)  # texts that repeat for long
    unlike: list[int] = field(default_factory=list)  # texts that differ, both readable
    _arms: list[tuple[int, str, bool]] = field(default_factory=list)  # line, text, broken
    _scores: list[tuple[int, float]] = field(default_factory=list)

    def feed(self, number: int, text: str) -> bool:
        """Take in a line without its prefix. True if it is a probe's, or tells of a broken
        answer."""
        if not is_probe(text):
            return self._pasted(number, text)
        broken = _broken(text)
        arms = [(m[1].strip(), m[2] if m[2] is not None else m[3]) for m in _ARM.finditer(text)]
        for _, answer in arms:
            self._arms.append((number, answer.strip(), broken))
        if not arms and broken:
            self.degenerate.append(number)
        if any(int(count or 1) > 4 for _, count in _QUOTED.findall(text)):
            self.loops.append(number)
        if (score := _SCORE.search(text)) is not None and int(score[2]):
            self._scores.append((number, int(score[1]) / int(score[2])))
        if _UNLIKE.search(text) and _COMPARED.search(text) and not _SAME.search(text):
            self.unlike.append(number)
        for kept in (self.degenerate, self.divergent, self.loops, self.unlike, self._arms):
            del kept[4 * _SHOWN :]
        return True

    def _pasted(self, number: int, text: str) -> bool:
        """Take in a line that may be an answer, or what somebody says of answers."""
        lowered = text.lower()
        if not any(needle in lowered for needle in NEEDLES):
            return False
        if answers.broken_answer(text) or answers.called_broken(text):
            kept = self.degenerate
        elif _UNLIKE.search(text) and _COMPARED.search(text) and not _SAME.search(text):
            kept = self.unlike
        else:
            return False
        kept.append(number)
        del kept[4 * _SHOWN :]
        return True

    def finished(self, number: int, visible: str) -> bool:
        """Take in the log of a request's end, without its users' words. True if it is broken."""
        broken = answers.finished_empty(visible)
        if broken and len(self.degenerate) < 4 * _SHOWN:
            self.degenerate.append(number)
        return broken

    def compared(self) -> Iterator[int]:
        """Lines whose arm or score is worse than the best one's, or broken beside a good one."""
        if self._arms and len({text for _, text, _ in self._arms}) > 1:
            good = next((text for _, text, broken in self._arms if not broken and text), None)
            for number, text, broken in self._arms:
                if good is not None and (broken or text != good):
                    yield number
        if self._scores:
            best = max(share for _, share in self._scores)
            yield from (number for number, share in self._scores if share < _WORST_SCORE * best)

    def alone(self) -> list[int]:
        """Lines of broken answers, those of arms without a good one beside them included."""
        arms = [number for number, _, broken in self._arms if broken]
        return sorted({*self.degenerate, *arms})[:_SHOWN]


def is_probe(text: str) -> bool:
    """Whether a line, without its prefix, begins as those of probes do."""
    return bool(_PROBE.match(text) or _ANSWER.match(text))


def _broken(text: str) -> bool:
    if _GARBLED.search(text):
        return True
    tokens = _TOKENS.search(text)
    if _EMPTY.search(text) and tokens is not None and tokens[1] != "0":
        return True
    return any(repeats(quoted) or int(count or 1) > 4 for quoted, count in _QUOTED.findall(text))


def repeats(text: str) -> bool:
    """Whether a short text repeats itself as sound text does not.

    Stricter than the smoke checks' loop, which judges long answers: a doubled word, a word that
    follows itself across punctuation more than once, or a phrase of three words or more that
    makes up half of the text.
    """
    items = [word for word in words(text) if word[0].isalpha() or word.isdigit()]
    pairs = pairwise(items)
    if any(a == b and a.isalpha() and a.lower() not in _DOUBLED and len(a) > 1 for a, b in pairs):
        return True
    loop = tail_loop(words(text))
    if loop is not None and loop.covered >= 6 and 2 * loop.covered >= loop.total:
        return len({*words(text)[-loop.period :]} - {".", "-", "_", "=", "*", "#", " "}) > 0
    return _phrase_share(items) >= 0.5


def _phrase_share(items: list[str], size: int = 3) -> float:
    """The share of the words that belong to a phrase of `size` said before."""
    seen: set[tuple[str, ...]] = set()
    covered: set[int] = set()
    for at in range(len(items) - size + 1):
        phrase = tuple(items[at : at + size])
        if phrase in seen:
            covered.update(range(at, at + size))
        seen.add(phrase)
    return len(covered) / len(items) if len(items) >= 2 * size else 0.0
