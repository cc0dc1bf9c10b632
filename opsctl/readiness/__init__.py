"""The wait for a start, under a budget, with the cause when it fails."""

from opsctl.readiness.machine import Failed, Readiness
from opsctl.readiness.wait import Ready, wait_down, wait_ready

__all__ = ["Failed", "Readiness", "Ready", "wait_down", "wait_ready"]
