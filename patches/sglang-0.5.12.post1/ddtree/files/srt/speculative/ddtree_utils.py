"""What DDTREE needs to know before any tensor exists: widths, limits and refusals.

DDTREE is tree verification of a DFLASH drafter's block. One pass of the drafter gives a
distribution for each of the block's positions; instead of the one chain of their most
probable tokens, the target verifies a tree of the ``budget`` most probable prefixes
(arXiv 2604.12989). So two widths exist side by side, both in tokens per request and step:

- the *block size*, ``speculative_num_draft_tokens``: what the draft model runs;
- the *verify width*, ``budget + 1``: what the target model runs, the root being the last
  token of the request, whose KV is not computed yet.

Imported by the server's arguments and the scheduler, so nothing here imports torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from sglang.srt.server_args import ServerArgs

DDTREE = "DDTREE"

# Good at low concurrency on any target; tune it by measurement. See docs of the patch set.
DEFAULT_BUDGET = 16

# The tree builder packs the parent and the rank of a node in 10 bits each.
MAX_BUDGET = 1023

# Only this target backend gives the verify mask to its kernels, for MHA and for MLA.
MASK_BACKENDS = ("triton",)


def verify_width(server_args: ServerArgs, is_draft_worker: bool = False) -> Optional[int]:
    """Tokens per request and step in TARGET_VERIFY mode; None without speculative decoding.

    The draft worker runs its block in TARGET_VERIFY mode too, so it asks for itself.
    """
    if server_args.speculative_algorithm == DDTREE and not is_draft_worker:
        return int(server_args.speculative_ddtree_budget) + 1
    return server_args.speculative_num_draft_tokens


def reserved_width(server_args: ServerArgs) -> Optional[int]:
    """KV slots per request that a step holds at once; None without speculative decoding.

    The draft takes a block and gives it back before the tree takes its own, so it is the
    larger of the two: a small budget does not make the block any smaller.
    """
    width = verify_width(server_args)
    if server_args.speculative_algorithm == DDTREE:
        return max(width, int(server_args.speculative_num_draft_tokens))
    return width


def resolve_ddtree_server_args(args: ServerArgs) -> None:
    """Fill in DDTREE's defaults and refuse, before anything is loaded, what cannot be right.

    Called after the DFLASH part of the same arguments: block size, attention backend and
    page size are known.
    """
    if args.speculative_algorithm != DDTREE:
        _refuse_stray_options(args)
        return
    if args.speculative_ddtree_budget is None:
        args.speculative_ddtree_budget = DEFAULT_BUDGET
    _check_numbers(args)
    _check_backends(args)
    _check_modes(args)
    _check_model(args)


def _refuse_stray_options(args: ServerArgs) -> None:
    given = [
        option
        for option, value in (
            ("--speculative-ddtree-budget", args.speculative_ddtree_budget),
            ("--speculative-ddtree-topk", args.speculative_ddtree_topk),
            ("--speculative-ddtree-chain-seed", args.speculative_ddtree_chain_seed or None),
        )
        if value is not None
    ]
    if given:
        raise ValueError(
            f"{given[0]} needs --speculative-algorithm DDTREE, "
            f"got {args.speculative_algorithm}."
        )


def _check_numbers(args: ServerArgs) -> None:
    budget, topk = args.speculative_ddtree_budget, args.speculative_ddtree_topk
    if not 1 <= budget <= MAX_BUDGET:
        raise ValueError(
            f"--speculative-ddtree-budget must be in [1, {MAX_BUDGET}], got {budget}."
        )
    if topk is not None and topk < 1:
        raise ValueError(f"--speculative-ddtree-topk must be at least 1, got {topk}.")
    if args.speculative_num_draft_tokens < 2:
        raise ValueError(
            "DDTREE drafts the positions after the first of a block, so the block size "
            "(--speculative-num-draft-tokens) must be at least 2, "
            f"got {args.speculative_num_draft_tokens}."
        )
    relaxed = {
        args.speculative_accept_threshold_single,
        args.speculative_accept_threshold_acc,
    } - {1.0}
    if relaxed:
        raise ValueError(
            "DDTREE keeps the target's distribution exactly and has no relaxed acceptance: "
            "leave --speculative-accept-threshold-single and -acc at 1.0."
        )


def _check_backends(args: ServerArgs) -> None:
    for phase, backend in zip(
        ("prefill", "decode"), args.get_attention_backends(), strict=True
    ):
        if backend not in MASK_BACKENDS:
            raise ValueError(
                "DDTREE needs a target attention backend that applies tree masks, "
                f"{' or '.join(MASK_BACKENDS)}; the {phase} backend is {backend}. "
                "Set --attention-backend triton."
            )
    if args.page_size not in (None, 1):
        raise ValueError(
            "DDTREE keeps the KV of an accepted path by remapping single slots: "
            f"--page-size must be 1, got {args.page_size}."
        )


def _check_modes(args: ServerArgs) -> None:
    refused = (
        (args.enable_dp_attention, "DP attention (--enable-dp-attention)"),
        (args.pp_size != 1, "pipeline parallelism (--pp-size)"),
        (not args.disable_overlap_schedule, "the overlap scheduler"),
        (args.disaggregation_mode != "null", "PD disaggregation (--disaggregation-mode)"),
        (args.enable_two_batch_overlap, "two-batch overlap (--enable-two-batch-overlap)"),
        (args.enable_pdmux, "PD multiplexing (--enable-pdmux)"),
        (
            args.enable_deterministic_inference,
            "deterministic inference (--enable-deterministic-inference), "
            "whose attention kernel was not proved with tree masks",
        ),
    )
    for refuse, what in refused:
        if refuse:
            raise ValueError(f"DDTREE does not support {what}.")


def _check_model(args: ServerArgs) -> None:
    why = unsupported_model(args.get_model_config())
    if why:
        raise ValueError(f"DDTREE does not support {why}.")


def unsupported_model(model_config: Any) -> Optional[str]:
    """Why a tree cannot be verified with this target, or None.

    A recurrent state has no branches, and a sliding window over a tree would have to count
    depths where the kernels count rows.
    """
    hf_config = model_config.hf_config
    text_config = hf_config.get_text_config()
    architecture = (getattr(hf_config, "architectures", None) or ["?"])[0]
    if getattr(model_config, "is_encoder_decoder", False):
        return f"encoder-decoder models ({architecture})"
    recurrent = {"mamba", "mamba2", "linear_attention", "recurrent", "conv", "gdn"}
    layer_types = {str(kind) for kind in getattr(text_config, "layer_types", None) or ()}
    layer_types |= {
        str(kind) for kind in getattr(text_config, "layers_block_type", None) or ()
    }
    if layer_types & recurrent or any(
        getattr(text_config, field, None)
        for field in ("linear_attn_config", "hybrid_override_pattern", "mamba_d_state")
    ):
        return f"models with recurrent layers ({architecture})"
    if (
        getattr(model_config, "is_hybrid_swa", False)
        or getattr(model_config, "is_local_attention_model", False)
        or "sliding_attention" in layer_types
        or _has_window(model_config, text_config)
    ):
        return f"models with sliding-window or chunked attention ({architecture})"
    return None


def _has_window(model_config: Any, text_config: Any) -> bool:
    """Whether a sliding window is in use: some configs name one that is switched off."""
    if not getattr(model_config, "sliding_window_size", None):
        return False
    return getattr(text_config, "use_sliding_window", True) is not False


def refuse_ddtree_request(req: Any) -> Optional[str]:
    """Why this request cannot be served losslessly by a tree, or None.

    Temperature, top-k, top-p, min-p and logit bias are exact. What depends on the tokens
    before a node inside the tree is not computed per node, so it is refused, not ignored.
    """
    params = req.sampling_params
    unsupported = (
        (params.frequency_penalty != 0.0, "frequency_penalty"),
        (params.presence_penalty != 0.0, "presence_penalty"),
        (params.repetition_penalty != 1.0, "repetition_penalty"),
        (params.min_new_tokens > 0, "min_new_tokens"),
        (req.custom_logit_processor is not None, "custom_logit_processor"),
        (req.return_hidden_states, "return_hidden_states"),
    )
    for is_set, name in unsupported:
        if is_set:
            return f"DDTREE speculative decoding does not support {name}."
    return None
