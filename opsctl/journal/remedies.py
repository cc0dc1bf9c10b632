"""Remedies that read the numbers in the decisive line."""

from __future__ import annotations

import re
from typing import Final

_SIZES: Final = re.compile(
    r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)"
    r" at non-singleton dimension (\d+)"
)
# Widths of one request's verify step lie below this; vocabularies, hidden sizes and context
# lengths lie above.
_WIDEST_BLOCK: Final = 1024


def specific_remedy(kind: str, line: str) -> str:
    """More than the rule's own remedy, where the line says more; else empty."""
    if kind == "tensor_size_mismatch" and (sizes := _SIZES.search(line)):
        return _sizes_remedy(int(sizes[1]), int(sizes[2]), int(sizes[3]))
    return ""


def _sizes_remedy(first: int, second: int, dimension: int) -> str:
    if max(first, second) > _WIDEST_BLOCK or dimension != 0:
        return ""
    small, large = sorted((first, second))
    tree = f" ({large} = a tree budget of {large - 1} and its root)" if large % 2 else ""
    return (
        f"One step of {large} tokens a request{tree} met a buffer made for {small}. Where {small} "
        "is the draft block, CUDA graphs (or their static buffers) were captured for the block "
        "and the verify step is wider: the graph runner must size num_tokens_per_bs, the mask "
        "and the output buffers by the verify width, budget + 1, not by the drafter's block "
        "size. Deploy the patch that does so, or set the budget so that both agree, or run "
        "--disable-cuda-graph until then. The warm-up and /health can pass all the same: "
        "they may end before a verify step of that width."
    )
