"""Speculation and speed of a span: the journal's lines and the endpoints, side by side."""

from opsctl.acceptance.exposition import exposition, write_exposition
from opsctl.acceptance.measure import (
    DEFAULT_INTERVAL,
    BatchSize,
    Measured,
    Sample,
    Tree,
    samples_of,
)
from opsctl.acceptance.placements import Placement, before, latest, placements
from opsctl.acceptance.reconcile import Endpoints, Figure, Question, reconcile

__all__ = [
    "DEFAULT_INTERVAL",
    "BatchSize",
    "Endpoints",
    "Figure",
    "Measured",
    "Placement",
    "Question",
    "Sample",
    "Tree",
    "before",
    "exposition",
    "latest",
    "placements",
    "reconcile",
    "samples_of",
    "write_exposition",
]
