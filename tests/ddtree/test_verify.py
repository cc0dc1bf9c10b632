"""What a verify step does to requests and KV slots, against a reference that counts them."""

# mypy: ignore-errors
from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sglang.srt.layers.sampler import (
    sampling_from_probs_torch,
    top_k_top_p_min_p_sampling_from_probs_torch,
)
from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
from sglang.srt.speculative import ddtree_tree
from sglang.srt.speculative.ddtree_info import DDTreeVerifyInput, split_rows

VOCAB, DEPTH, FEATURES = 40, 7, 3


class Req:
    """The part of SGLang's request that a verify touches; finishes at a token or a length."""

    def __init__(self, length, stop_token=None, max_new=10**6):
        self.origin_input_ids = [1] * (length - 1)
        self.output_ids = [1]
        self.stop_token, self.max_new = stop_token, max_new
        self.require_reasoning = False
        self.kv_committed_len = self.kv_allocated_len = length - 1
        self.spec_verify_ct = self.spec_num_correct_drafts = 0
        self.histogram = []
        self._finished = False

    def check_finished(self):
        self._finished = (
            self.output_ids[-1] == self.stop_token or len(self.output_ids) > self.max_new
        )

    def finished(self):
        return self._finished

    def update_spec_correct_drafts_histogram(self, correct):
        self.histogram.append(correct)


class Sampler:
    """SGLang's torch sampling, as its Sampler calls it with the pytorch backend."""

    def _sample_from_probs(self, probs, info, positions, simple):
        if simple:
            return sampling_from_probs_torch(probs, sampling_seed=None, positions=positions)
        return top_k_top_p_min_p_sampling_from_probs_torch(
            probs,
            info.top_ks,
            info.top_ps,
            info.min_ps,
            info.need_min_p_sampling,
            info.sampling_seed,
            positions,
        )


class Pool:
    """A batch on a real allocator, and a reference: who owns which slot."""

    def __init__(self, lengths, width, size, row_length, **req):
        self.allocator = TokenToKVPoolAllocator(size, torch.float32, "cpu", None, False)
        self.freed = []
        free = self.allocator.free

        def counted(slots):
            self.freed += slots.tolist()
            free(slots)

        self.allocator.free = counted
        self.size, self.width = size, width
        bs = len(lengths)
        rows = torch.zeros((bs + 2, row_length), dtype=torch.int32)
        self.reqs = [Req(length + 1, **req) for length in lengths]
        self.batch = SimpleNamespace(
            reqs=self.reqs,
            batch_size=lambda: len(self.reqs),
            device="cpu",
            forward_mode=SimpleNamespace(is_idle=lambda: False),
            model_config=SimpleNamespace(think_end_id=None),
            req_to_token_pool=SimpleNamespace(req_to_token=rows),
            req_pool_indices=torch.arange(1, bs + 1),
            token_to_kv_pool_allocator=self.allocator,
            tree_cache=SimpleNamespace(
                token_to_kv_pool_allocator=self.allocator,
                is_chunk_cache=lambda: True,
                available_and_evictable_str=lambda: "",
                pretty_print=lambda: None,
            ),
            seq_lens=torch.tensor(lengths),
            seq_lens_cpu=torch.tensor(lengths),
            seq_lens_sum=sum(lengths),
            sampling_info=greedy(bs),
            out_cache_loc=None,
            input_ids=None,
        )
        for i, length in enumerate(lengths):
            rows[i + 1, :length] = self.allocator.alloc(length).to(torch.int32)

    def owned(self):
        """Slots of committed tokens, by request."""
        rows = self.batch.req_to_token_pool.req_to_token
        return [rows[i + 1, : r.kv_committed_len].tolist() for i, r in enumerate(self.reqs)]

    def check(self):
        """Every slot has exactly one owner: a request's row, or the free list."""
        owned = list(itertools.chain.from_iterable(self.owned()))
        free = self.allocator.free_pages.tolist()
        assert sorted(owned + free) == list(range(1, self.size + 1))
        assert [r.kv_committed_len for r in self.reqs] == self.batch.seq_lens.tolist()
        assert [r.kv_allocated_len for r in self.reqs] == self.batch.seq_lens.tolist()
        assert self.batch.seq_lens_cpu.tolist() == self.batch.seq_lens.tolist()
        assert self.batch.seq_lens_sum == sum(self.batch.seq_lens.tolist())
        for req in self.reqs:
            # All but the last token of a request have KV.
            tokens = len(req.origin_input_ids) + len(req.output_ids)
            assert req.kv_committed_len == tokens - 1


