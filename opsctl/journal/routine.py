"""What a healthy server's journal is full of, and so must not be parsed line by line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from opsctl.journal.matcher import Routine
from opsctl.journal.prefilter import Selection
from opsctl.journal.silence import ACCESS, KEPT_ANSWERS
from opsctl.sglang import PrefillBatch, parse_all

# Found by the matcher as what they are, so as needles they would only be found twice.
_BATCHES: Final = {"decode batch", "prefill batch"}
_CALLS: Final = ("/v1/chat/completions", "/v1/completions", "/generate")
_HEALTH: Final = ("/health", "/health_generate")


def _answered(method: str, paths: Iterable[str]) -> tuple[str, ...]:
    """Access lines as they stand in a journal: JSON escapes their quotes."""
    requests = [f"{method} {path} HTTP/1.1" for path in paths]
    return tuple(f"{quote}{text}{quote} 200 OK" for text in requests for quote in ('"', r"\""))


def _is_access(message: str, method: str) -> bool:
    found = ACCESS.match(message)
    return found is not None and found["method"] == method and found["status"] == "200"


# Signs of life, of which the last counts, and health checks, of which silence asks for more.
# Other paths than these are looked at.
ROUTINE: Final = (
    Routine(("INFO:     ",)),
    Routine((", accept len: ", ", accept rate: ")),
    Routine(_answered("GET", ["/metrics"])),
    Routine(_answered("POST", _CALLS), lambda message: _is_access(message, "POST")),
    Routine(
        ("Prefill batch",),
        lambda message: any(isinstance(line, PrefillBatch) for line in parse_all(message)),
        resets=True,
    ),
    *(
        Routine(_answered("GET", [path]), lambda message: _is_access(message, "GET"), KEPT_ANSWERS)
        for path in _HEALTH
    ),
)


def selection(needles: Iterable[str]) -> Selection:
    """Of a rule base's needles: lower-case texts, one of which is in each line that matters."""
    return Selection(
        caseless=tuple(needle for needle in needles if needle not in _BATCHES), routine=ROUTINE
    )
