"""Speculation counters of one request, from `meta_info` of a native `/generate` answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

# The same counters, newest name first. 0.5.11: tokenizer_manager.py:2102; 0.5.12.post1:
# tokenizer_manager.py:2129, which keeps 0.5.11's names beside its own; 0.5.23: :3164.
_CORRECT: Final = ("spec_num_correct_drafts", "spec_accepted_drafts")
_PROPOSED: Final = ("spec_num_proposed_drafts", "spec_proposed_drafts")
_HISTOGRAM: Final = ("spec_correct_drafts_histogram", "spec_accept_histogram")


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
        steps = _count(meta, ("spec_verify_ct",))
        accepted, drafted = _count(meta, _CORRECT), _count(meta, _PROPOSED)
        length = _real(meta, "spec_accept_length")
        completion = _count(meta, ("completion_tokens",))
        if length is None and steps and completion is not None:
            length = completion / steps
        rate = _real(meta, "spec_accept_rate")
        if accepted is not None and drafted:
            rate = accepted / drafted
        elif version is not None and _before_0_5_11(version):
            rate = None
        raw = next((meta[name] for name in _HISTOGRAM if meta.get(name)), ())
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


def _before_0_5_11(version: str) -> bool:
    numbers = [int(part) for part in version.split(".")[:3] if part.isdecimal()]
    return numbers < [0, 5, 11]


def _real(meta: Mapping[str, object], name: str) -> float | None:
    value = meta.get(name)
    return float(value) if isinstance(value, int | float) else None


def _count(meta: Mapping[str, object], names: tuple[str, ...]) -> int | None:
    for name in names:
        if (value := _real(meta, name)) is not None:
            return int(value)
    return None
