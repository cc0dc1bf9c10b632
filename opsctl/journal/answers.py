"""Answers that somebody pasted beside a journal, and words about them: loops, garbage, emptiness.

Other than a probe's lines (`opsctl.journal.outputs`) these have no form of their own, so only
what is plainly broken counts, and a line that is not says nothing.
"""

from __future__ import annotations

import re
from typing import Final

from opsctl.repetition import tail_loop, words

NEEDLES: Final = (
    '"choices"', '"text"', '"content"', "'choices'", "'text'", "'content'", "output", "answer",
    "response", "reply", "generated", "assistant", "result", "garbage", "garbled", "gibberish",
    "mojibake", "nonsense", "repeat", "repetit",
)  # fmt: skip
# The body of an answer as curl or Python prints it, or a field of it.
_BODY: Final = re.compile(
    r"\s*(?:data: )?\{.*(['\"])(?:choices|text|content)\1\s*:|\s*(['\"])(?:text|content)\2\s*:"
)
_FIELD: Final = re.compile(
    r"(['\"])(?:text|content)\1\s*:\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)')"
)
_LABEL: Final = re.compile(
    r"(?i)\s*(?:[\w ]{0,20}\b)?(?:output|answer|response|reply|generated|assistant|result)"
    r"(?: text)?\s?[:=]\s*(?P<text>\S.*)"
)
# Of a request's log: a user's words may be in it.
_LOGGED: Final = re.compile(r"['\"](?:event|prompt|messages)['\"]\s*:")
# What an empty text may stand beside.
_ELSEWHERE: Final = re.compile(
    r"['\"](?:tool_calls|reasoning_content|reasoning)['\"]\s*:\s*(?:\[\s*\{|\"[^\"]|'[^'])"
)
_TOKENS: Final = re.compile(r"['\"]completion_tokens['\"]\s*:\s*(\d+)")
# SGLang's log of a request's end, its users' words taken out (utils/request_logger.py).
_FINISHED_EMPTY: Final = re.compile(
    r"\bout['\"]?\s?[=:]\s?\{.*?['\"](?:text|content)['\"]\s*:\s*(?:''|\"\")"
)
_CUT_OFF: Final = re.compile(
    r"['\"]finish_reason['\"]\s*:\s*(?:\{['\"]type['\"]\s*:\s*)?['\"]length"
)
_LIMIT: Final = re.compile(r"['\"]?\bmax_(?:new|completion)?_?tokens['\"]?\s*[:=]\s*(\d+)")
# Fewer tokens can be the first bytes of one letter.
_FEW: Final = 8
_SUBJECT: Final = (
    r"(?:outputs?|answers?|responses?|repl(?:y|ies)|completions?|tokens?|texts?|content|model"
    r"|generat\w+)"
)
_FAULT: Final = (
    r"(?:garbled|gibberish|garbage(?! collect)|mojibake|nonsense"
    r"|repeats? (?:itself|forever|endlessly)|endless(?:ly)? repe\w+|repetiti(?:ve|on)"
    r"|repeating (?:the same|itself|forever|endlessly))"
)
_WORDS: Final = re.compile(
    rf"(?i)\b{_SUBJECT}\b[^\"{{}}]{{0,60}}\b{_FAULT}|\b{_FAULT}\b[^\"{{}}]{{0,40}}\b{_SUBJECT}\b"
)
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'")
_DENIED: Final = re.compile(r"(?i)\b(?:no|not|without|never|penalty|detect\w*)\b")
# One sign, or letters without a blank between them, many times over.
_SAME_SIGN: Final = re.compile(r"([^\w\s.=\-_*#~|+])\1{11,}|((?=\S{0,7}[^\W\d_])\S{1,8}?)\2{11,}")
_LOOP: Final = 8  # words
_SHARE: Final = 0.5  # of the text


def broken_answer(text: str) -> bool:
    """Whether a line (without its prefix) holds an answer that no sound model gives."""
    if _LOGGED.search(text):
        return False
    if _BODY.match(text):
        found = [double or single for _, double, single in _FIELD.findall(text)]
        return any(_loops(answer) for answer in found) or _empty(text, found)
    label = _LABEL.match(text)
    return label is not None and _loops(label["text"])


def finished_empty(visible: str) -> bool:
    """Whether the log of a request's end, without its users' words, tells of an answer that went
    to its limit of tokens without a single letter."""
    tokens = _TOKENS.search(visible)
    if tokens is None or int(tokens[1]) < _FEW or _FINISHED_EMPTY.search(visible) is None:
        return False
    limit = _LIMIT.search(visible)
    return _CUT_OFF.search(visible) is not None or (limit is not None and limit[1] == tokens[1])


def called_broken(text: str) -> bool:
    """Whether somebody says of the output that it is broken."""
    if text.lstrip().startswith(("{", '"', "'")):
        return False  # an answer's own words, or a request's
    said = _QUOTED.sub("", text)
    return _WORDS.search(said) is not None and _DENIED.search(said) is None


def _empty(text: str, answers: list[str]) -> bool:
    tokens = _TOKENS.search(text)
    if tokens is None or not int(tokens[1]) or not answers or any(answers):
        return False
    return _ELSEWHERE.search(text) is None


def _loops(text: str) -> bool:
    """One sign many times over, or a loop that is the better half of the text."""
    if _SAME_SIGN.search(text):
        return True
    items = words(text)
    loop = tail_loop(items)
    if loop is None or loop.covered < _LOOP or loop.covered < _SHARE * loop.total:
        return False
    return any(item[0].isalnum() for item in items[-loop.period :])
