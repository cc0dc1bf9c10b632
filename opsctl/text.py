"""Words for a person."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """`1 file`, `2 files`: for nouns whose plural is an s."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
