"""The draft tree: the search, the mask and the walk.

Algorithm (arXiv 2604.12989): with q_d(k) the k-th most probable token at depth d of one
drafter pass, a prefix of ranks (r_1 .. r_d) has probability prod q_i(r_i), and a tree's
expected accept length is the sum of that over its nodes. So the best tree of B nodes is the
B most probable prefixes, which are closed under taking prefixes. Best-first search finds
them: pop the best candidate, push its next sibling (last rank + 1) and its first child.

Ties go to the candidate whose parent was popped earlier, then to the lower rank: an order
that the kernel and the plain version share. It changes no tree's expected length.

Shapes: B requests, W = budget + 1 nodes (the root is node 0 and not part of the budget),
L = block size - 1 depths, K ranks a depth. A parent always comes before its children, on
which the attention kernel's causal loop bound depends.

CUDA tensors go to ``ddtree_kernels``; the plain versions serve CPUs, and are what the
kernels are tested against.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np
import torch


@dataclass
class DraftTree:
    """The trees of a batch. All on the device of the model."""

    tokens: torch.Tensor  # [B, W] int64; node 0 is the request's last token
    parents: torch.Tensor  # [B, W] int32; -1 for the root and for padding
    depths: torch.Tensor  # [B, W] int32; 0 for the root and for padding
    positions: torch.Tensor  # [B, W] int64: seq_len + depth
    max_depth: int  # L


@dataclass
class WalkResult:
    """What one device-to-host transfer brings of a verify step, as numpy int32 arrays."""

    accepted: np.ndarray  # [B] accepted draft tokens
    nodes: np.ndarray  # [B] nodes of the tree, less the root and padding
    depth_max: np.ndarray  # [B]
    depth_sum: np.ndarray  # [B] over nodes
    path: np.ndarray  # [B, L + 1] verify rows along the path, the root first; then -1
    output: np.ndarray  # [B, L + 1] accepted tokens, then the bonus token; then -1

    @classmethod
    def unpack(cls, packed: np.ndarray) -> WalkResult:
        """`packed` is [B, 4 + 2 * (L + 1)]: the fields in their order."""
        steps = (packed.shape[1] - 4) // 2
        return cls(
            *(packed[:, i] for i in range(4)), packed[:, 4 : 4 + steps], packed[:, 4 + steps :]
        )


def build_tree(
    logprobs: torch.Tensor,
    token_ids: torch.Tensor,
    roots: torch.Tensor,
    seq_lens: torch.Tensor,
    budget: int,
    chain_seed: bool = False,
) -> DraftTree:
    """The best tree of `budget` nodes for each request.

    Args:
        logprobs: [B, L, K] float32, descending in K; -inf for ranks that do not exist.
        token_ids: [B, L, K] int64, distinct within a depth.
        roots: [B] the requests' last tokens.
        seq_lens: [B] their lengths without it: the root's position.
        chain_seed: put the chain of most probable tokens into the tree first. The best tree
            need not hold it, and marginals ignore how positions depend on each other.

    Where fewer prefixes exist than the budget, the rest is padding: the root's token, no
    parent, no child.
    """
    width = budget + 1
    if logprobs.is_cuda:
        from sglang.srt.speculative import ddtree_kernels

        arrays = ddtree_kernels.build_tree(
            logprobs.contiguous(), token_ids.contiguous(), roots, seq_lens, width, chain_seed
        )
    else:
        arrays = _build_plain(logprobs, token_ids, roots, seq_lens, width, chain_seed)
    return DraftTree(*arrays, max_depth=logprobs.shape[1])


def _build_plain(
    logprobs: torch.Tensor,
    token_ids: torch.Tensor,
    roots: torch.Tensor,
    seq_lens: torch.Tensor,
    width: int,
    chain_seed: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    batch = logprobs.shape[0]
    tokens = roots.to(torch.int64).unsqueeze(1).repeat(1, width)
    parents = torch.full((batch, width), -1, dtype=torch.int32)
    depths = torch.zeros((batch, width), dtype=torch.int32)
    # numpy's float32 rounds as the kernel does; Python's float would break ties elsewhere.
    table, ids = logprobs.numpy(), token_ids.numpy()
    for request in range(batch):
        nodes = search(table[request], width - 1, chain_seed)
        for node, (parent, depth, rank) in enumerate(nodes, start=1):
            tokens[request, node] = int(ids[request, depth - 1, rank])
            parents[request, node] = parent
            depths[request, node] = depth
    positions = seq_lens.to(torch.int64).unsqueeze(1) + depths
    return tokens, parents, depths, positions


def search(
    logprobs: np.ndarray, budget: int, chain_seed: bool = False
) -> list[tuple[int, int, int]]:
    """Best-first search in one request's [L, K] table: (parent, depth, rank), in pop order."""
    max_depth, ranks = logprobs.shape
    nodes: list[tuple[int, int, int]] = []
    frontier: list[tuple[float, int, int, int, Any]] = []

    def push(base: Any, parent: int, depth: int, rank: int) -> None:
        if depth <= max_depth and rank < ranks:
            score = base + logprobs[depth - 1, rank]
            if score != -np.inf:
                heapq.heappush(frontier, (-float(score), parent, rank, depth, base))

    push(np.float32(0.0), 0, 1, 0)
    while frontier and len(nodes) < budget:
        node = len(nodes) + 1
        index = 0
        if chain_seed and node <= max_depth:
            chained = [i for i, c in enumerate(frontier) if c[1:4] == (node - 1, 0, node)]
            if not chained:
                break
            index = chained[0]
        negative, parent, rank, depth, base = frontier[index]
        frontier[index] = frontier[-1]
        frontier.pop()
        heapq.heapify(frontier)
        nodes.append((parent, depth, rank))
        push(base, parent, depth, rank + 1)
        push(np.float32(-negative), node, depth + 1, 0)
    return nodes


