"""The command line. Commands read arguments, call one function, and render its report."""

from __future__ import annotations

import signal
from types import FrameType


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """The console script. A cancelled CI job sends SIGTERM, which is an interrupt too."""
    from opsctl.cli.app import app

    signal.signal(signal.SIGTERM, _interrupt)
    app()
