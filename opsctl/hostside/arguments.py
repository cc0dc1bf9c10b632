"""Command lines without the secrets in them: what is shown of other people's processes."""

from __future__ import annotations

import re
from typing import List

_HIDDEN = "[redacted]"
# An option or a variable by its last word: --api-key, HF_TOKEN, --ssl-keyfile-password; not
# --tokenizer-path or --max-total-tokens.
_NAME = re.compile(
    r"(?i)(^|[-_])(key|apikey|token|secret|password|passwd|passphrase|credentials?|webhook)$"
)
_CREDENTIALS = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+\S+")


def redacted(argv: List[str]) -> List[str]:
    """`argv` with the values of what is named like a secret replaced."""
    found: List[str] = []
    hide = False
    for word in argv:
        name, separator, _ = word.partition("=")
        if hide and not word.startswith("-"):
            found.append(_HIDDEN)
            hide = False
            continue
        hide = word.startswith("-") and not separator and _NAME.search(word) is not None
        if separator and _NAME.search(name):
            found.append(name + "=" + _HIDDEN)
        else:
            plain = _CREDENTIALS.sub(r"\1" + _HIDDEN + "@", word)
            found.append(_BEARER.sub(lambda match: match.group(1) + " " + _HIDDEN, plain))
    return found
