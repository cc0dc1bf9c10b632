"""inventory.yaml: hosts, their services, and what is expected of each."""

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
    "Host",
    "Inventory",
    "Launch",
    "Load",
    "Model",
    "SecretRef",
    "Service",
    "Smoke",
    "Ssh",
    "parse_duration",
]
