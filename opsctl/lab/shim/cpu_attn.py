"""SGLang plugin: the attention backend "triton", and what it leans on, in plain torch.

SGLang finds it through its own entry point group ``sglang.srt.plugins``. SGLang's torch_native
backend knows prefill and decode but not TARGET_VERIFY, the forward pass in which speculative
decoding checks a draft. This adds it with the Triton backend's meaning of
``spec_info.custom_mask``: per request a flattened [draft, prefix + draft] array, true where
the pair may attend. It also holds the fault switch of the lab: while the file named by
CPU_ATTN_FAULT_FILE exists, that forward pass raises the file's text.
"""

# mypy: disable-error-code="import-not-found, unused-ignore, no-any-return"
from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cpu_graphs
import torch
from torch.nn.functional import scaled_dot_product_attention


def _raise_fault() -> None:
    """Raise what the fault file says, on its own: the journal should read as a real crash."""
    path = os.environ.get("CPU_ATTN_FAULT_FILE")
    if path and Path(path).exists():
        raise RuntimeError(Path(path).read_text(encoding="utf-8").strip())


def _visible(spec: Any, offset: int, draft: int, total: int, causal: bool) -> torch.Tensor | None:
    """Which of `total` positions each of `draft` new ones may see; None for all of them."""
    mask = getattr(spec, "custom_mask", None)
    if mask is not None:
        return mask[offset : offset + draft * total].view(draft, total).bool()
    if not causal:
        return None
    last_seen = total - draft + torch.arange(draft)[:, None]
    return torch.arange(total)[None, :] <= last_seen


def _attend_afresh(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: Any, lengths: list[int]
) -> torch.Tensor:
    """Causal attention within each request's new tokens: how MLA prefills without a prefix.

    The pool holds its latents only (sglang/srt/models/deepseek_common/attention_forward_methods/
    forward_mha.py); the keys [tokens, heads, size] and values of this pass come beside them.
    """
    heads = layer.tp_q_head_num
    parts = zip(*(x.view(x.shape[0], heads, -1).split(lengths) for x in (q, k, v)), strict=True)
    attended = [
        scaled_dot_product_attention(
            *(x.transpose(0, 1)[None] for x in part), is_causal=True, scale=layer.scaling
        )[0].transpose(0, 1)
        for part in parts
    ]
    return torch.cat(attended).reshape(q.shape[0], heads * layer.v_head_dim)


def backend_class() -> type:
    """The backend, made late: its base imports most of SGLang."""
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
    from sglang.srt.layers.radix_attention import AttentionType

    class CpuVerifyAttnBackend(cpu_graphs.StaticMask, TorchNativeAttnBackend):  # type: ignore[misc, unused-ignore]
        def __init__(self, model_runner: Any) -> None:
            super().__init__(model_runner)
            self.req_to_token = model_runner.req_to_token_pool.req_to_token
            self.kv_pool = model_runner.token_to_kv_pool
            self.max_context_len = model_runner.model_config.context_len

        def forward_extend(  # noqa: PLR0917 - SGLang's signature
            self,
            q: torch.Tensor,
            k: torch.Tensor,
            v: torch.Tensor,
            layer: Any,
            forward_batch: Any,
            save_kv_cache: bool = True,
            **kwargs: Any,
        ) -> torch.Tensor:
            encoder_only = layer.attn_type == AttentionType.ENCODER_ONLY
            if not forward_batch.forward_mode.is_target_verify():
                if encoder_only:
                    raise NotImplementedError("prefill without a causal mask")
                if not save_kv_cache:
                    return _attend_afresh(q, k, v, layer, forward_batch.extend_seq_lens_cpu)
                return super().forward_extend(q, k, v, layer, forward_batch, save_kv_cache)
            _raise_fault()
            pool = getattr(forward_batch, "token_to_kv_pool", None) or self.kv_pool
            if save_kv_cache:
                pool.set_kv_buffer(layer, forward_batch.out_cache_loc, k, v)
            keys, values = pool.get_kv_buffer(layer.layer_id)
            spec, offset = forward_batch.spec_info, 0
            draft, batch = int(spec.draft_token_num), forward_batch.batch_size
            heads = layer.tp_q_head_num
            queries = q.view(batch, draft, heads, layer.qk_head_dim)
            out = q.new_empty(batch, draft, heads, layer.v_head_dim)
            for i, prefix in enumerate(forward_batch.seq_lens.tolist()):
                total = prefix + draft
                rows = self.req_to_token[forward_batch.req_pool_indices[i], :total].long()
                attended = scaled_dot_product_attention(
                    queries[i].transpose(0, 1)[None],
                    keys[rows].transpose(0, 1)[None].to(q.dtype),
                    values[rows].transpose(0, 1)[None].to(q.dtype),
                    attn_mask=_visible(spec, offset, draft, total, not encoder_only),
                    scale=layer.scaling,
                    enable_gqa=heads != layer.tp_k_head_num,
                )
                offset += draft * total
                out[i] = attended[0].transpose(0, 1)
            return out.view(batch * draft, heads * layer.v_head_dim)

    return CpuVerifyAttnBackend


def _keep_dtype(model: Any) -> None:
    """ModelRunner hands a draft model ``input_embeds.bfloat16()``, whatever --dtype says."""
    dtype, forward = model.fc.weight.dtype, model.forward

    @functools.wraps(forward)  # SGLang looks for input_embeds in its signature
    def forward_in_dtype(*args: Any, **kwargs: Any) -> Any:
        kwargs["input_embeds"] = kwargs["input_embeds"].to(dtype)
        return forward(*args, **kwargs)

    model.forward = forward_in_dtype


def _make_backend(runner: Any) -> Any:
    if type(runner.model).__name__ == "DFlashDraftModel":
        _keep_dtype(runner.model)
    return backend_class()(runner)


class _AssignReqToTokenPool:
    """``assign_req_to_token_pool[grid](...)`` in torch: tiny, but slow when interpreted."""

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return self._launch

    @staticmethod
    def _launch(
        requests: torch.Tensor,
        req_to_token: torch.Tensor,
        starts: torch.Tensor,
        ends: torch.Tensor,
        out_cache_loc: torch.Tensor,
        *_: object,
    ) -> None:
        done = 0
        spans = zip(requests.tolist(), starts.tolist(), ends.tolist(), strict=True)
        for request, start, end in spans:
            moved = out_cache_loc[done : done + end - start]
            req_to_token[request, start:end] = moved.to(req_to_token.dtype)
            done += end - start


def register() -> None:
    """The entry point, called by SGLang in each of its processes before it reads arguments."""
    from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
    from sglang.srt.layers.rotary_embedding import factory
    from sglang.srt.speculative import spec_utils

    # SGLang's CPU variant, which only MLA models ask for, knows scaled positions alone.
    factory.get_rope_cpu = lambda *arguments: factory.get_rope(*arguments[:-1])
    spec_utils.assign_req_to_token_pool = _AssignReqToTokenPool()
    ATTENTION_BACKENDS["triton"] = _make_backend
    if cpu_graphs.enabled():
        cpu_graphs.register()
