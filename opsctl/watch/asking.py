"""What a server's endpoint says of the work that is under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from opsctl.sglang import Load, ServerError, SglangClient
from opsctl.sglang.metrics import by_rank
from opsctl.sglang.releases import RELEASES
from opsctl.watch.heard import Asked

_MISSING: Final = (404, 405)
_GAUGES: Final = RELEASES[0].gauges


@dataclass(slots=True)
class Endpoint:
    """Asks for the loads, or for /metrics where the server has none. What does not change during
    a start is asked once for each."""

    client: SglangClient
    _known: str | None = None  # the invocation that the rest is of
    _capacity: int | None = None  # tokens in the KV pool of one data-parallel rank
    _loads: bool = True
    _none: set[str] = field(default_factory=set)

    def ask(self, invocation: str) -> Asked:
        """Of the start `invocation`.

        Raises:
            ServerError: it does not answer, or with something else.
        """
        if invocation != self._known:
            self._capacity, self._loads = _capacity(self.client.server_info()), True
            self._known = invocation
        if self._loads:
            try:
                return self._of_loads(self.client.loads())
            except ServerError as error:
                if error.status not in _MISSING:
                    raise
                self._loads = False
        return _of_metrics(self.client.metrics())

    def _of_loads(self, loads: list[Load]) -> Asked:
        waiting = [load.waiting for load in loads if load.waiting is not None]
        requests = sum(load.requests for load in loads)
        used = sum(max(load.used_tokens, 0) for load in loads)
        whole = (self._capacity or 0) * len(loads)
        return Asked(
            running=requests - sum(waiting),
            queued=sum(waiting) if waiting else None,
            usage=min(used / whole, 1.0) if whole else None,
        )


def _capacity(info: Mapping[str, Any]) -> int | None:
    found = info.get("max_total_num_tokens")
    return found if isinstance(found, int) and found > 0 else None


def _of_metrics(values: dict[str, float]) -> Asked:
    running, queued = by_rank(values, _GAUGES["running"]), by_rank(values, _GAUGES["queue"])
    return Asked(
        running=round(sum(running.values())) if running else None,
        queued=round(sum(queued.values())) if queued else None,
    )
