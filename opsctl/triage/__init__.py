"""From what was found out about a service to the likely cause and the runbook for it.

Pure: no I/O. `opsctl.rollout.triaging` collects the facts.
"""

from __future__ import annotations

from opsctl.triage.causes import Cause, Judgement
from opsctl.triage.facts import Facts, Start
from opsctl.triage.judge import judge

__all__ = ["Cause", "Facts", "Judgement", "Start", "judge"]
