"""Speculation counters of one request, from `meta_info` of a native `/generate` answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from opsctl.sglang.releases import names, release_of


@dataclass(frozen=True, slots=True)
class SpecCounters:
    """None means that the server did not say, which is not the same as zero.

    SGLang leaves the counters out of a request that ran no verify step, and out of every
    request of a server without speculation.
    """

    verify_steps: int | None = None
    accept_len: float | None = None  # tokens a verify step, the bonus token included
    accept_rate: float | None = None  # accepted share of the drafted tokens, 0 to 1
    accepted: int | None = None  # drafted tokens that the target confirmed
    drafted: int | None = None
    histogram: tuple[int, ...] = ()  # [n]: steps that accepted n drafts; DFLASH gives none

    @classmethod
    def from_meta_info(cls, meta: Mapping[str, object], version: str | None = None) -> SpecCounters:
        """The counters under whichever version's names they come.

        `version` settles `accept_rate` only: before 0.5.11 it divided the accepted *length*
        by the draft width, so it is recomputed where the counts allow and dropped otherwise.
        """
        steps, completion = _count(meta, "verify_steps"), _real(meta, "completion_tokens")
        accepted, drafted = _count(meta, "accepted"), _count(meta, "drafted")
        length = _first(meta, "accept_len")
        if length is None and steps and completion is not None:
            length = completion / steps
        rate, release = _first(meta, "accept_rate"), release_of(version)
        if accepted is not None and drafted:
            rate = accepted / drafted
        elif release is not None and release.accept_rate == "length":
            rate = None
        raw = next((meta[name] for name in names("meta_info", "histogram") if meta.get(name)), ())
        return cls(
            verify_steps=steps,
            accept_len=length,
            accept_rate=rate,
            accepted=accepted,
            drafted=drafted,
            histogram=tuple(int(n) for n in raw) if isinstance(raw, list | tuple) else (),
        )

    @property
    def block_size(self) -> int | None:
        """The most tokens that one verify step can yield (drafts and bonus), if known."""
        if not self.verify_steps or self.drafted is None:
            return None
        return self.drafted // self.verify_steps + 1

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def _real(meta: Mapping[str, object], name: str) -> float | None:
    value = meta.get(name)
    return float(value) if isinstance(value, int | float) else None


def _first(meta: Mapping[str, object], what: str) -> float | None:
    values = (_real(meta, name) for name in names("meta_info", what))
    return next((value for value in values if value is not None), None)


def _count(meta: Mapping[str, object], what: str) -> int | None:
    value = _first(meta, what)
    return None if value is None else int(value)
