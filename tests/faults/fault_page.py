"""docs/reliability.md, out of the records of the runs."""

from __future__ import annotations

from typing import Any


def page(record: dict[str, Any], **others: Any) -> str:
    return "TODO"
