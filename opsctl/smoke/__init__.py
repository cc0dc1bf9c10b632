"""Requests that prove a start, and the verdict on their answers."""

from opsctl.smoke.judge import judge
from opsctl.smoke.model import Check, Probes, SmokeResult, UnitFacts, Verdict
from opsctl.smoke.probes import run_probes

__all__ = ["Check", "Probes", "SmokeResult", "UnitFacts", "Verdict", "judge", "run_probes"]
