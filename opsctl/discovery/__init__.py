"""An inventory written from what a host shows: facts in, text out."""

from opsctl.discovery.describe import Described, describe, one_host
from opsctl.discovery.merge import add_host

__all__ = ["Described", "add_host", "describe", "one_host"]
