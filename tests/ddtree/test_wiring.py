"""Widths, refusals, vocabulary shards, metrics: what holds DDTREE and SGLang together."""

# mypy: ignore-errors
from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.managers.utils import get_alloc_len_per_decode
from sglang.srt.model_executor.cuda_graph_runner import _grouped_foreach_copy_
from sglang.srt.speculative import ddtree_marginals, ddtree_top_k, ddtree_utils
from sglang.srt.speculative.ddtree_metrics import DDTreeMetrics
from sglang.srt.speculative.ddtree_utils import (
    refuse_ddtree_request,
    reserved_width,
    resolve_ddtree_server_args,
    unsupported_model,
    verify_width,
)
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_registry import CustomSpecAlgo, register_algorithm


def model(**text):
    text_config = SimpleNamespace(**{"model_type": "qwen3", **text})
    hf_config = SimpleNamespace(architectures=["M"], get_text_config=lambda: text_config)
    return SimpleNamespace(
        hf_config=hf_config, sliding_window_size=text.get("sliding_window"), is_hybrid_swa=False
    )


def arguments(**changed):
    """The arguments that DDTREE reads, as they are after the DFLASH part of them."""
    config = changed.pop("model", model())
    backends = changed.pop("backends", ("triton", "triton"))
    return SimpleNamespace(
        **{
            "speculative_algorithm": "DDTREE",
            "speculative_ddtree_budget": 32,
            "speculative_ddtree_topk": None,
            "speculative_ddtree_chain_seed": False,
            "speculative_num_draft_tokens": 8,
            "speculative_num_steps": 1,
            "speculative_eagle_topk": 1,
            "speculative_accept_threshold_single": 1.0,
            "speculative_accept_threshold_acc": 1.0,
            "page_size": 1,
            "enable_dp_attention": False,
            "pp_size": 1,
            "disable_overlap_schedule": True,
            "disaggregation_mode": "null",
            "enable_two_batch_overlap": False,
            "enable_pdmux": False,
            "enable_deterministic_inference": False,
            "get_attention_backends": lambda: backends,
            "get_model_config": lambda: config,
            **changed,
        }
    )


@pytest.mark.parametrize(
    ("algorithm", "is_draft_worker", "width"),
    [
        ("DDTREE", False, 33),
        ("DDTREE", True, 8),
        ("DFLASH", False, 8),
        ("DFLASH", True, 8),
        ("EAGLE", False, 8),
    ],
)
def test_verify_width_of_target_and_draft(algorithm, is_draft_worker, width):
    assert verify_width(arguments(speculative_algorithm=algorithm), is_draft_worker) == width


def test_no_width_without_speculation():
    args = arguments(speculative_algorithm=None, speculative_num_draft_tokens=None)
    assert verify_width(args) is None
    assert reserved_width(args) is None


@pytest.mark.parametrize(("budget", "width"), [(1, 8), (6, 8), (7, 8), (8, 9), (32, 33)])
def test_a_step_holds_the_larger_of_block_and_tree(budget, width):
    assert reserved_width(arguments(speculative_ddtree_budget=budget)) == width
    assert reserved_width(arguments(speculative_algorithm="DFLASH")) == 8


def test_scheduler_reserves_the_verify_width(monkeypatch):
    args = arguments()
    monkeypatch.setattr("sglang.srt.managers.schedule_batch.get_global_server_args", lambda: args)
    batch = SimpleNamespace(
        token_to_kv_pool_allocator=SimpleNamespace(page_size=1),
        reqs=[None] * 3,
        spec_algorithm=SpeculativeAlgorithm.DDTREE,
        is_spec_v2=False,
    )
    assert ScheduleBatch.new_tokens_required_next_decode(batch) == 3 * 33
    assert get_alloc_len_per_decode(args) == 33
    # The draft takes its block of 8 first, however small the tree.
    args.speculative_ddtree_budget = 1
    assert ScheduleBatch.new_tokens_required_next_decode(batch) == 3 * 8
    assert get_alloc_len_per_decode(args) == 8


def test_ddtree_is_dflash_to_everyone_else():
    algorithm = SpeculativeAlgorithm.from_string("ddtree")
    assert algorithm.is_ddtree()
    assert algorithm.is_dflash()
    assert algorithm.is_speculative()
    assert not algorithm.is_eagle()
    assert not algorithm.supports_spec_v2()
    assert not SpeculativeAlgorithm.DFLASH.is_ddtree()
    assert not CustomSpecAlgo("X", None).is_ddtree()
    with pytest.raises(ValueError, match="reserved"):
        register_algorithm("DDTREE")
    with pytest.raises(ValueError, match="overlap"):
        algorithm.create_worker(SimpleNamespace(disable_overlap_schedule=False))
    worker = algorithm.create_worker(SimpleNamespace(disable_overlap_schedule=True))
    assert worker.__name__ == "DDTreeWorker"


