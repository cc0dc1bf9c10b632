"""A fault with a name. It crosses the connection as data and becomes an OpsctlError there."""

from __future__ import annotations

from typing import Dict


class HostFault(Exception):
    """`code` is stable and snake_case; `remedy` says what an operator does about it."""

    def __init__(self, code: str, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy

    def to_json(self) -> Dict[str, str]:
        return {"code": self.code, "message": self.message, "remedy": self.remedy}
