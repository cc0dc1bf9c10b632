"""What must not be in a bug report: secrets of every sort, users' words, environments.

By the rules of `opsctl.journal.redact`, and by more: a bundle goes to strangers. What is hidden is
counted by its sort, for the manifest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from opsctl.journal import Entry, redact
from opsctl.journal.redact import without_user_text
from opsctl.sglang.grammar import PREFIX

HIDDEN: Final = "[redacted]"
# The last word of a name that holds a secret: HF_TOKEN, api-key, ssl_keyfile_password.
_WORD: Final = (
    r"(?:api[-_]?key|access[-_]?key|private[-_]?key|secret[-_]?key|key|token|secret|password|passwd"
    r"|passphrase|pwd|credentials?|cookie|webhook(?:[-_]?url)?|dsn|auth)"
)
_NAMED: Final = re.compile(rf"(?i)(?:^|[-_.]){_WORD}$")
# Such names whose values are figures or paths, and no secrets.
_FIGURE: Final = re.compile(r"[\d.]{1,8}")
_HARMLESS: Final = frozenset({"keyfile", "max_token", "mask_token", "pad_token", "eos_token"})
_OPTION: Final = re.compile(
    rf"(?i)(?P<name>--(?:[\w-]*[-_])?{_WORD})(?P<sep>=|\s+)(?!-)(?P<value>\"[^\"]*\"|'[^']*'|\S+)"
)
_ASSIGNED: Final = re.compile(
    rf"(?i)(?P<name>(?<![\w-])['\"]?(?:[A-Z0-9]+[-_.])*{_WORD}['\"]?)(?P<sep>\s?[=:]\s?)"
    r"(?P<value>\"[^\"]*\"|'[^']*'|(?!\[redacted\]|None\b|True\b|False\b|null\b)[^\s,;)}\]]+)"
)
_TOKENS: Final = re.compile(
    r"\b(?:sk-[\w-]{6,}|hf_\w{6,}|gh[oprsu]_\w{6,}|github_pat_\w{6,}|glpat-[\w-]{6,}|npm_\w{10,}"
    r"|xox[abeprs]-[\w-]{6,}|(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w-]{20,}|ya29\.[\w-]+|nvapi-[\w-]{6,}"
    r"|eyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)?)"
)
_SCHEME: Final = re.compile(r"(?i)\b(bearer|basic|digest|token)\s+(?!\[redacted\])[\w.~+/=-]{6,}")
_CREDENTIALS: Final = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)[^/\s@'\"]+@", re.IGNORECASE)
_WEBHOOK: Final = re.compile(
    r"(?i)(?P<site>https?://[^/\s'\"]+)/(?:[^\s'\"]*/)?(?:services|webhooks?|hooks?|workflows|b2)/[^\s'\"]+"
    r"|(?P<site2>https?://[^/\s'\"]*(?:hooks?|webhook)[^/\s'\"]*)/[^\s'\"]+"
)
_QUERY: Final = re.compile(
    r"(?i)(?P<name>[?&](?:[\w-]*(?:key|token|secret|sig|signature|password|auth|code))=)[^&\s'\"]+"
)
_PEM: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_ENVIRONMENT: Final = re.compile(
    r"(?m)^(?P<name>\s*(?:Environment|PassEnvironment)=)(?P<value>(?:[^\n\\]|\\[\s\S])*)$"
)
_VARIABLE: Final = re.compile(r"(?P<name>[\w.]+)=(?:\"[^\"]*\"|'[^']*'|(?:\\.|[^\s\"'])*)")


class Scrubber:
    """Hides, and counts what it hid. `known` are secrets whose text is known, as the API key that
    the inventory refers to is: they are hidden wherever they stand."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self.hidden: Counter[str] = Counter()
        self._known = sorted({each for each in known if len(each) >= 4}, key=len, reverse=True)

    def line(self, text: str) -> str:
        """Without secrets and users' words, for text of any origin."""
        shown = self._plain(text)
        told = "\n".join(redact(line) for line in shown.split("\n"))
        if told != shown:
            self.hidden["users' text and server keys"] += 1
        return told

    def _plain(self, text: str) -> str:
        """Without secrets, for text that is ours and no user's."""
        for secret in self._known:
            if secret in text:
                self.hidden["known secrets"] += text.count(secret)
                text = text.replace(secret, HIDDEN)
        text = self._sub("private keys", _PEM, HIDDEN, text)
        text = self._sub("webhook URLs", _WEBHOOK, _webhook, text)
        text = self._sub("credentials in URLs", _CREDENTIALS, rf"\g<scheme>{HIDDEN}@", text)
        text = self._sub("secrets in queries", _QUERY, rf"\g<name>{HIDDEN}", text)
        text = self._sub("authorization", _SCHEME, rf"\g<1> {HIDDEN}", text)
        text = self._sub("tokens", _TOKENS, HIDDEN, text)
        text = self._sub("secret options", _OPTION, rf"\g<name>\g<sep>{HIDDEN}", text)
        return self._sub("secret settings", _ASSIGNED, _assigned, text)

    def unit(self, text: str) -> str:
        """A unit's file: no variable's value stays, whatever its name is."""

        def hide(match: re.Match[str]) -> str:
            return match["name"] + self.variables(match["value"])

        return self.line(_ENVIRONMENT.sub(hide, text))

    def variables(self, text: str) -> str:
        """`A=b C="d e"` as systemd prints an environment: the names only."""
        shown, count = _VARIABLE.subn(rf"\g<name>={HIDDEN}", text)
        self.hidden["environment"] += count
        return shown

    def value(self, value: Any, name: str = "") -> Any:
        """Plain JSON values: what a secret's name has is hidden whole, every text is scrubbed."""
        if isinstance(value, Mapping):
            return {str(key): self.value(item, str(key)) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item, name) for item in value]
        if not isinstance(value, str) or not value:
            return value
        if _NAMED.search(name) and name.lower() not in _HARMLESS:
            self.hidden["secret settings"] += 1
            return HIDDEN
        return self.line(value)

    def journal(self, entries: Iterable[Entry]) -> list[str]:
        """Entries as lines. A user's text that goes on over several of them is left out, until the
        same process prints a line of its own again."""
        found = []
        inside: set[int | None] = set()
        for entry in entries:
            for text in entry.message.split("\n"):
                head = f"{entry.realtime:.3f} {entry.identifier}[{entry.pid or ''}] "
                if entry.pid in inside and not PREFIX.match(text):
                    self.hidden["lines of users' text"] += 1
                    found.append(head + HIDDEN)
                    continue
                goes_on = without_user_text(text)[1] or _PEM.search(text) is not None
                (inside.add if goes_on else inside.discard)(entry.pid)
                found.append(head + self.line(text))
        return found

    def _sub(
        self,
        sort: str,
        pattern: re.Pattern[str],
        instead: str | Callable[[re.Match[str]], str],
        text: str,
    ) -> str:
        found = pattern.sub(instead, text)
        if found != text:
            self.hidden[sort] += 1
        return found


def _webhook(match: re.Match[str]) -> str:
    return f"{match['site'] or match['site2']}/{HIDDEN}"


def _assigned(match: re.Match[str]) -> str:
    name = match["name"].strip("'\"").lower()
    value = match["value"].strip("'\"")
    if name in _HARMLESS or value in {"", HIDDEN} or _FIGURE.fullmatch(value):
        return match[0]
    return f"{match['name']}{match['sep']}{HIDDEN}"
