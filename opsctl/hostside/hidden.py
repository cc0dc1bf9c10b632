"""Secrets of a command line and an environment, which must not leave the host."""

from __future__ import annotations

import re
from typing import Dict, List, Optional

HIDDEN = "[redacted]"

_OPTION = r"--[\w-]*(?:api-key|password|secret|hf-token|auth-token)"
_SECRET_OPTION = re.compile(_OPTION + r"\Z")
_IN_TEXT = re.compile(r"(%s[=\s]\s*)\S+" % _OPTION)
# Where a secret's value comes from, if a variable has it.
_REFERENCE = re.compile(r"(%s)[=\s]\s*[\"']?\$\{?([A-Za-z_]\w*)" % _OPTION)
SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)


def hide(arguments: List[str]) -> List[str]:
    """The arguments without the values of secrets."""
    found: List[str] = []
    for word in arguments:
        name, separator, _ = word.partition("=")
        if found and _SECRET_OPTION.match(found[-1]):
            found.append(HIDDEN)
        else:
            secret = separator and _SECRET_OPTION.match(name)
            found.append(name + "=" + HIDDEN if secret else word)
    return found


def hide_in(text: str) -> str:
    """The same for a command line in one piece."""
    return _IN_TEXT.sub(r"\1" + HIDDEN, text)


def named(arguments: List[str], text: str) -> Dict[str, Optional[str]]:
    """The options among `arguments` that hold secrets, each with the variable that its value comes
    from in `text`, that of the unit's files and scripts."""
    references = {match.group(1): match.group(2) for match in _REFERENCE.finditer(text)}
    names = [word.partition("=")[0] for word in arguments]
    return {name: references.get(name) for name in names if _SECRET_OPTION.match(name)}
