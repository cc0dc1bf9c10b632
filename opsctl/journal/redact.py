"""What must not leave the journal: users' text and secrets."""

from __future__ import annotations

import re
from typing import Final

_QUOTED: Final = r"""(?:'(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?|\[[^\]]*\]?)"""
_USER_TEXT: Final = re.compile(
    r"""\b(?P<key>text|prompts?|content|messages|origin_input_text|origin_input_ids|"""
    r"""input_ids|output_ids|decoded_text|image_data|audio_data)(?P<sep>['"]?\s?[=:]\s?)"""
    + _QUOTED
)
_SECRET: Final = re.compile(
    r"""(?P<key>\w*(?:api_key|keyfile_password|secret|hf_token))(?P<sep>['"]?\s?[=:]\s?)"""
    r"""(?:'[^']*'?|"[^"]*"?|[^\s,)]+)"""
)
_BEARER: Final = re.compile(r"\b(?P<key>Bearer)(?P<sep> )\S+|(?P<key2>--(?:admin-)?api-key[= ])\S+")


def redact(line: str) -> str:
    """`line` with users' text and secrets replaced by `[redacted]`."""
    line = _USER_TEXT.sub(r"\g<key>\g<sep>[redacted]", line)
    line = _SECRET.sub(
        lambda m: m[0] if "None" in m[0] else f"{m['key']}{m['sep']}[redacted]", line
    )
    return _BEARER.sub(lambda m: (m["key2"] or "Bearer ") + "[redacted]", line)
