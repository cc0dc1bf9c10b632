"""Files that a patch put in place: by what opsctl knows, and by what the journal says of it."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from opsctl.journal.traceback import Traceback

NEEDLES: Final = ("patched", "patching", " patch", "patch:")
# GNU patch ("patching file F"), git apply -v ("Applied patch F cleanly."), and deployers' words.
_APPLIED: Final = re.compile(
    r"(?i)\bpatch(?:ed|ing)\b|\bappl(?:y|ying|ied)\b.{0,80}?\bpatch(?:es)?\b"
    r"|\bpatch(?:es)?\b.{0,80}?\b(?:applied|installed|in place|succeeded|onto|ok)\b"
)
_NOT_APPLIED: Final = re.compile(
    r"(?i)\b(?:not|never|without|un-?patch\w*|revert\w*|restor\w*|roll(?:ed|ing)? ?back"
    r"|dry[ -]run|would|fail\w*|skip\w*|checking|remov\w*)\b"
)
_FILE: Final = re.compile(r"[\w./+-]+\.py\b")
_PACKAGE: Final = "sglang/"
_MOST: Final = 256  # files


@dataclass(slots=True)
class Patched:
    """`known` are paths below the package (``srt/speculative/dflash_worker.py``)."""

    known: Collection[str] = ()
    _said: dict[str, int] = field(default_factory=dict)  # path: the first line that names it

    def feed(self, line: int, text: str) -> None:
        """Take in a line that may say which files were patched."""
        if ".py" not in text or not _APPLIED.search(text) or _NOT_APPLIED.search(text):
            return
        for path in _FILE.findall(text):
            if len(self._said) < _MOST:
                self._said.setdefault(path.rpartition(_PACKAGE)[2].lstrip("./"), line)

    def touches(self, trace: Traceback) -> bool:
        """Whether one of its frames is in such a file."""
        paths = (*self.known, *self._said_before(trace))
        return any(_is_in(file, paths) for file, _ in trace.frames)

    def raises(self, trace: Traceback) -> bool:
        """Whether its innermost frame of the server's own code is in a file of which the journal
        says, before it, that it was patched: what is known only tells of a patch in place."""
        files = [file for file, _ in trace.frames]
        own = [file for file in files if _PACKAGE in file] or files
        return bool(own) and _is_in(own[-1], self._said_before(trace))

    def _said_before(self, trace: Traceback) -> list[str]:
        return [path for path, line in self._said.items() if line < trace.start]


def _is_in(file: str, paths: Collection[str]) -> bool:
    return any(f"/{file}".endswith(f"/{path}") for path in paths)