def greedy(bs):
    return SimpleNamespace(
        is_all_greedy=True,
        logit_bias=None,
        temperatures=torch.ones((bs, 1)),
        top_ks=torch.ones(bs, dtype=torch.int32),
        top_ps=torch.ones(bs),
        min_ps=torch.zeros(bs),
        need_top_k_sampling=True,
        need_top_p_sampling=False,
        need_min_p_sampling=False,
    )


def step(pool, rng, budget, *, agree=0.8):
    """Build, prepare and verify once; returns the input and what the logits led to."""
    batch, bs = pool.batch, len(pool.reqs)
    logits = rng.normal(size=(bs, DEPTH, VOCAB)).astype(np.float32) * 4
    values, ids = torch.topk(torch.log_softmax(torch.from_numpy(logits), -1), min(budget, VOCAB))
    roots = torch.tensor([req.output_ids[-1] for req in pool.reqs])
    tree = ddtree_tree.build_tree(values, ids, roots, batch.seq_lens, budget)
    verify = DDTreeVerifyInput.from_tree(tree, Sampler(), None)
    lens_before = batch.seq_lens.clone()
    verify.prepare_for_tree_verify(batch, None)
    rows = batch.req_to_token_pool.req_to_token
    for i in range(bs):
        start = int(lens_before[i])
        given = batch.out_cache_loc.view(bs, -1)[i].to(torch.int32)
        assert torch.equal(rows[i + 1, start : start + budget + 1], given)
    target = torch.from_numpy(rng.normal(size=(bs, budget + 1, VOCAB)).astype(np.float32))
    for i in range(bs):
        for node in range(budget, 0, -1):
            parent = int(tree.parents[i, node])
            if parent >= 0 and rng.random() < agree:
                target[i, parent] = -5.0
                target[i, parent, tree.tokens[i, node]] = 9.0
    hidden = torch.arange(bs * (budget + 1) * FEATURES, dtype=torch.float32).view(-1, FEATURES)
    slots_given = batch.out_cache_loc.view(bs, -1).clone()
    output = SimpleNamespace(next_token_logits=target.view(-1, VOCAB), hidden_states=hidden.clone())
    before = [list(req.output_ids) for req in pool.reqs]
    pool.freed.clear()
    next_roots, commit_lens, next_hidden, correct = verify.verify(
        batch=batch, logits_output=output, page_size=1
    )

    predicted = target.argmax(-1)
    flat, start = 0, 0
    for i, req in enumerate(pool.reqs):
        walked, path = verify.walked, []
        taken = req.output_ids[len(before[i]) :]
        assert len(taken) == int(commit_lens[i]) == correct[i] + 1
        node = 0
        for token in taken:  # every token is the target's after the tokens before it
            path.append(node)
            assert token == int(predicted[i, node])
            children = [
                n
                for n in range(1, budget + 1)
                if tree.parents[i, n] == node and tree.tokens[i, n] == token
            ]
            node = children[0] if children else -1
        if not req.finished():
            assert node == -1  # it went as far as the tree goes
            assert int(walked.accepted[i]) == correct[i]
        committed = rows[i + 1, int(lens_before[i]) : int(batch.seq_lens[i])]
        assert torch.equal(committed, slots_given[i, path].to(torch.int32))
        kept = [i * (budget + 1) + n for n in path]
        assert torch.equal(next_hidden[flat : flat + len(path)], hidden[kept])
        positions = verify.committed_positions[flat : flat + len(path)].tolist()
        assert positions == list(range(int(lens_before[i]), int(batch.seq_lens[i])))
        flat += len(path)
        start += len(path)
        assert int(next_roots[i]) == req.output_ids[-1]
        assert req.histogram[-1] == correct[i]
    assert flat == len(batch.out_cache_loc) == len(next_hidden)
    # What is not kept is freed, each slot once.
    assert len(set(pool.freed)) == len(pool.freed)
    kept = batch.out_cache_loc.tolist()
    assert sorted(pool.freed + kept) == sorted(slots_given.flatten().tolist())
    pool.check()
    return verify, correct


