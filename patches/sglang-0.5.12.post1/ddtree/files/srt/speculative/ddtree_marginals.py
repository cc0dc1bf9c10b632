"""The drafter's marginals: the K most probable tokens of each position of a block.

By the target's own vocabulary-parallel head, so under tensor parallelism each rank ranks its
shard and all merge the same few numbers.
"""

from __future__ import annotations

from typing import Any

import torch


def draft_top_k(
    hidden: torch.Tensor, lm_head: Any, k: int, tp_group: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The K most probable tokens of each drafted position, by the target's own head.

    Args:
        hidden: [N, hidden_size], the drafter's output.
        lm_head: the target's vocabulary-parallel head; this rank's shard of it.
        tp_group: the group that the vocabulary is split over.

    Returns:
        Log-probabilities [N, K] float32, descending, over the whole vocabulary; and the
        global token ids [N, K] int64. K is at most the size of the vocabulary.

    A logit scale or soft cap of the target is left out, as DFLASH leaves it out: it changes
    which tree is verified, never what is accepted.
    """
    values, ids, logsumexp = shard_top_k(hidden, lm_head, k)
    if tp_group.world_size > 1:
        # Scores and ids of K tokens a rank, never the logits.
        packed = torch.cat([values, ids.to(torch.int32).view(torch.float32), logsumexp], dim=1)
        gathered = tp_group.all_gather(packed, dim=0)
        values, ids, logsumexp = merge_shards(
            gathered.view(tp_group.world_size, *packed.shape), k
        )
    return values - logsumexp, ids


def shard_top_k(
    hidden: torch.Tensor, lm_head: Any, k: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """This rank's top K logits [N, K] float32, their global ids, and logsumexp [N, 1].

    A shard smaller than K is padded with -inf, so that all ranks' results have one shape.
    The padding rows of the head's weight never take part.
    """
    shard, weight = lm_head.shard_indices, lm_head.weight
    hidden = hidden.to(weight.dtype)
    num_org, num_added = int(shard.num_org_elements), int(shard.num_added_elements)
    logits = torch.matmul(hidden, weight[:num_org].T)
    if num_added:
        start = int(shard.num_org_elements_padded)
        added = torch.matmul(hidden, weight[start : start + num_added].T)
        logits = torch.cat([logits, added], dim=1)
    size = logits.shape[1]
    if size == 0:
        shape = (hidden.shape[0], k)
        values = hidden.new_full(shape, float("-inf"), dtype=torch.float32)
        return values, values.new_zeros(shape, dtype=torch.int64), values[:, :1]

    if logits.is_cuda and not num_added:
        from sglang.srt.speculative import ddtree_top_k

        if k <= ddtree_top_k.MAX_K:
            return ddtree_top_k.top_k(logits, k, int(shard.org_vocab_start_index))
    logits = logits.float()
    logsumexp = torch.logsumexp(logits, dim=1, keepdim=True)
    values, local = torch.topk(logits, min(k, size), dim=1)
    ids = local + int(shard.org_vocab_start_index)
    if num_added:
        added_ids = local - num_org + int(shard.added_vocab_start_index)
        ids = torch.where(local < num_org, ids, added_ids)
    if size < k:
        values = torch.nn.functional.pad(values, (0, k - size), value=float("-inf"))
        ids = torch.nn.functional.pad(ids, (0, k - size))
    return values, ids, logsumexp


def merge_shards(
    gathered: torch.Tensor, k: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Merge the shards' packed results [ranks, N, 2K + 1] into the whole vocabulary's.

    Every rank merges the same numbers, so every rank gets the same tree.
    """
    values = gathered[..., :k].transpose(0, 1).flatten(1)
    ids = gathered[..., k : 2 * k].transpose(0, 1).flatten(1).contiguous()
    logsumexp = torch.logsumexp(gathered[..., -1], dim=0).unsqueeze(1)
    values, chosen = torch.topk(values, k, dim=1)
    return values, ids.view(torch.int32).gather(1, chosen).to(torch.int64), logsumexp
