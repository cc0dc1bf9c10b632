"""Reach a host: one connection, one host program, few round trips."""

from opsctl.transport.base import Remote, Subscription
from opsctl.transport.connect import connect
from opsctl.transport.local import local

__all__ = ["Remote", "Subscription", "connect", "local"]
