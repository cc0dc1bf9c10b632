"""Verify a tree: slots for its nodes, the target's choice at each, and what is kept.

A step has one device-to-host transfer, the walked paths, and one back, which rows are kept.
Everything else on the device is queued.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, List, Optional, Tuple

import numpy as np
import torch

from sglang.srt.layers.logits_processor import LogitsProcessorOutput
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.mem_cache.common import alloc_token_slots
from sglang.srt.speculative.ddtree_tree import (
    DraftTree,
    WalkResult,
    mask_size,
    to_device,
    walk_tree,
    write_mask,
)
from sglang.srt.speculative.dflash_info import DFlashVerifyInput
from sglang.srt.speculative.spec_utils import assign_req_to_token_pool_func


@dataclass
class DDTreeVerifyInput(DFlashVerifyInput):
    """Inputs of a tree's verify forward, and what becomes of its outputs.

    `draft_token` and `positions` are [B * W], `draft_token_num` is W = budget + 1, and
    `custom_mask` is flat: for each request [W, seq_len + W]. Attention backends and the
    CUDA graph runner see a DFlashVerifyInput of that width.
    """

    tree: Optional[DraftTree] = None
    sampler: Any = None  # the target's own
    tp_group: Any = None

    # Set by verify(), for the worker.
    walked: Optional[WalkResult] = None
    commit_lens_cpu: Optional[List[int]] = None
    committed_positions: Optional[torch.Tensor] = None  # [sum(commit_lens)]

    @classmethod
    def from_tree(cls, tree: DraftTree, sampler: Any, tp_group: Any) -> DDTreeVerifyInput:
        return cls(
            draft_token=tree.tokens.view(-1),
            positions=tree.positions.view(-1),
            draft_token_num=tree.tokens.shape[1],
            tree=tree,
            sampler=sampler,
            tp_group=tp_group,
        )

    def prepare_for_tree_verify(
        self, batch: ScheduleBatch, graph_mask: Optional[torch.Tensor]
    ) -> None:
        """Give each node a KV slot and write the mask.

        Args:
            graph_mask: the attention backend's static mask buffer (flat), which captured
                kernels read. The mask is written there in place, or into memory of its own
                where there is no buffer or the buffer is too small.
        """
        batch.input_ids = self.draft_token
        bs = batch.batch_size()
        batch.out_cache_loc = alloc_token_slots(batch.tree_cache, len(batch.input_ids))
        assign_req_to_token_pool_func(
            batch.req_pool_indices,
            batch.req_to_token_pool.req_to_token,
            batch.seq_lens,
            batch.seq_lens + self.draft_token_num,
            batch.out_cache_loc,
            bs,
        )
        size = mask_size(bs, self.draft_token_num, int(batch.seq_lens_cpu.sum()))
        if graph_mask is not None and graph_mask.numel() >= size:
            self.custom_mask = graph_mask[:size]
        else:
            self.custom_mask = torch.empty(size, dtype=torch.bool, device=batch.device)
        write_mask(self.tree, batch.seq_lens, batch.seq_lens_cpu, self.custom_mask)

    def verify(
        self,
        *,
        batch: ScheduleBatch,
        logits_output: LogitsProcessorOutput,
        page_size: int,
    ) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor, List[int]]:
        """Walk the trees, append to the requests, and keep the KV of what they keep.

        A request commits its root and the accepted nodes whose tokens it took; the last
        token that it took has no KV yet and becomes the next root.

        Returns:
            the next roots [B] int64, commit_lens [B] int32, the target's hidden states of
            the committed rows [sum(commit_lens), features], and per request the number of
            correct drafts.
        """
        if batch.forward_mode.is_idle():
            empty = torch.empty((0,), dtype=torch.int64, device=batch.device)
            return empty, empty.to(torch.int32), empty, []
        if page_size != 1:
            raise RuntimeError(f"DDTREE needs page size 1, got {page_size}.")
        if logits_output.hidden_states is None:
            raise RuntimeError("DDTREE needs the target's hidden states, but got None.")

        predicted = self._target_tokens(batch, logits_output.next_token_logits)
        packed = walk_tree(self.tree, predicted)
        self.walked = WalkResult.unpack(packed.cpu().numpy())

        commit_lens = [
            append_until_finished(req, self.walked.output[i, : accepted + 1].tolist(), batch)
            for i, (req, accepted) in enumerate(
                zip(batch.reqs, self.walked.accepted.tolist(), strict=True)
            )
        ]
        self.commit_lens_cpu = commit_lens
        next_roots = [req.output_ids[-1] for req in batch.reqs]
        kept, commit_lens_gpu, roots_gpu = self._commit_kv(batch, next_roots)

        hidden = logits_output.hidden_states.index_select(0, kept)
        self.committed_positions = self.positions.index_select(0, kept)
        # Nothing downstream reads them, and they are large.
        logits_output.hidden_states = None
        correct = [length - 1 for length in commit_lens]
        return roots_gpu, commit_lens_gpu, hidden, correct

    def _target_tokens(self, batch: ScheduleBatch, logits: torch.Tensor) -> torch.Tensor:
        """The target's token after each node, [B, W] int64: its argmax or a sample.

        Sampling is SGLang's own sampler on every row, so temperature, top-k, top-p, min-p
        and the backend's way of combining them are those of plain decoding.
        """
        bs, width = len(batch.reqs), self.draft_token_num
        info = batch.sampling_info
        if info.logit_bias is not None:
            logits = logits + info.logit_bias.repeat_interleave(width, dim=0)
        greedy = torch.argmax(logits, dim=-1)
        if info.is_all_greedy:
            return greedy.view(bs, width)

        rows = SimpleNamespace(
            **{
                name: getattr(info, name).repeat_interleave(width, dim=0)
                for name in ("temperatures", "top_ks", "top_ps", "min_ps")
            },
            need_min_p_sampling=info.need_min_p_sampling,
            sampling_seed=None,
        )
        probs = torch.softmax(logits.float() / rows.temperatures, dim=-1)
        unfiltered = not (
            info.need_top_k_sampling or info.need_top_p_sampling or info.need_min_p_sampling
        )
        sampled = self.sampler._sample_from_probs(probs, rows, self.positions, unfiltered)
        # SGLang spells greedy as top_k = 1; ties must fall as they do in an all-greedy batch.
        tokens = torch.where(rows.top_ks == 1, greedy, sampled.to(greedy.dtype))
        if self.tp_group is not None:
            # Every rank holds the same logits but draws its own random numbers.
            self.tp_group.broadcast(tokens, src=0)
        return tokens.view(bs, width)

    def _commit_kv(
        self, batch: ScheduleBatch, next_roots: List[int]
    ) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Move the kept rows' slots into the requests' rows and free the others, once.

        Returns the kept verify rows [sum(commit_lens)], commit_lens and the next roots.
        """
        bs, commit_lens = len(batch.reqs), np.asarray(self.commit_lens_cpu, dtype=np.int64)
        kept, dropped = split_rows(self.walked.path, commit_lens, self.draft_token_num)
        moved = to_device(
            np.concatenate([kept, dropped, commit_lens, np.asarray(next_roots, dtype=np.int64)]),
            batch.device,
        )
        kept_gpu, dropped_gpu, commit_lens_gpu, roots_gpu = moved.split(
            [len(kept), len(dropped), bs, bs]
        )

        slots = batch.out_cache_loc
        batch.token_to_kv_pool_allocator.free(slots.index_select(0, dropped_gpu))
        batch.out_cache_loc = slots.index_select(0, kept_gpu)
        # The accepted path's slots in the order of its depths: with pages of one token that
        # is all that moving KV takes.
        end = batch.seq_lens + commit_lens_gpu.to(batch.seq_lens.dtype)
        assign_req_to_token_pool_func(
            batch.req_pool_indices,
            batch.req_to_token_pool.req_to_token,
            batch.seq_lens,
            end,
            batch.out_cache_loc,
            bs,
        )
        for req, length in zip(batch.reqs, self.commit_lens_cpu, strict=True):
            req.kv_committed_len += length
            req.kv_allocated_len = req.kv_committed_len
        batch.seq_lens.add_(commit_lens_gpu.to(batch.seq_lens.dtype))
        batch.seq_lens_cpu.add_(torch.from_numpy(commit_lens).to(batch.seq_lens_cpu.dtype))
        batch.seq_lens_sum += int(commit_lens.sum())
        return kept_gpu, commit_lens_gpu.to(torch.int32), roots_gpu


