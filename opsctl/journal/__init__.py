"""The journal of one start: entries read and cleaned, crashes named, acceptance measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opsctl.journal.acceptance import Acceptance, Spread
from opsctl.journal.decode import DecodeRun
from opsctl.journal.diagnosis import ACCEPTANCE_KINDS, Diagnosis
from opsctl.journal.entry import Entry
from opsctl.journal.gaps import Gap
from opsctl.journal.matcher import Routine
from opsctl.journal.plain import entry_from_text
from opsctl.journal.prefilter import Selection
from opsctl.journal.reader import Reader
from opsctl.journal.redact import redact
from opsctl.journal.text import clean

if TYPE_CHECKING:
    from opsctl.journal.diagnoser import Diagnoser, diagnose

__all__ = [
    "ACCEPTANCE_KINDS",
    "Acceptance",
    "DecodeRun",
    "Diagnoser",
    "Diagnosis",
    "Entry",
    "Gap",
    "Reader",
    "Routine",
    "Selection",
    "Spread",
    "clean",
    "diagnose",
    "entry_from_text",
    "redact",
]


def __getattr__(name: str) -> object:
    """The rules are YAML, which who only reads need not load."""
    if name not in {"Diagnoser", "diagnose"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from opsctl.journal import diagnoser

    return getattr(diagnoser, name)
