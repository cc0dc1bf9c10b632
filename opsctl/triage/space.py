"""File systems and memory: full, nearly full, dead or read-only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

# Less free space than this is none, or little: bytes, or of a small file system a twentieth.
_FULL: Final = 64 << 20
_TIGHT: Final = 2 << 30
_SHARE: Final = 0.05
_NO_INODES: Final = 0.005

Trouble = Literal["dead", "full", "no_inodes", "read_only", "tight"]
# On which a service writes: nothing fails for a model's read-only mount.
WRITES: Final = ("state", "tmp", "journal", "shm", "root", "home")


@dataclass(frozen=True, slots=True)
class Place:
    """A file system with trouble, and the roles that lie on it."""

    trouble: Trouble
    roles: tuple[str, ...]
    text: str


def troubles(filesystems: Mapping[str, Mapping[str, Any]]) -> list[Place]:
    """The worst first; each file system once, by its device."""
    found: dict[tuple[Any, Trouble], list[str]] = {}
    texts: dict[tuple[Any, Trouble], str] = {}
    for role, facts in filesystems.items():
        trouble = _trouble(role, facts)
        if trouble is None:
            continue
        key = (facts.get("device", facts.get("path")), trouble)
        found.setdefault(key, []).append(role)
        texts.setdefault(key, _text(facts, trouble))
    places = [Place(key[1], tuple(roles), texts[key]) for key, roles in found.items()]
    order = ("dead", "full", "no_inodes", "read_only", "tight")
    return sorted(places, key=lambda place: order.index(place.trouble))


def _trouble(role: str, facts: Mapping[str, Any]) -> Trouble | None:
    if facts.get("fault"):
        return "dead"
    size, free = int(facts.get("size") or 0), int(facts.get("free") or 0)
    inodes, inodes_free = int(facts.get("inodes") or 0), int(facts.get("inodes_free") or 0)
    if facts.get("read_only"):
        return "read_only" if role in WRITES else None
    if role not in WRITES and role != "package":
        return None
    if size and free < min(_FULL, size * _SHARE):
        return "full"
    if inodes and inodes_free / inodes < _NO_INODES:
        return "no_inodes"
    little = free < min(_TIGHT, size * _SHARE) or inodes_free < inodes * _SHARE
    return "tight" if size and little else None


def _text(facts: Mapping[str, Any], trouble: Trouble) -> str:
    if trouble == "dead":
        return str(facts["fault"])
    where = facts.get("mount") or facts["path"]
    if trouble == "read_only":
        return f"{where} ({facts.get('source')}) is mounted read-only"
    free, size = gib(facts["free"]), gib(facts["size"])
    inodes = f", {facts.get('inodes_free')} inodes" if facts.get("inodes") else ""
    word = {"full": "is full", "no_inodes": "has no inodes left", "tight": "is nearly full"}
    return f"{where} {word[trouble]}: {free} of {size} free{inodes}"


def gib(size: Any) -> str:
    """Bytes for a person."""
    value = float(size or 0)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB" if value < 1024 else f"{value / 1024:.1f} TiB"
