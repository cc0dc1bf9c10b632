"""The command line. Commands read arguments, call one function, and render its report."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import time
from types import FrameType

# One press or one cancelled job often sends several signals at once, seconds apart at most.
_ONE_PRESS = 1.0

_interrupted_at: float | None = None


def _interrupt(number: int, frame: FrameType | None) -> None:
    """The first signal interrupts. After it the way back is under way, which only another
    Ctrl-C may end: CI sends SIGTERM some seconds after its SIGINT, to all of a group."""
    global _interrupted_at  # noqa: PLW0603 - a signal handler has no other place
    now = time.monotonic()
    before, again = _interrupted_at, number == signal.SIGINT
    if before is not None and (not again or now - before < _ONE_PRESS):
        return
    _interrupted_at = now
    raise KeyboardInterrupt


def main() -> None:
    """The console script. SIGTERM of a cancelled CI job and SIGHUP of a closed laptop interrupt
    as Ctrl-C does."""
    import typer
    from typer.exceptions import TyperException

    from opsctl.cli.app import app
    from opsctl.cli.completion import prepare

    if "_OPSCTL_COMPLETE" in os.environ:
        prepare()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup and `&` in a script set it
            signal.signal(number, _interrupt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a message in a locale that cannot print it
            stream.reconfigure(errors="backslashreplace")
    try:
        sys.exit(app(standalone_mode=False))
    except TyperException as error:  # found on the command line, before any command ran
        getattr(error, "show", lambda: None)()
        if "--json" in sys.argv:
            _report(error)
        sys.exit(getattr(error, "exit_code", 2))
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:  # `opsctl logs | head`
        with contextlib.suppress(OSError):
            sys.stderr.close()
        sys.exit(0)


def _report(error: Exception) -> None:
    """Who asked for JSON gets it, even if the rest of the line makes no sense."""
    import json

    from opsctl.errors import UsageError
    from opsctl.report import of_error

    # With the option or argument that it is about, where it is about one.
    message = getattr(error, "format_message", lambda: str(error))()
    words = ["--help"]
    context = getattr(error, "ctx", None)
    while context is not None and context.parent is not None:
        words.insert(0, str(context.info_name))
        context = context.parent
    report = of_error("opsctl", UsageError(message, remedy=f"see opsctl {' '.join(words)}"))
    sys.stdout.write(json.dumps(report.dump(), ensure_ascii=False) + "\n")