def test_the_budget_has_a_default():
    args = arguments(speculative_ddtree_budget=None)
    resolve_ddtree_server_args(args)
    assert args.speculative_ddtree_budget == ddtree_utils.DEFAULT_BUDGET


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"speculative_ddtree_budget": 0}, "budget must be in"),
        ({"speculative_ddtree_budget": 1024}, "budget must be in"),
        ({"speculative_ddtree_topk": 0}, "topk must be at least 1"),
        ({"speculative_num_draft_tokens": 1}, "at least 2"),
        ({"speculative_accept_threshold_acc": 0.9}, "no relaxed acceptance"),
        ({"backends": ("fa3", "fa3")}, "prefill backend is fa3"),
        ({"backends": ("triton", "flashinfer")}, "decode backend is flashinfer"),
        ({"page_size": 64}, "page-size must be 1"),
        ({"enable_dp_attention": True}, "DP attention"),
        ({"pp_size": 2}, "pipeline parallelism"),
        ({"disable_overlap_schedule": False}, "overlap scheduler"),
        ({"disaggregation_mode": "decode"}, "PD disaggregation"),
        ({"enable_deterministic_inference": True}, "deterministic inference"),
        ({"model": model(layer_types=["linear_attention"])}, "recurrent layers"),
        ({"model": model(linear_attn_config={"kda_layers": [1]})}, "recurrent layers"),
        ({"model": model(layer_types=["sliding_attention"])}, "sliding-window"),
        ({"model": model(sliding_window=4096)}, "sliding-window"),
        ({"speculative_algorithm": "DFLASH"}, "needs --speculative-algorithm DDTREE"),
    ],
)
def test_what_cannot_be_right_is_refused_at_once(changed, message):
    with pytest.raises(ValueError, match=message):
        resolve_ddtree_server_args(arguments(**changed))


def test_a_window_that_is_switched_off_is_none():
    off = model(sliding_window=4096, use_sliding_window=False, layer_types=["full_attention"])
    assert unsupported_model(off) is None


def test_other_algorithms_are_left_alone():
    args = arguments(speculative_algorithm="EAGLE", speculative_ddtree_budget=None)
    args.pp_size = 8
    resolve_ddtree_server_args(args)


def request(**changed):
    params = {
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "repetition_penalty": 1.0,
        "min_new_tokens": 0,
    }
    top = {"custom_logit_processor": None, "return_hidden_states": False}
    for name, value in changed.items():
        (params if name in params else top)[name] = value
    return SimpleNamespace(sampling_params=SimpleNamespace(**params), **top)


@pytest.mark.parametrize(
    "changed",
    [
        {"frequency_penalty": 0.5},
        {"presence_penalty": -0.5},
        {"repetition_penalty": 1.1},
        {"min_new_tokens": 4},
        {"custom_logit_processor": "x"},
        {"return_hidden_states": True},
    ],
)
def test_what_a_tree_cannot_honour_is_refused_by_name(changed):
    assert refuse_ddtree_request(request()) is None
    assert next(iter(changed)) in refuse_ddtree_request(request(**changed))


@pytest.mark.parametrize("batch", [1, 2])
def test_the_incident_in_one_call(batch):
    """A graph captured for 8 tokens a request cannot take 33, and takes them when it has 33."""
    source = torch.arange(33 * batch)
    message = rf"tensor a \({8 * batch}\) must match the size of tensor b \({33 * batch}\)"
    with pytest.raises(RuntimeError, match=message):
        _grouped_foreach_copy_([torch.zeros(64 * batch, dtype=torch.int64)[: 8 * batch]], [source])
    target = torch.zeros(64 * batch, dtype=torch.int64)
    _grouped_foreach_copy_([target[: 33 * batch]], [source])
    assert torch.equal(target[: 33 * batch], source)


class Group:
    """Tensor-parallel ranks in turn: what each sends is what all gather."""

    def __init__(self, packed):
        self.packed, self.world_size = packed, len(packed)

    def all_gather(self, mine, dim):
        return torch.cat(self.packed, dim=dim)


