"""Triton kernels of DDTREE: build the tree, write its mask, walk it. No host synchronisation.

One program a request builds and walks (a tree has at most a thousand nodes, and the search
is a sequence by nature); the mask has one program a row and block of columns. Each kernel
gives to the bit what its plain counterpart in ``ddtree_tree`` gives.

Shapes: B requests, W = budget + 1 nodes (the root is node 0), L = block size - 1 depths,
K ranks a depth.
"""

from __future__ import annotations

from typing import Optional

import torch
import triton
import triton.language as tl

# A candidate's key, from the low bits: depth (8 bits), rank (10 bits, from 8), parent (10
# bits, from 18). Literals below, as Triton's interpreter does not shift by a constexpr.

# No candidate in this slot: below every packed finite score, which ends at -9.188e18.
NONE = tl.constexpr(-9200000000000000000)


@triton.jit
def pack(score, key):
    """A candidate as one int64 whose order is: higher score first, then lower key.

    The score's bits are made to sort as a signed integer; adding 0.0 makes -0.0 equal 0.0.
    """
    bits = (score + 0.0).to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    packed = (ordered.to(tl.int64) << 32) | (key ^ 0x7FFFFFFF).to(tl.int64)
    return tl.where(score == float("-inf"), NONE, packed)


@triton.jit
def unpack_score(packed):
    """The score of a candidate that `pack` made."""
    ordered = (packed >> 32).to(tl.int32)
    bits = ordered ^ ((ordered >> 31) & 0x7FFFFFFF)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _build_tree_kernel(
    logprobs,  # [B, L, K] float32, descending in K
    token_ids,  # [B, L, K] int64
    roots,  # [B] int64, any stride
    seq_lens,  # [B]
    tokens,  # out [B, W] int64
    parents,  # out [B, W] int32
    depths,  # out [B, W] int32
    positions,  # out [B, W] int64
    stride_root,
    stride_request,
    stride_depth,
    L: tl.constexpr,
    K: tl.constexpr,
    W: tl.constexpr,
    SEEDED: tl.constexpr,
    SLOTS: tl.constexpr,
):
    request = tl.program_id(0)
    logprobs += request.to(tl.int64) * stride_request
    token_ids += request.to(tl.int64) * stride_request
    out = request * W
    root = tl.load(roots + request * stride_root).to(tl.int64)
    start = tl.load(seq_lens + request).to(tl.int64)
    tl.store(tokens + out, root)
    tl.store(parents + out, -1)
    tl.store(depths + out, 0)
    tl.store(positions + out, start)

    # The frontier. Slot n holds first the first child of node n; a popped candidate's slot
    # passes to its next sibling, which has the same parent and so the same base score.
    slot = tl.arange(0, SLOTS)
    frontier = tl.full([SLOTS], NONE, tl.int64)
    base = tl.zeros([SLOTS], tl.float32)
    zero = tl.full([], 0, tl.int32)
    first = pack(tl.load(logprobs), zero + 1)
    frontier = tl.where(slot == 0, first, frontier)

    for node in range(1, W):
        best = tl.max(frontier, axis=0)
        if SEEDED:
            # The chain of each depth's most probable token comes first, whatever its score.
            if node <= L:
                forced = tl.load(logprobs + (node - 1) * stride_depth)
                from_base = tl.max(tl.where(slot == node - 1, base, float("-inf")), axis=0)
                chain = zero + ((node - 1) << 18) + node
                best = pack(from_base + forced, chain)
        if best == NONE:
            # Fewer prefixes than the budget: a node that is nobody's child, and sees
            # itself and the prefix.
            tl.store(tokens + out + node, root)
            tl.store(parents + out + node, -1)
            tl.store(depths + out + node, 0)
            tl.store(positions + out + node, start)
        else:
            key = (best & 0x7FFFFFFF).to(tl.int32) ^ 0x7FFFFFFF
            parent = key >> 18
            rank = (key >> 8) & 0x3FF
            depth = key & 0xFF
            row = (depth - 1) * stride_depth
            tl.store(tokens + out + node, tl.load(token_ids + row + rank))
            tl.store(parents + out + node, parent)
            tl.store(depths + out + node, depth)
            tl.store(positions + out + node, start + depth)

            popped = frontier == best
            parent_score = tl.max(tl.where(popped, base, float("-inf")), axis=0)
            sibling_logprob = tl.load(
                logprobs + row + rank + 1, mask=rank + 1 < K, other=float("-inf")
            )
            sibling = pack(parent_score + sibling_logprob, key + (1 << 8))
            score = unpack_score(best)
            child_logprob = tl.load(
                logprobs + row + stride_depth, mask=depth < L, other=float("-inf")
            )
            child = pack(score + child_logprob, zero + (node << 18) + depth + 1)
            frontier = tl.where(popped, sibling, frontier)
            frontier = tl.where(slot == node, child, frontier)
            base = tl.where(slot == node, score, base)


