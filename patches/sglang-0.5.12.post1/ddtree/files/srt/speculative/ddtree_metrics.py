"""The journal line of DDTREE, beside SGLang's own `Decode batch` line.

Every ``decode_log_interval`` verify steps, of that interval:

    DDTREE metrics budget=16 steps=40 verifies=73 nodes=16.00 depth_mean=2.31 depth_max=7 \
accept_len_mean=3.42 accept_rate=0.35

- steps: verify forwards; verifies: requests summed over them.
- nodes: drafted nodes per verify, less than the budget only where no more prefixes exist.
- depth_mean, depth_max: depth of those nodes, in tokens after the root.
- accept_len_mean: tokens a verify adds to a request, the bonus token included (1 is no
  draft accepted), as SGLang's `accept len`.
- accept_rate: accepted drafts over block size - 1, the most that a path can hold. SGLang's
  own `accept rate`, `spec_accept_rate` and `spec_num_proposed_drafts` have the same
  denominator, so DDTREE and DFLASH compare; the budget would make every tree look worse.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, List

if TYPE_CHECKING:
    from sglang.srt.speculative.ddtree_tree import WalkResult

logger = logging.getLogger(__name__)


class DDTreeMetrics:
    """Sums over an interval of verify steps, kept on the host and free of transfers."""

    def __init__(self, *, budget: int, block_size: int, interval: int, enabled: bool):
        self.budget = budget
        self.block_size = block_size
        self.interval = max(1, int(interval))
        self.enabled = enabled
        self._reset()

    def _reset(self) -> None:
        self.steps = self.verifies = self.nodes = 0
        self.depth_sum = self.depth_max = self.tokens = 0

    def record(self, walked: WalkResult, commit_lens: List[int]) -> None:
        """One verify step; writes the line and starts anew at the end of an interval."""
        if not self.enabled:
            return
        self.steps += 1
        self.verifies += len(commit_lens)
        self.nodes += int(walked.nodes.sum())
        self.depth_sum += int(walked.depth_sum.sum())
        self.depth_max = max(self.depth_max, int(walked.depth_max.max()))
        self.tokens += sum(commit_lens)
        if self.steps >= self.interval:
            logger.info("%s", self.line())
            self._reset()

    def line(self) -> str:
        accept_len = self.tokens / max(1, self.verifies)
        return (
            f"DDTREE metrics budget={self.budget} steps={self.steps} "
            f"verifies={self.verifies} nodes={self.nodes / max(1, self.verifies):.2f} "
            f"depth_mean={self.depth_sum / max(1, self.nodes):.2f} "
            f"depth_max={self.depth_max} accept_len_mean={accept_len:.2f} "
            f"accept_rate={(accept_len - 1) / max(1, self.block_size - 1):.2f}"
        )
