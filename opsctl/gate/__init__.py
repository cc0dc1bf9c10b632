"""A patch set let through, or not, by what a policy asks of it."""

from opsctl.gate.model import GateCheck, GateResult, Quantiles, Series, Shown, Soak, Span

__all__ = ["GateCheck", "GateResult", "Quantiles", "Series", "Shown", "Soak", "Span"]