def heads(vocab, added, ranks, hidden=6, padding=4):
    """A head of `vocab` + `added` rows split over ranks as SGLang splits it: padded shards."""
    torch.manual_seed(vocab + added + ranks)
    weight = torch.randn(vocab + added, hidden)
    shards = []
    for rank in range(ranks):
        org = range(rank * vocab // ranks, (rank + 1) * vocab // ranks)
        extra = range(vocab + rank * added // ranks, vocab + (rank + 1) * added // ranks)
        pad = torch.full((padding, hidden), 1e4)  # would win if it took part
        rows = torch.cat([weight[list(org)], pad, weight[list(extra)], pad])
        indices = SimpleNamespace(
            num_org_elements=len(org),
            num_org_elements_padded=len(org) + padding,
            num_added_elements=len(extra),
            org_vocab_start_index=org.start,
            added_vocab_start_index=extra.start,
        )
        shards.append(SimpleNamespace(weight=rows, shard_indices=indices))
    return weight, shards


@pytest.mark.parametrize("added", [0, 5])
@pytest.mark.parametrize(("vocab", "ranks", "k"), [(50, 1, 8), (50, 2, 8), (50, 8, 16), (9, 4, 9)])
def test_vocabulary_shards_merged_equal_the_whole(vocab, added, ranks, k):
    weight, shards = heads(vocab, added, ranks)
    hidden = torch.randn(7, weight.shape[1])
    sent = []

    class Recorder:
        world_size = 2

        def all_gather(self, mine, dim):
            sent.append(mine)
            return torch.cat([mine, mine], dim=dim)

    for shard in shards:
        ddtree_marginals.draft_top_k(hidden, shard, k, Recorder())
    whole = torch.log_softmax(hidden @ weight.T, dim=-1)
    expected, ids = torch.topk(whole, k)
    results = []
    for shard in shards:
        group = Group(sent) if ranks > 1 else SimpleNamespace(world_size=1)
        results.append(ddtree_marginals.draft_top_k(hidden, shard, k, group))
    for logprobs, token_ids in results:
        assert torch.allclose(logprobs, expected, atol=1e-5)
        assert torch.equal(token_ids, ids)
        # Every rank builds the same tree.
        assert torch.equal(logprobs, results[0][0])


def test_only_scores_and_ids_of_k_tokens_are_sent():
    _, shards = heads(4000, 0, 2)
    widths = []

    class Recorder:
        world_size = 2

        def all_gather(self, mine, dim):
            widths.append(mine.shape[1])
            return torch.cat([mine, mine], dim=dim)

    ddtree_marginals.draft_top_k(torch.randn(7, 6), shards[0], 16, Recorder())
    assert widths == [2 * 16 + 1]


@pytest.mark.parametrize(("vocab", "k"), [(512, 16), (2500, 8), (3, 5)])
@pytest.mark.parametrize("ties", [False, True])
def test_the_kernel_ranks_as_torch_does(vocab, k, ties):
    torch.manual_seed(vocab)
    logits = torch.randn(3, vocab) * 3
    if ties:
        logits = logits.round()
    values, ids, logsumexp = ddtree_top_k.top_k(logits, k, 100)
    size = min(k, vocab)
    assert torch.equal(values[:, :size], torch.topk(logits, size).values)
    assert torch.allclose(logsumexp, torch.logsumexp(logits, 1, keepdim=True), atol=1e-5)
    assert torch.equal(logits.gather(1, ids[:, :size] - 100), values[:, :size])
    for row in range(3):
        # Of equal logits the lowest ids, in their order.
        order = sorted(range(vocab), key=lambda token, row=row: (-float(logits[row, token]), token))
        assert (ids[row, :size] - 100).tolist() == order[:size]
    assert values[:, size:].eq(float("-inf")).all()


def test_the_metrics_line(caplog):
    metrics = DDTreeMetrics(budget=4, block_size=8, interval=2, enabled=True)
    walked = SimpleNamespace(
        nodes=np.array([4, 4]), depth_sum=np.array([6, 10]), depth_max=np.array([2, 4])
    )
    with caplog.at_level(logging.INFO):
        metrics.record(walked, [1, 4])
        assert caplog.text == ""
        metrics.record(walked, [2, 3])
    assert caplog.messages == [
        "DDTREE metrics budget=4 steps=2 verifies=4 nodes=4.00 depth_mean=2.00 depth_max=4 "
        "accept_len_mean=2.50 accept_rate=0.21"
    ]
    assert metrics.steps == 0
