"""Which rows see which, and where the target leads, against oracles that follow paths."""

# mypy: ignore-errors
from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from sglang.srt.speculative import ddtree_kernels, ddtree_tree
from sglang.srt.speculative.ddtree_tree import DraftTree, WalkResult


def random_tree(rng, batch, width, depth, vocab=50):
    """Any trees, not only best ones: parents first, siblings of distinct tokens, padding."""
    tokens = torch.from_numpy(rng.integers(0, vocab, (batch, width)))
    parents = torch.full((batch, width), -1, dtype=torch.int32)
    depths = torch.zeros((batch, width), dtype=torch.int32)
    for request in range(batch):
        real = int(rng.integers(1, width + 1))
        for node in range(1, real):
            open_nodes = [n for n in range(node) if depths[request, n] < depth]
            parent = int(rng.choice(open_nodes))
            taken = {
                int(tokens[request, n]) for n in range(1, node) if parents[request, n] == parent
            }
            free = [t for t in range(vocab) if t not in taken]
            tokens[request, node] = int(rng.choice(free))
            parents[request, node] = parent
            depths[request, node] = depths[request, parent] + 1
    return DraftTree(tokens, parents, depths, depths.to(torch.int64), depth)


def ancestry(tree, request, node):
    """The node and its ancestors, by following parents."""
    seen = []
    while node >= 0:
        seen.append(node)
        node = int(tree.parents[request, node])
    return set(seen)


@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("lens", [[5], [1, 30, 7], [64, 1, 2, 3]])
def test_mask_is_prefix_ancestors_and_self(kernel, lens):
    rng = np.random.default_rng(len(lens))
    width, depth = 9, 4
    tree = random_tree(rng, len(lens), width, depth)
    seq_lens = torch.tensor(lens)
    size = ddtree_tree.mask_size(len(lens), width, sum(lens))
    if kernel:
        mask = torch.full((size + 8,), 7, dtype=torch.uint8)
        ddtree_kernels.write_mask(tree.parents, seq_lens, max(lens), depth, mask)
        assert mask[size:].tolist() == [7] * 8  # packed, and nothing past the end
        mask = mask[:size].bool()
    else:
        mask = torch.zeros(size, dtype=torch.bool)
        ddtree_tree.write_mask(tree, seq_lens, seq_lens, mask)
    start = 0
    for request, prefix in enumerate(lens):
        for node in range(width):
            row = mask[start : start + prefix + width].tolist()
            start += prefix + width
            expected = ancestry(tree, request, node)
            assert row[:prefix] == [True] * prefix
            assert {column for column, seen in enumerate(row[prefix:]) if seen} == expected
    assert start == size


def walk_oracle(tree, request, predicted):
    """All paths whose every token is the target's after its parent; the longest, and its end."""
    width = tree.tokens.shape[1]
    reached = {0: [0]}
    for node in range(1, width):
        parent = int(tree.parents[request, node])
        if parent in reached and tree.tokens[request, node] == predicted[request, parent]:
            reached[node] = [*reached[parent], node]
    path = max(reached.values(), key=len)
    assert sum(len(other) == len(path) for other in reached.values()) == 1
    output = [int(tree.tokens[request, n]) for n in path[1:]]
    return path, [*output, int(predicted[request, path[-1]])]


def agreeing_predictions(rng, tree, vocab=50):
    batch, width = tree.tokens.shape
    predicted = torch.from_numpy(rng.integers(0, vocab, (batch, width)))
    for request in range(batch):
        for node in range(width):
            children = [n for n in range(1, width) if tree.parents[request, n] == node]
            if children and rng.random() < 0.75:
                predicted[request, node] = tree.tokens[request, int(rng.choice(children))]
    return predicted


def check_walk(tree, predicted, walked):
    for request in range(tree.tokens.shape[0]):
        path, output = walk_oracle(tree, request, predicted)
        taken = walked.accepted[request] + 1
        assert walked.path[request][:taken].tolist() == path
        assert walked.output[request][:taken].tolist() == output
        assert set(walked.path[request][taken:]) <= {-1}
        assert walked.nodes[request] == int((tree.parents[request] >= 0).sum())
        assert walked.depth_max[request] == int(tree.depths[request].max())
        assert walked.depth_sum[request] == int(tree.depths[request].sum())


def test_walk_against_all_paths():
    rng = np.random.default_rng(3)
    for _ in range(300):
        width, depth = int(rng.integers(2, 34)), int(rng.integers(1, 8))
        tree = random_tree(rng, 3, width, depth)
        predicted = agreeing_predictions(rng, tree)
        packed = ddtree_tree.walk_tree(tree, predicted)
        check_walk(tree, predicted, WalkResult.unpack(packed.numpy()))


def test_the_kernel_walks_the_same_path():
    rng = np.random.default_rng(4)
    for _ in range(12):
        width, depth = int(rng.integers(2, 20)), int(rng.integers(1, 8))
        tree = random_tree(rng, 2, width, depth)
        predicted = agreeing_predictions(rng, tree)
        packed = ddtree_kernels.walk_tree(tree.tokens, tree.parents, tree.depths, predicted, depth)
        check_walk(tree, predicted, WalkResult.unpack(packed.numpy()))


def test_a_walk_on_samples_is_distributed_as_the_target():
    """Chi-square over whole continuations: sampling at each node leaves no trace of the tree.

    A target of three tokens whose distribution depends on all tokens so far; the first three
    tokens of a continuation, through steps of whatever tree, against their exact probability.
    """
    rng = np.random.default_rng(5)
    vocab, length, draws = 3, 3, 20000

    def target(context):
        weights = np.random.default_rng([9, *context]).random(vocab) + 0.05
        return weights / weights.sum()

    tree = random_tree(rng, 1, 9, 3, vocab)
    counts: dict[tuple[int, ...], int] = {}
    contexts = [
        tuple(int(tree.tokens[0, n]) for n in sorted(ancestry(tree, 0, node)) if n > 0)
        for node in range(9)
    ]
    # One step a draw: every node's sample at once, as the verify does.
    samples = np.stack(
        [rng.choice(vocab, size=draws, p=target(context)) for context in contexts], axis=1
    )
    batched = DraftTree(
        tree.tokens.expand(draws, -1),
        tree.parents.expand(draws, -1),
        tree.depths.expand(draws, -1),
        tree.positions.expand(draws, -1),
        tree.max_depth,
    )
    walked = WalkResult.unpack(ddtree_tree.walk_tree(batched, torch.from_numpy(samples)).numpy())
    for draw in range(draws):
        output = walked.output[draw, : walked.accepted[draw] + 1].tolist()[:length]
        while len(output) < length:  # the next steps, without a tree
            output.append(int(rng.choice(vocab, p=target(output))))
        counts[tuple(output)] = counts.get(tuple(output), 0) + 1
    expected, observed = [], []
    for first in range(vocab):
        for second in range(vocab):
            for third in range(vocab):
                probability = (
                    target(())[first] * target((first,))[second] * target((first, second))[third]
                )
                expected.append(probability * draws)
                observed.append(counts.get((first, second, third), 0))
    assert stats.chisquare(observed, expected).pvalue > 1e-3
