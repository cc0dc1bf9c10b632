"""The search against an exhaustive oracle, and what follows from its order."""

# mypy: ignore-errors
from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang.srt.speculative import ddtree_kernels, ddtree_tree

KINDS = ("flat", "peaked", "mixed", "ties")


def table(rng, depth, ranks, kind):
    """Log-probabilities [depth, ranks] float32, descending. Ties are exact: quarters add up."""
    scale = {"flat": 0.05, "peaked": 5.0, "mixed": 2.0, "ties": 1.0}[kind]
    logits = rng.normal(size=(depth, ranks)) * scale
    logprobs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    if kind == "ties":
        logprobs = np.round(logprobs * 2) / 4
    return -np.sort(-logprobs.astype(np.float32), axis=1)


def all_prefixes(logprobs):
    """Every prefix of ranks and its score, in float64."""
    depth, ranks = logprobs.shape
    for length in range(1, depth + 1):
        for prefix in itertools.product(range(ranks), repeat=length):
            yield prefix, sum(float(logprobs[d, r]) for d, r in enumerate(prefix))


def paths(nodes):
    """Each node's ranks from the root, as the search's (parent, depth, rank) say."""
    found = [()]
    for parent, depth, rank in nodes:
        found.append((*found[parent], rank))
        assert len(found[-1]) == depth
    return found[1:]


def check_against_oracle(logprobs, budget):
    nodes = ddtree_tree.search(logprobs, budget)
    ours = paths(nodes)
    scores = dict(all_prefixes(logprobs))
    assert len(set(ours)) == len(ours) == min(budget, len(scores))
    assert set(ours) <= set(scores)
    # The B best prefixes maximise the expected accept length; ties leave the sum as it is.
    best = sorted((np.exp(s) for s in scores.values()), reverse=True)[:budget]
    assert sum(np.exp(scores[p]) for p in ours) == pytest.approx(sum(best), rel=1e-5)
    # Closed under prefixes, parents first.
    for number, (parent, _, _) in enumerate(nodes, start=1):
        assert 0 <= parent < number
    # Pop order never rises by more than float32 rounding.
    popped = [scores[p] for p in ours]
    assert all(b <= a + 1e-5 for a, b in itertools.pairwise(popped))


@pytest.mark.parametrize("kind", KINDS)
def test_search_equals_the_exhaustive_oracle(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(700):
        depth, ranks = int(rng.integers(1, 5)), int(rng.integers(1, 5))
        budget = int(rng.choice([1, 2, 3, 5, 8, 16, 33]))
        check_against_oracle(table(rng, depth, ranks, kind), budget)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 3).flatmap(
        lambda ranks: st.lists(
            st.lists(st.integers(-8, 0).map(lambda q: q / 4), min_size=ranks, max_size=ranks),
            min_size=1,
            max_size=4,
        )
    ),
    st.integers(1, 12),
)
def test_search_on_any_table_of_quarters(rows, budget):
    logprobs = -np.sort(-np.asarray(rows, dtype=np.float32), axis=1)
    check_against_oracle(logprobs, budget)


def test_equal_scores_go_to_the_earlier_parent_and_then_the_lower_rank():
    # All four tokens of depth 1 and both of depth 2 have score 0.
    nodes = ddtree_tree.search(np.zeros((2, 2), dtype=np.float32), 6)
    assert nodes == [(0, 1, 0), (0, 1, 1), (1, 2, 0), (1, 2, 1), (2, 2, 0), (2, 2, 1)]


def test_the_best_tree_need_not_hold_the_chain_and_the_seed_puts_it_there():
    logprobs = np.log(np.full((7, 32), 1 / 32, dtype=np.float32))
    plain, seeded = ddtree_tree.search(logprobs, 32), ddtree_tree.search(logprobs, 32, True)
    assert max(depth for _, depth, _ in plain) == 1
    assert seeded[:7] == [(d, d + 1, 0) for d in range(7)]
    assert len(set(paths(seeded))) == 32


