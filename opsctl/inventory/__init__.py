"""inventory.yaml: hosts, their services, and what is expected of each."""

from opsctl.inventory.load import ENVIRONMENT, find, load, select, unknown, wanted
from opsctl.inventory.models import (
    Host,
    Inventory,
    Launch,
    Load,
    Model,
    SecretRef,
    Service,
    Smoke,
    Ssh,
    parse_duration,
)

__all__ = [
    "ENVIRONMENT",
    "Host",
    "Inventory",
    "Launch",
    "Load",
    "Model",
    "SecretRef",
    "Service",
    "Smoke",
    "Ssh",
    "find",
    "load",
    "parse_duration",
    "select",
    "unknown",
    "wanted",
]
