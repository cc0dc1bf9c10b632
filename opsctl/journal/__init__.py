"""The journal of one start: entries read and cleaned, crashes named, acceptance measured."""

from opsctl.journal.acceptance import Acceptance, Spread
from opsctl.journal.diagnosis import Diagnosis
from opsctl.journal.entry import Entry
from opsctl.journal.signatures import diagnose
from opsctl.journal.text import clean

__all__ = ["Acceptance", "Diagnosis", "Entry", "Spread", "clean", "diagnose"]
