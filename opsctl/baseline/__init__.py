"""What a trusted server answers, and whether another one answers the same."""

from opsctl.baseline.capture import capture
from opsctl.baseline.compare import EQUAL, Divergence, compare, tolerance
from opsctl.baseline.model import Answer, Baseline, Identity, identity, load
from opsctl.baseline.prompts import Prompt

__all__ = [
    "EQUAL",
    "Answer",
    "Baseline",
    "Divergence",
    "Identity",
    "Prompt",
    "capture",
    "compare",
    "identity",
    "load",
    "tolerance",
]