def mask_size(batch: int, width: int, seq_lens_sum: int) -> int:
    """Elements of a batch's mask: for each request [W, seq_len + W]."""
    return width * (seq_lens_sum + batch * width)


def write_mask(
    tree: DraftTree, seq_lens: torch.Tensor, seq_lens_cpu: torch.Tensor, mask: torch.Tensor
) -> None:
    """Write which tokens each verify row sees into `mask` (flat; bool or uint8), in place.

    A row sees the request's prefix, its ancestors and itself. Requests of different lengths
    are packed one after the other, as SGLang's attention backends expect them.
    """
    if mask.is_cuda:
        from sglang.srt.speculative import ddtree_kernels

        ddtree_kernels.write_mask(
            tree.parents,
            seq_lens,
            int(seq_lens_cpu.max()),
            tree.max_depth,
            mask.view(torch.uint8),
        )
        return
    width, start = tree.parents.shape[1], 0
    for request, prefix in enumerate(seq_lens_cpu.tolist()):
        rows = mask[start : start + width * (prefix + width)].view(width, prefix + width)
        rows[:, :prefix] = True
        rows[:, prefix:] = ancestors(tree.parents[request])
        start += rows.numel()


def ancestors(parents: torch.Tensor) -> torch.Tensor:
    """[W, W] bool: whether column is the row's node or one of its ancestors."""
    width = parents.shape[0]
    seen = torch.eye(width, dtype=torch.bool)
    for node, parent in enumerate(parents.tolist()):
        if parent >= 0:  # parents come first, so their row is done
            seen[node] |= seen[parent]
    return seen


def walk_tree(tree: DraftTree, predicted: torch.Tensor) -> torch.Tensor:
    """Follow the target from the root; [B, 4 + 2 * (L + 1)] int32, as WalkResult unpacks it.

    Args:
        predicted: [B, W] the target's token after each node: its argmax, or one sample of
            its distribution there. A sample that equals a child's token is that child's
            acceptance, and one that does not is the bonus token; either way the token is a
            sample of the target's distribution, which is why the walk is exact.
    """
    if tree.tokens.is_cuda:
        from sglang.srt.speculative import ddtree_kernels

        return ddtree_kernels.walk_tree(
            tree.tokens, tree.parents, tree.depths, predicted, tree.max_depth
        )
    return _walk_plain(tree, predicted)


def _walk_plain(tree: DraftTree, predicted: torch.Tensor) -> torch.Tensor:
    batch, width = tree.tokens.shape
    steps = tree.max_depth + 1
    out = torch.full((batch, 4 + 2 * steps), -1, dtype=torch.int32)
    real = tree.parents >= 0
    out[:, 0] = 0
    out[:, 1] = real.sum(dim=1)
    out[:, 2] = tree.depths.max(dim=1).values
    out[:, 3] = tree.depths.sum(dim=1)
    current = torch.zeros((batch, 1), dtype=torch.int64)
    walking = torch.ones((batch, 1), dtype=torch.bool)
    for step in range(steps):
        wanted = predicted.gather(1, current)
        out[:, 4 + step] = torch.where(walking, current, -1).squeeze(1).to(torch.int32)
        out[:, 4 + steps + step] = torch.where(walking, wanted, -1).squeeze(1).to(torch.int32)
        match = (tree.parents == current) & (tree.tokens == wanted) & walking
        walking = match.any(dim=1, keepdim=True)
        current = torch.where(walking, match.to(torch.int32).argmax(dim=1, keepdim=True), current)
        out[:, 0] += walking.squeeze(1).to(torch.int32)
    return out


def to_device(array: np.ndarray, device: Optional[torch.device | str]) -> torch.Tensor:
    """Copy to `device` without waiting for it."""
    tensor = torch.from_numpy(array)
    if torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