@pytest.mark.parametrize("budget", [1, 4, 16, 32])
@pytest.mark.parametrize("lengths", [[5], [3, 17, 1, 9]])
def test_no_slot_is_lost_or_freed_twice(budget, lengths):
    rng = np.random.default_rng(budget)
    pool = Pool(lengths, budget + 1, 2000, 400)
    pool.check()
    accepted = []
    for _ in range(15):
        accepted += step(pool, rng, budget)[1]
    assert max(accepted) >= min(2, budget)
    assert [req.spec_verify_ct for req in pool.reqs] == [15] * len(lengths)
    total = sum(req.spec_num_correct_drafts for req in pool.reqs)
    assert total == sum(accepted)


def test_a_request_that_finishes_in_mid_path_keeps_no_more_than_it_took():
    rng = np.random.default_rng(1)
    clipped = 0
    for _ in range(60):
        pool = Pool([6, 4], 17, 200, 100, max_new=int(rng.integers(1, 5)))
        verify, correct = step(pool, rng, 16, agree=0.95)
        for i, req in enumerate(pool.reqs):
            if req.finished():
                assert len(req.output_ids) == req.max_new + 1
                clipped += int(verify.walked.accepted[i]) > correct[i]
    assert clipped > 10


def test_a_stop_token_inside_the_path_is_the_last():
    rng = np.random.default_rng(2)
    stopped = 0
    for _ in range(80):
        pool = Pool([6], 17, 200, 100, stop_token=int(rng.integers(0, VOCAB)))
        step(pool, rng, 16, agree=0.95)
        req = pool.reqs[0]
        if req.finished():
            stopped += 1
            assert req.output_ids.index(req.stop_token) == len(req.output_ids) - 1
    assert stopped > 3


def test_a_pool_with_room_for_one_tree_more_is_enough_and_one_slot_less_is_refused():
    lengths, budget = [10, 20], 8
    need = sum(lengths) + 2 * (budget + 1)
    step(Pool(lengths, budget + 1, need, 100), np.random.default_rng(0), budget)
    pool = Pool(lengths, budget + 1, need - 1, 100)
    with pytest.raises(RuntimeError, match="Out of memory"):
        step(pool, np.random.default_rng(0), budget)


def test_the_last_step_before_the_context_limit_stays_in_its_row():
    """A row has the context's length and 4 + verify width of slack; the next row is another's."""
    context, budget = 50, 32
    pool = Pool([context - 1, context - 1], budget + 1, 400, context + 4 + budget + 1)
    rows = pool.batch.req_to_token_pool.req_to_token
    step(pool, np.random.default_rng(0), budget)
    assert rows[0].eq(0).all()
    assert rows[3].eq(0).all()


def test_rows_kept_and_dropped():
    path = np.array([[0, 2, 5, -1], [0, -1, -1, -1]], dtype=np.int32)
    kept, dropped = split_rows(path, np.array([3, 1]), 6)
    assert kept.tolist() == [0, 2, 5, 6]
    assert dropped.tolist() == [1, 3, 4, 7, 8, 9, 10, 11]


def test_the_mask_goes_into_the_graphs_buffer_where_it_fits():
    pool = Pool([3, 5], 5, 100, 60)
    buffer = torch.full((5 * (3 + 5 + 5 + 5),), 9, dtype=torch.uint8)
    tree = ddtree_tree.build_tree(
        torch.zeros((2, 2, 2)), torch.arange(8).view(2, 2, 2), torch.ones(2), pool.batch.seq_lens, 4
    )
    verify = DDTreeVerifyInput.from_tree(tree, None, None)
    verify.prepare_for_tree_verify(pool.batch, buffer)
    assert verify.custom_mask.data_ptr() == buffer.data_ptr()
    assert set(buffer.tolist()) == {0, 1}
    again = DDTreeVerifyInput.from_tree(tree, None, None)
    again.prepare_for_tree_verify(pool.batch, buffer[:-1])
    assert again.custom_mask.data_ptr() != buffer.data_ptr()
    assert torch.equal(again.custom_mask, buffer.bool())


