"""A baseline of a service that speculates, in one go: one start without, and back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from opsctl.errors import OpsctlError
from opsctl.events import Event
from opsctl.report import Report
from opsctl.rollout import baselining, commands
from opsctl.rollout.run import Options
from opsctl.rollout.session import Session


def capture(session: Session, patches: Path, prompts: Path | None, options: Options) -> Report:
    """Restart without speculation, record what the server answers, and restart as before.

    The report is the capture's, or that of the restart that failed. The way back is gone whatever
    the capture came to.

    Raises:
        OpsctlError: no baseline was taken, or the first restart was refused.
    """
    plain = commands.restart(session, patches, replace(options, plain=True))
    if plain.exit_code:
        return plain
    failure: OpsctlError | KeyboardInterrupt | None = None
    try:
        report = baselining.take(session, prompts, trust=False)
    except (OpsctlError, KeyboardInterrupt) as error:
        failure = error
        session.emit(Event("baseline", "fail", str(error) or "interrupted; starting it as before"))
    back = commands.restart(session, patches, replace(options, plain=False))
    if failure is not None:
        raise failure
    if back.verdict != "fail":
        return report
    reasons = (*back.reasons, *report.reasons)
    text = f"{report.summary}, but the restart with speculation failed: {back.summary}"
    return report.model_copy(
        update={
            "verdict": back.verdict,
            "exit_code": back.exit_code,
            "summary": text,
            "reasons": reasons,
        }
    )
