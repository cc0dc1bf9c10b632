"""What must not leave the journal, nor decide anything: users' text; and secrets."""

from __future__ import annotations

import re
from typing import Final

# Keys of SGLang's request logs and of the HTTP bodies (utils/request_logger.py, io_struct.py,
# entrypoints/openai/protocol.py), whatever quotes and separators surround them.
_USER_KEY: Final = re.compile(
    r"""\b(?:text|prompts?|content|reasoning_content|messages|origin_input_text|origin_input_ids|"""
    r"""input|input_text|output_text|input_ids|output_ids|decoded_text|image_data|audio_data|"""
    r"""video_data|arguments|tools)['"]?\s?[=:]\s?(?=[\[{('"])"""
)
_SECRET: Final = re.compile(
    r"""(?P<key>\w*(?:api_key|keyfile_password|secret|hf_token))(?P<sep>['"]?\s?[=:]\s?)"""
    r"""(?:'[^']*'?|"[^"]*"?|[^\s,)]+)"""
)
_BEARER: Final = re.compile(r"\b(?P<key>Bearer)(?P<sep> )\S+|(?P<key2>--(?:admin-)?api-key[= ])\S+")
# 0.4 logged text between quotes as it was, with quotes of its own: only one that a record's
# own punctuation follows ends it.
_CLOSED: Final = re.compile(r"""\s*(?:$|[,)}\]:;]|(?:\.\.\. )|\w+=)""")
_CLOSERS: Final = {"[": "]", "{": "}", "(": ")"}
_EMPTY: Final = {"''", '""'}
_HIDDEN: Final = "[redacted]"


def redact(line: str) -> str:
    """`line` with users' text and secrets replaced by `[redacted]`."""
    line, _ = without_user_text(line)
    line = _SECRET.sub(lambda m: m[0] if "None" in m[0] else f"{m['key']}{m['sep']}{_HIDDEN}", line)
    return _BEARER.sub(lambda m: (m["key2"] or "Bearer ") + _HIDDEN, line)


def without_user_text(line: str) -> tuple[str, bool]:
    """`line` with users' text replaced, and whether such text goes on in the next line.

    An empty text stays: it hides nobody's words, and tells of an answer without any.
    """
    parts: list[str] = []
    start, is_open = 0, False
    while not is_open and (key := _USER_KEY.search(line, start)) is not None:
        end = _value_end(line, key.end())
        is_open = end is None
        value = line[key.end() : end]
        parts += (line[start : key.end()], value if value in _EMPTY else _HIDDEN)
        start = len(line) if end is None else end
    return ("".join((*parts, line[start:])), is_open) if parts else (line, False)


def _value_end(line: str, start: int) -> int | None:
    """Where the quoted text or the nested value at `start` ends; None if it is not in `line`."""
    closers: list[str] = []
    at = start
    while at < len(line):
        char = line[at]
        if char in "'\"":
            end = _quote_end(line, at)
            if end is None:
                return None
            at = end
        else:
            if char in _CLOSERS:
                closers.append(_CLOSERS[char])
            elif closers and char == closers[-1]:
                closers.pop()
            at += 1
        if not closers:
            return at
    return None


def _quote_end(line: str, start: int) -> int | None:
    quote, at = line[start], start + 1
    while (at := line.find(quote, at)) >= 0:
        slashes = len(line[:at]) - len(line[:at].rstrip("\\"))
        if slashes % 2 == 0 and _CLOSED.match(line, at + 1):
            return at + 1
        at += 1
    return None
