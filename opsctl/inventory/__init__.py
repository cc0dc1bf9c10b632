"""inventory.yaml: hosts, their services, and what is expected of each."""

from opsctl.inventory.load import ENVIRONMENT, find, load, select, unknown, wanted
from opsctl.inventory.models import (
    Host,
    Inventory,
    Launch,
    Load,
    Model,
    Service,
    Smoke,
    Ssh,
    parse_duration,
)
from opsctl.inventory.notices import Webhook
from opsctl.inventory.secret import SecretRef

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
    "Webhook",
    "find",
    "load",
    "parse_duration",
    "select",
    "unknown",
    "wanted",
]
