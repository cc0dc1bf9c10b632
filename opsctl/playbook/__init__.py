"""Playbooks and runbooks as data: which steps there are, and what a file of them may say. Pure."""

from opsctl.playbook.load import Shelf, load
from opsctl.playbook.model import Beginning, Playbook, Runbook, Use, use
from opsctl.playbook.spec import CONDITIONS, SPECS, StepSpec

__all__ = [
    "CONDITIONS",
    "SPECS",
    "Beginning",
    "Playbook",
    "Runbook",
    "Shelf",
    "StepSpec",
    "Use",
    "load",
    "use",
]
