"""The journal of one start: entries read and cleaned, crashes named, acceptance measured."""

from opsctl.journal.acceptance import Acceptance, Spread
from opsctl.journal.diagnoser import Diagnoser, diagnose
from opsctl.journal.diagnosis import ACCEPTANCE_KINDS, Diagnosis
from opsctl.journal.entry import Entry
from opsctl.journal.plain import entry_from_text
from opsctl.journal.redact import redact
from opsctl.journal.text import clean

__all__ = [
    "ACCEPTANCE_KINDS",
    "Acceptance",
    "Diagnoser",
    "Diagnosis",
    "Entry",
    "Spread",
    "clean",
    "diagnose",
    "entry_from_text",
    "redact",
]
