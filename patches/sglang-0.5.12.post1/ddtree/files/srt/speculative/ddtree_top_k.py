"""Triton kernels that rank the drafter's tokens: top K logits of a row, and its logsumexp.

torch takes a dozen launches for that, which at batch 1 cost more than building the tree.
No kernel and no launcher waits for the device.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from sglang.srt.speculative.ddtree_kernels import NONE, pack, unpack_score

# The kernels find ranks one by one; torch's own selection serves larger trees.
MAX_K = 64


@triton.jit
def _chunk_top_k_kernel(
    logits,  # [N, V]
    candidates,  # out [N, CHUNKS * K] int64, packed
    chunk_max,  # out [N, CHUNKS] float32
    chunk_sum,  # out [N, CHUNKS] float32, of exp(logit - chunk_max)
    V,
    stride_row,
    K: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    row, chunk = tl.program_id(0), tl.program_id(1)
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    logit = tl.load(
        logits + row.to(tl.int64) * stride_row + token, mask=token < V, other=float("-inf")
    ).to(tl.float32)
    highest = tl.max(logit, axis=0)
    above = tl.where(logit == float("-inf"), 0.0, tl.exp(logit - highest))
    tl.store(chunk_max + row * CHUNKS + chunk, highest)
    tl.store(chunk_sum + row * CHUNKS + chunk, tl.sum(above, axis=0))
    packed = pack(logit, token)
    out = candidates + (row * CHUNKS + chunk) * K
    for rank in range(K):
        best = tl.max(packed, axis=0)
        tl.store(out + rank, best)
        packed = tl.where(packed == best, NONE, packed)


@triton.jit
def _merge_top_k_kernel(
    candidates,  # [N, CHUNKS * K] int64, packed
    chunk_max,  # [N, CHUNKS] float32
    chunk_sum,  # [N, CHUNKS] float32
    values,  # out [N, K] float32
    ids,  # out [N, K] int64
    logsumexp,  # out [N] float32
    first_id,
    K: tl.constexpr,
    CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK_BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    chunk = tl.arange(0, CHUNK_BLOCK)
    maxima = tl.load(
        chunk_max + row * CHUNKS + chunk, mask=chunk < CHUNKS, other=float("-inf")
    )
    sums = tl.load(chunk_sum + row * CHUNKS + chunk, mask=chunk < CHUNKS, other=0.0)
    highest = tl.max(maxima, axis=0)
    scaled = tl.where(maxima == float("-inf"), 0.0, sums * tl.exp(maxima - highest))
    tl.store(logsumexp + row, highest + tl.log(tl.sum(scaled, axis=0)))

    place = tl.arange(0, BLOCK)
    packed = tl.load(
        candidates + row * (CHUNKS * K) + place, mask=place < CHUNKS * K, other=NONE
    )
    for rank in range(K):
        best = tl.max(packed, axis=0)
        token = ((best & 0x7FFFFFFF).to(tl.int32) ^ 0x7FFFFFFF).to(tl.int64)
        tl.store(values + row * K + rank, tl.where(best == NONE, float("-inf"), unpack_score(best)))
        tl.store(ids + row * K + rank, tl.where(best == NONE, 0, token + first_id))
        packed = tl.where(packed == best, NONE, packed)


def top_k(
    logits: torch.Tensor, k: int, first_id: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Top K of each row [N, K] float32, their ids + `first_id`, and logsumexp [N, 1].

    Two launches for what torch does in a dozen: the K best of each chunk of the vocabulary,
    then the K best of those. Equal logits go to the lower id; a missing one is -inf, id 0.
    """
    rows, vocab = logits.shape
    chunk = max(1024, triton.next_power_of_2(triton.cdiv(vocab, 64)))
    chunks = triton.cdiv(vocab, chunk)
    device = logits.device
    candidates = torch.empty((rows, chunks * k), dtype=torch.int64, device=device)
    partial = torch.empty((2, rows, chunks), dtype=torch.float32, device=device)
    values = torch.empty((rows, k), dtype=torch.float32, device=device)
    ids = torch.empty((rows, k), dtype=torch.int64, device=device)
    logsumexp = torch.empty((rows, 1), dtype=torch.float32, device=device)
    _chunk_top_k_kernel[(rows, chunks)](
        logits,
        candidates,
        partial[0],
        partial[1],
        vocab,
        logits.stride(0),
        K=k,
        CHUNKS=chunks,
        CHUNK=chunk,
        num_warps=4,
    )
    _merge_top_k_kernel[(rows,)](
        candidates,
        partial[0],
        partial[1],
        values,
        ids,
        logsumexp,
        first_id,
        K=k,
        CHUNKS=chunks,
        BLOCK=triton.next_power_of_2(chunks * k),
        CHUNK_BLOCK=triton.next_power_of_2(chunks),
        num_warps=8,
    )
    return values, ids, logsumexp
