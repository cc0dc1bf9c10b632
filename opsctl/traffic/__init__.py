"""Requests of our own making: so many at once, or for so long."""

from opsctl.traffic.generator import Job, Sample, soak, together

__all__ = ["Job", "Sample", "soak", "together"]