def trees(batch, depth, ranks, budget, kind, seed, *, chain_seed=False):
    rng = np.random.default_rng(seed)
    logprobs = torch.from_numpy(np.stack([table(rng, depth, ranks, kind) for _ in range(batch)]))
    ids = torch.from_numpy(
        np.stack([[rng.permutation(500)[:ranks] for _ in range(depth)] for _ in range(batch)])
    )
    roots = torch.from_numpy(rng.integers(0, 500, batch))
    seq_lens = torch.from_numpy(rng.integers(1, 60, batch))
    inputs = (logprobs, ids, roots, seq_lens)
    return inputs, ddtree_tree.build_tree(*inputs, budget, chain_seed)


@pytest.mark.parametrize("budget", [1, 3, 8, 32])
def test_build_fills_every_row(budget):
    (_, ids, roots, seq_lens), tree = trees(3, 7, min(budget, 6), budget, "mixed", budget)
    assert torch.equal(tree.tokens[:, 0], roots)
    assert torch.equal(tree.positions, seq_lens[:, None] + tree.depths)
    for request in range(3):
        for node in range(1, budget + 1):
            depth, token = int(tree.depths[request, node]), tree.tokens[request, node]
            assert token in ids[request, depth - 1]
            parent = int(tree.parents[request, node])
            assert tree.depths[request, parent] == depth - 1


def test_fewer_prefixes_than_the_budget_leave_padding_that_nothing_reaches():
    (_, _, roots, seq_lens), tree = trees(2, 3, 1, 8, "mixed", 0)
    assert tree.parents.tolist() == [[-1, 0, 1, 2, -1, -1, -1, -1, -1]] * 2
    assert torch.equal(tree.tokens[:, 4:], roots[:, None].expand(2, 5))
    assert torch.equal(tree.positions[:, 4:], seq_lens[:, None].expand(2, 5))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("depth", "ranks", "budget"), [(7, 8, 8), (1, 5, 4), (3, 1, 6), (15, 4, 17)]
)
@pytest.mark.parametrize("chain_seed", [False, True])
def test_the_kernel_builds_the_same_tree(kind, depth, ranks, budget, chain_seed):
    inputs, plain = trees(2, depth, ranks, budget, kind, 11, chain_seed=chain_seed)
    logprobs, ids, roots, seq_lens = inputs
    # As the worker has them: the first column of the blocks.
    strided = roots[:, None].repeat(1, 8)[:, 0]
    assert strided.stride(0) == 8
    built = ddtree_kernels.build_tree(logprobs, ids, strided, seq_lens, budget + 1, chain_seed)
    for name, ours in zip(("tokens", "parents", "depths", "positions"), built, strict=True):
        assert torch.equal(ours, getattr(plain, name)), name


def test_a_chain_of_width_one_is_dflash():
    """With one child a node the walk accepts what DFLASH accepts, for every agreement."""
    from sglang.srt.speculative.dflash_utils import compute_dflash_correct_drafts_and_bonus

    for seed in range(200):
        rng = np.random.default_rng(seed)
        _, tree = trees(4, 7, 1, 7, "mixed", seed)
        predicted = torch.from_numpy(rng.integers(0, 500, (4, 8)))
        agreeing = torch.from_numpy(rng.random((4, 7)) < 0.8)
        predicted[:, :-1] = torch.where(agreeing, tree.tokens[:, 1:], predicted[:, :-1])
        correct, bonus = compute_dflash_correct_drafts_and_bonus(
            candidates=tree.tokens, target_predict=predicted
        )
        walked = ddtree_tree.WalkResult.unpack(ddtree_tree.walk_tree(tree, predicted).numpy())
        assert walked.accepted.tolist() == correct.tolist()
        taken = walked.output[np.arange(4), walked.accepted]
        assert taken.tolist() == bonus.tolist()
