"""The DDTREE worker: DFLASH's drafter, verified as a tree.

Everything of DFlashWorker stays as it is (the draft model, its KV, prefill); only what is
made of the drafter's output differs, and where the committed tokens' KV slots come from.
"""

from __future__ import annotations

import logging
from typing import Any, Optional

import torch

from sglang.srt.distributed import get_tp_group
from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.speculative.ddtree_info import DDTreeVerifyInput
from sglang.srt.speculative.ddtree_marginals import draft_top_k
from sglang.srt.speculative.ddtree_metrics import DDTreeMetrics
from sglang.srt.speculative.ddtree_tree import build_tree
from sglang.srt.speculative.ddtree_utils import unsupported_model
from sglang.srt.speculative.dflash_info import DFlashDraftInput, DFlashVerifyInput
from sglang.srt.speculative.dflash_worker import DFlashWorker

logger = logging.getLogger(__name__)


class DDTreeWorker(DFlashWorker):
    """Speculative decoding with a tree out of one DFLASH block (spec v1, tp >= 1, pp = 1)."""

    def __init__(self, server_args: Any, *args: Any, **kwargs: Any):
        super().__init__(server_args, *args, **kwargs)
        runner = self.model_runner
        why = unsupported_model(runner.model_config)
        if why is None and runner.mambaish_config is not None:
            why = "models with recurrent layers"
        if why is not None:
            raise ValueError(f"DDTREE does not support {why}.")

        self.budget = int(server_args.speculative_ddtree_budget)
        # A tree of B nodes never takes a rank beyond the B-th.
        ranks = min(self.budget, int(runner.model_config.vocab_size))
        if server_args.speculative_ddtree_topk is not None:
            ranks = min(ranks, int(server_args.speculative_ddtree_topk))
        self.ranks = ranks
        self.chain_seed = bool(server_args.speculative_ddtree_chain_seed)
        # DFLASH warns that it verifies greedily where a kernel of its own is missing; DDTREE
        # samples with SGLang's sampler on every device.
        self._warned_sampling_fallback = True
        self._metrics = DDTreeMetrics(
            budget=self.budget,
            block_size=self.block_size,
            interval=server_args.decode_log_interval,
            enabled=self.tp_rank == 0,
        )
        if self.tp_rank == 0:
            logger.info(
                "Initialized DDTREE. budget=%d, topk=%d, chain_seed=%s, block_size=%d, "
                "verify_width=%d",
                self.budget,
                self.ranks,
                self.chain_seed,
                self.block_size,
                self.budget + 1,
            )

    def _draft_to_verify_input(
        self,
        *,
        batch: ScheduleBatch,
        draft_hidden: torch.Tensor,
        block_ids: torch.Tensor,
        positions_2d: torch.Tensor,
        lm_head: Any,
    ) -> DFlashVerifyInput:
        """A tree out of the block's hidden states [B, block_size, hidden]."""
        bs, depth = draft_hidden.shape[0], self.block_size - 1
        tp_group = get_tp_group()
        logprobs, token_ids = draft_top_k(
            draft_hidden[:, 1:, :].reshape(bs * depth, -1), lm_head, self.ranks, tp_group
        )
        tree = build_tree(
            logprobs.view(bs, depth, -1),
            token_ids.view(bs, depth, -1),
            block_ids[:, 0],
            batch.seq_lens,
            self.budget,
            self.chain_seed,
        )
        verify_input = DDTreeVerifyInput.from_tree(tree, self.model_runner.sampler, tp_group)
        verify_input.prepare_for_tree_verify(batch, self._graph_mask(bs))
        return verify_input

    def _graph_mask(self, bs: int) -> Optional[torch.Tensor]:
        """The buffer that captured attention kernels read the mask from, if they will run."""
        runner = getattr(self.model_runner, "graph_runner", None)
        if runner is None or bs > getattr(runner, "max_bs", 0):
            return None
        return getattr(self.model_runner.attn_backend, "cuda_graph_custom_mask", None)

    def _append_target_hidden_to_draft_kv(
        self, batch: ScheduleBatch, draft_input: DFlashDraftInput
    ) -> None:
        """As DFlashWorker, but after a verify the slots and positions are at hand.

        DFlashWorker gathers them by a mask, whose number of elements the host waits for.
        """
        verified = batch.spec_info
        if isinstance(verified, DDTreeVerifyInput):
            self._metrics.record(verified.walked, verified.commit_lens_cpu)
        if self.use_compact_draft_cache or not isinstance(verified, DDTreeVerifyInput):
            super()._append_target_hidden_to_draft_kv(batch, draft_input)
            return
        with torch.inference_mode():
            hidden = self.draft_model.project_target_hidden(draft_input.target_hidden)
            self._append_target_hidden_rows(
                hidden, verified.committed_positions, batch.out_cache_loc
            )
        draft_input.draft_seq_lens = batch.seq_lens.to(dtype=torch.int32)
        draft_input.ctx_lens = torch.zeros_like(draft_input.ctx_lens)
        draft_input.target_hidden = draft_input.target_hidden[:0]

    def _append_target_hidden_rows(
        self, hidden: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor
    ) -> None:
        """Write the drafter's K and V of committed tokens, by one kernel where it can."""
        if self._use_fused_kv_materialize and self._fused_kv_helper is not None:
            try:
                self._append_target_hidden_fused(hidden, positions, slots)
                return
            except Exception as error:
                logger.warning(
                    "DDTREE: fused KV append failed, using the sequential path: %s", error
                )
                self._use_fused_kv_materialize = False
                self._fused_kv_helper = None
        self._append_target_hidden_sequential(hidden, positions, slots)