@triton.jit(do_not_specialize=["batch"])
def _write_mask_kernel(
    parents,  # [B, W] int32
    seq_lens,  # [B]
    mask,  # out, flat uint8: per request [W, seq_len + W], packed
    batch,
    L: tl.constexpr,
    W: tl.constexpr,
    REQUESTS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    request = tl.program_id(0) // W
    row = tl.program_id(0) % W
    others = tl.arange(0, REQUESTS)
    lens = tl.load(seq_lens + others, mask=others < batch, other=0).to(tl.int64)
    before = tl.sum(tl.where(others < request, lens, 0), axis=0)
    prefix = tl.sum(tl.where(others == request, lens, 0), axis=0)
    width = prefix + W
    start = W * (before + request.to(tl.int64) * W) + row * width

    column = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    if tl.program_id(1).to(tl.int64) * COLUMNS < width:
        visible = column < prefix
        if (tl.program_id(1).to(tl.int64) + 1) * COLUMNS > prefix:
            # Up from the row's own node: at most L parents, the root's being -1.
            node = row
            for _ in range(L + 1):
                visible |= (column == prefix + node) & (node >= 0)
                node = tl.load(parents + request * W + node, mask=node >= 0, other=-1)
        tl.store(mask + start + column, visible.to(tl.uint8), mask=column < width)


@triton.jit
def _walk_tree_kernel(
    tokens,  # [B, W] int64
    parents,  # [B, W] int32
    depths,  # [B, W] int32
    predicted,  # [B, W] int64: the target's token after each node
    out,  # out [B, 2 * (L + 1) + 4] int32: see WalkResult
    L: tl.constexpr,
    W: tl.constexpr,
    SLOTS: tl.constexpr,
):
    request = tl.program_id(0)
    node = tl.arange(0, SLOTS)
    inside = node < W
    offset = request * W + node
    token = tl.load(tokens + offset, mask=inside, other=-1)
    parent = tl.load(parents + offset, mask=inside, other=-1)
    depth = tl.load(depths + offset, mask=inside, other=0)
    target = tl.load(predicted + offset, mask=inside, other=-1).to(tl.int64)
    out += request * (2 * (L + 1) + 4)
    path = out + 4
    bonus = path + (L + 1)

    real = inside & ((parent >= 0) | (node == 0))
    tl.store(out + 1, tl.sum(real.to(tl.int32), axis=0) - 1)
    tl.store(out + 2, tl.max(depth, axis=0))
    tl.store(out + 3, tl.sum(depth, axis=0))

    current = tl.full([], 0, tl.int32)
    accepted = tl.full([], 0, tl.int32)
    walking = tl.full([], 1, tl.int32)
    for step in range(L + 1):
        wanted = tl.max(tl.where(node == current, target, -1), axis=0)
        match = inside & (parent == current) & (token == wanted) & (walking > 0)
        child = tl.max(tl.where(match, node, -1), axis=0)
        tl.store(path + step, tl.where(walking > 0, current, -1))
        tl.store(bonus + step, tl.where(walking > 0, wanted, -1).to(tl.int32))
        found = child >= 0
        accepted += found.to(tl.int32)
        walking = tl.where(found, walking, 0)
        current = tl.where(found, child, current)
    tl.store(out, accepted)


def build_tree(
    logprobs: torch.Tensor,
    token_ids: torch.Tensor,
    roots: torch.Tensor,
    seq_lens: torch.Tensor,
    width: int,
    chain_seed: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens, parents, depths and positions, each [B, W]. See ``ddtree_tree.build_tree``."""
    batch, depth, ranks = logprobs.shape
    device = logprobs.device
    longs = torch.empty((2, batch, width), dtype=torch.int64, device=device)
    ints = torch.empty((2, batch, width), dtype=torch.int32, device=device)
    tokens, positions = longs[0], longs[1]
    parents, depths = ints[0], ints[1]
    _build_tree_kernel[(batch,)](
        logprobs,
        token_ids,
        roots,
        seq_lens,
        tokens,
        parents,
        depths,
        positions,
        roots.stride(0),
        logprobs.stride(0),
        logprobs.stride(1),
        L=depth,
        K=ranks,
        W=width,
        SEEDED=chain_seed,
        SLOTS=triton.next_power_of_2(width),
        num_warps=1,
    )
    return tokens, parents, depths, positions


def write_mask(
    parents: torch.Tensor,
    seq_lens: torch.Tensor,
    max_seq_len: int,
    depth: int,
    mask: torch.Tensor,
) -> None:
    """Write every request's [W, seq_len + W] mask, packed, into the start of `mask` (uint8)."""
    batch, width = parents.shape
    columns = 2048
    _write_mask_kernel[(batch * width, triton.cdiv(max_seq_len + width, columns))](
        parents,
        seq_lens,
        mask,
        batch,
        L=depth,
        W=width,
        # One compilation for all usual batches: none of them should wait for a compiler.
        REQUESTS=max(64, triton.next_power_of_2(batch)),
        COLUMNS=columns,
        num_warps=4,
    )


def walk_tree(
    tokens: torch.Tensor,
    parents: torch.Tensor,
    depths: torch.Tensor,
    predicted: torch.Tensor,
    depth: int,
    out: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    """The accepted path of each request, packed as ``ddtree_tree.walk_tree`` says."""
    batch, width = tokens.shape
    if out is None:
        out = torch.empty(
            (batch, 2 * (depth + 1) + 4), dtype=torch.int32, device=tokens.device
        )
    _walk_tree_kernel[(batch,)](
        tokens,
        parents,
        depths,
        predicted,
        out,
        L=depth,
        W=width,
        SLOTS=triton.next_power_of_2(width),
        num_warps=1,
    )
    return out
