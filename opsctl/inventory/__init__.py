"""inventory.yaml: hosts, their services, and what is expected of each."""

from opsctl.inventory.load import load, select, unknown, wanted
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
from opsctl.resources import INVENTORY_VARIABLE as ENVIRONMENT
from opsctl.resources import find_inventory as find

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