def sampling(bs, temperature=1.0, top_k=1 << 30, top_p=1.0, min_p=0.0):
    return SimpleNamespace(
        is_all_greedy=False,
        logit_bias=None,
        temperatures=torch.full((bs, 1), temperature),
        top_ks=torch.full((bs,), top_k, dtype=torch.int32),
        top_ps=torch.full((bs,), top_p),
        min_ps=torch.full((bs,), min_p),
        need_top_k_sampling=top_k != 1 << 30,
        need_top_p_sampling=top_p != 1.0,
        need_min_p_sampling=min_p > 0.0,
    )


def target_tokens(info, logits, width, bs):
    verify = DDTreeVerifyInput(
        draft_token=torch.zeros(bs * width),
        positions=torch.zeros(bs * width, dtype=torch.int64),
        draft_token_num=width,
        sampler=Sampler(),
    )
    batch = SimpleNamespace(reqs=[None] * bs, sampling_info=info)
    return verify._target_tokens(batch, logits)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1.0},
        {"temperature": 0.5},
        {"top_k": 5},
        {"top_p": 0.7},
        {"min_p": 0.2},
        {"temperature": 1.5, "top_k": 8, "top_p": 0.8},
    ],
)
def test_each_nodes_token_is_a_sample_of_the_targets_distribution(options):
    """Chi-square against the filtered, renormalised probabilities."""
    from scipy import stats

    torch.manual_seed(0)
    width, vocab, draws = 3, 12, 6000
    logits = torch.randn(width, vocab)
    info = sampling(draws, **options)
    tokens = target_tokens(info, logits.repeat(draws, 1), width, draws)
    for node in range(width):
        probs = torch.softmax(logits[node] / options.get("temperature", 1.0), -1)
        order = torch.argsort(probs, descending=True)
        sorted_probs = probs[order]
        keep = torch.arange(vocab) < options.get("top_k", vocab)
        keep &= (torch.cumsum(sorted_probs, 0) - sorted_probs) <= options.get("top_p", 1.0)
        keep &= sorted_probs >= sorted_probs[0] * options.get("min_p", 0.0)
        expected = torch.zeros(vocab, dtype=torch.float64)
        expected[order[keep]] = sorted_probs[keep].double()
        expected /= expected.sum()
        observed = torch.bincount(tokens[:, node], minlength=vocab)
        assert observed[expected == 0].sum() == 0
        support = expected > 0
        result = stats.chisquare(observed[support], (expected[support] * draws))
        assert result.pvalue > 1e-4


def test_greedy_requests_of_a_mixed_batch_take_the_argmax():
    info = sampling(4, temperature=1.0)
    info.top_ks[::2] = 1
    info.need_top_k_sampling = True
    logits = torch.randn(4 * 5, VOCAB)
    logits[:, 3] = logits[:, 30] = 6.0  # a tie, whose first is the argmax
    tokens = target_tokens(info, logits, 5, 4)
    assert tokens[::2].eq(3).all()


def test_logit_bias_reaches_every_node():
    info = greedy(2)
    info.logit_bias = torch.zeros((2, VOCAB))
    info.logit_bias[1, 7] = 100.0
    logits = torch.randn(2 * 5, VOCAB)
    tokens = target_tokens(info, logits, 5, 2)
    assert tokens[1].eq(7).all()
    assert torch.equal(tokens[0], logits[:5].argmax(-1))


def test_sampled_tokens_are_those_of_rank_zero():
    calls = []
    verify = DDTreeVerifyInput(
        draft_token=torch.zeros(4),
        positions=torch.zeros(4, dtype=torch.int64),
        draft_token_num=2,
        sampler=Sampler(),
        tp_group=SimpleNamespace(broadcast=lambda tokens, src: calls.append(src)),
    )
    batch = SimpleNamespace(reqs=[None] * 2, sampling_info=sampling(2))
    verify._target_tokens(batch, torch.randn(4, VOCAB))
    batch.sampling_info = greedy(2)
    verify._target_tokens(batch, torch.randn(4, VOCAB))
    assert calls == [0]


def test_verify_insists_on_pages_of_one_token():
    pool = Pool([3], 5, 50, 60)
    verify = DDTreeVerifyInput(torch.zeros(5), torch.zeros(5), 5)
    with pytest.raises(RuntimeError, match="page size 1"):
        verify.verify(batch=pool.batch, logits_output=None, page_size=16)