def append_until_finished(req: Req, tokens: List[int], batch: ScheduleBatch) -> int:
    """Append accepted tokens and the bonus until the request is finished; how many it took.

    As many verify rows are committed: the root and all but the last token taken.
    """
    taken = 0
    think_end_id = batch.model_config.think_end_id
    for token in tokens:
        req.output_ids.append(token)
        taken += 1
        if req.require_reasoning and think_end_id is not None:
            req.update_reasoning_tokens(token, think_end_id)
        req.check_finished()
        if req.finished():
            break
    req.spec_verify_ct += 1
    req.spec_num_correct_drafts += taken - 1
    req.update_spec_correct_drafts_histogram(taken - 1)
    return taken


def split_rows(
    path: np.ndarray, commit_lens: np.ndarray, width: int
) -> Tuple[np.ndarray, np.ndarray]:
    """Flat verify rows kept, in the order of requests and depths, and the rest, ascending.

    Args:
        path: [B, L + 1] rows of each request's tree along its accepted path.
        commit_lens: [B] how many of them it keeps.
    """
    bs, steps = path.shape
    rows = path.astype(np.int64) + np.arange(bs, dtype=np.int64)[:, None] * width
    kept = rows[np.arange(steps) < commit_lens[:, None]]
    dropped = np.ones(bs * width, dtype=bool)
    dropped[kept] = False
    return kept, np.flatnonzero(dropped)
