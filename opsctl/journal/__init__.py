"""The journal of one start: entries read and cleaned, crashes named, acceptance measured."""

from opsctl.journal.entry import Entry
from opsctl.journal.text import clean

__all__ = ["Entry", "clean"]
