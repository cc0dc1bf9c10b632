"""The forms of report that several commands have."""

from __future__ import annotations

from typing import Any

from opsctl import errors
from opsctl.report import Report
from opsctl.rollout.session import Session

# Of commands that change nothing, and so have nothing to restore.
EXITS: dict[str, int] = {
    "pass": errors.EXIT_OK,
    "fail": errors.EXIT_NOT_RESTORED,
    "inconclusive": errors.EXIT_INCONCLUSIVE,
}


def plain_report(
    session: Session,
    command: str,
    text: str,
    *,
    generation: int | None = None,
    data: dict[str, Any] | None = None,
) -> Report:
    """A pass with nothing more to say than `text`."""
    return Report(
        command=command,
        host=session.host.name,
        service=session.service.name,
        verdict="pass",
        exit_code=errors.EXIT_OK,
        summary=text,
        generation=generation,
        data=data or {},
    )
