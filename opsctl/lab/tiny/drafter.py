"""Train the tiny DFlash drafter on the target's own hidden states.

DFlash: the drafter gets the target's hidden states of the text so far, projected, as further
keys and values, and one block: the last token, then mask tokens. It fills the whole block in
one pass. All masks are embedded alike, so that *which* token of the block one stands for is
told by the rotary positions alone. The lab wants exactly that dependence: SGLang 0.5.11 and
0.5.12 give this model the wrong rope theta (1e6, whatever its configuration says), and with
`ROPE_THETA` far from it the drafts are useless until that is patched.
"""

# mypy: disable-error-code="import-not-found, unused-ignore, no-any-return"
from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from .target import HIDDEN, LAYERS, SHAPE
from .text import END, MASK, Documents

ROPE_THETA = 50.0
WRONG_THETA = 1_000_000.0  # sglang/srt/models/dflash.py of 0.5.12.post1, line 93
BLOCK = 8  # the last token and seven drafted ones
DEPTH = 2
# The target's layers whose output the drafter sees: early ones, that know the text so far
# better than what follows it.
TARGET_LAYERS = (1, 3)
_HEADS, _KV_HEADS, _HEAD = 4, 2, 16
_INNER = 128
_BATCH, _LENGTH, _STEPS, _RATE = 48, 384, 550, 3e-3


def _new_weights() -> dict[str, nn.Parameter]:
    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape) * 0.05

    weights = {"fc.weight": normal(HIDDEN, len(TARGET_LAYERS) * HIDDEN)}
    for name in ("hidden_norm", "norm"):
        weights[f"{name}.weight"] = torch.ones(HIDDEN)
    for layer in range(DEPTH):
        prefix = f"layers.{layer}."
        weights |= {
            f"{prefix}input_layernorm.weight": torch.ones(HIDDEN),
            f"{prefix}post_attention_layernorm.weight": torch.ones(HIDDEN),
            f"{prefix}self_attn.q_proj.weight": normal(_HEADS * _HEAD, HIDDEN),
            f"{prefix}self_attn.k_proj.weight": normal(_KV_HEADS * _HEAD, HIDDEN),
            f"{prefix}self_attn.v_proj.weight": normal(_KV_HEADS * _HEAD, HIDDEN),
            f"{prefix}self_attn.o_proj.weight": normal(HIDDEN, _HEADS * _HEAD),
            f"{prefix}self_attn.q_norm.weight": torch.ones(_HEAD),
            f"{prefix}self_attn.k_norm.weight": torch.ones(_HEAD),
            f"{prefix}mlp.gate_proj.weight": normal(_INNER, HIDDEN),
            f"{prefix}mlp.up_proj.weight": normal(_INNER, HIDDEN),
            f"{prefix}mlp.down_proj.weight": normal(HIDDEN, _INNER),
        }
    return {name: nn.Parameter(value) for name, value in weights.items()}


def _rms(x: Tensor, gain: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + SHAPE["rms_norm_eps"]) * gain


def _rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotary positions in the neox layout; x is [batch, tokens, heads, size]."""
    frequencies = theta ** -(torch.arange(0, _HEAD, 2).float() / _HEAD)
    angles = positions[:, None].float() * frequencies
    cos, sin = (torch.cat([f(angles)] * 2, -1)[None, :, None] for f in (torch.cos, torch.sin))
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Drafter:
    """DFlashDraftModel as SGLang computes it, without its cache."""

    def __init__(self, embedding: Tensor, head: Tensor) -> None:
        self.weights = _new_weights()
        self._embedding, self._head = embedding, head

    def logits(self, context: Tensor, block: Tensor, theta: float) -> Tensor:
        """Draft after `context` [batch, tokens, features]; `block` [batch, BLOCK] ids."""
        w = self.weights
        past = context.shape[1]
        places = torch.arange(past + BLOCK)
        hidden_past = _rms(context @ w["fc.weight"].T, w["hidden_norm.weight"])
        hidden = self._embedding[block]
        for layer in range(DEPTH):
            prefix = f"layers.{layer}."
            x = _rms(hidden, w[f"{prefix}input_layernorm.weight"])
            seen = torch.cat([hidden_past, x], 1)
            hidden = hidden + self._attend(f"{prefix}self_attn.", x, seen, places, theta)
            x = _rms(hidden, w[f"{prefix}post_attention_layernorm.weight"])
            gate = functional.silu(x @ w[f"{prefix}mlp.gate_proj.weight"].T)
            inner = gate * (x @ w[f"{prefix}mlp.up_proj.weight"].T)
            hidden = hidden + inner @ w[f"{prefix}mlp.down_proj.weight"].T
        return _rms(hidden, w["norm.weight"]) @ self._head.T

    def _attend(self, prefix: str, x: Tensor, seen: Tensor, places: Tensor, theta: float) -> Tensor:
        w = self.weights
        batch, new = x.shape[:2]

        def heads(name: str, source: Tensor, count: int) -> Tensor:
            return (source @ w[f"{prefix}{name}.weight"].T).view(batch, -1, count, _HEAD)

        q = _rms(heads("q_proj", x, _HEADS), w[f"{prefix}q_norm.weight"])
        k = _rms(heads("k_proj", seen, _KV_HEADS), w[f"{prefix}k_norm.weight"])
        q, k = _rotate(q, places[-new:], theta), _rotate(k, places, theta)
        v = heads("v_proj", seen, _KV_HEADS)
        out = functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), enable_gqa=True
        )
        return out.transpose(1, 2).reshape(batch, new, -1) @ w[f"{prefix}o_proj.weight"].T


class _Samples:
    """Texts with the target's hidden states and its own greedy next tokens."""

    def __init__(self, target: Any, source: Documents, count: int) -> None:
        rows = [source.draw() for _ in range(count)]
        self.ids = torch.tensor([ids for ids, _ in rows])
        self.prompts = torch.tensor([prompt for _, prompt in rows])
        with torch.no_grad():
            parts = [target(ids, output_hidden_states=True) for ids in self.ids.split(16)]
        self.features = torch.cat(
            [torch.cat([part.hidden_states[i + 1] for i in TARGET_LAYERS], -1) for part in parts]
        )
        guesses = torch.cat([part.logits.argmax(-1) for part in parts])
        written = torch.arange(1, _LENGTH)[None] >= self.prompts[:, None]
        self.agreement = (guesses[:, :-1] == self.ids[:, 1:])[written].float().mean().item()

    def block(self, rows: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
        """Features before `start`, the masked block there, and the tokens behind its masks.

        Tokens of the prompt, which nobody drafts, are -100.
        """
        block = self.ids[rows, start : start + BLOCK].clone()
        wanted = block[:, 1:].clone()
        wanted[torch.arange(start + 1, start + BLOCK)[None] < self.prompts[rows, None]] = -100
        block[:, 1:] = MASK
        return self.features[rows, :start], block, wanted


def accept_length(drafter: Drafter, samples: _Samples, theta: float) -> float:
    """Tokens per verify step over whole texts: what was drafted right, and the bonus token."""
    accepted = []
    rows = torch.arange(len(samples.ids))
    with torch.no_grad():
        for start in range(24, _LENGTH - BLOCK, 5):
            context, block, wanted = samples.block(rows, start)
            guess = drafter.logits(context, block, theta)[:, 1:].argmax(-1)
            in_text = samples.prompts <= start
            accepted.append((guess == wanted).int().cumprod(1).sum(1)[in_text])
    return 1 + torch.cat(accepted).float().mean().item()


def train(
    target: Any, documents: Callable[[int, int], Documents], say: Callable[[str], None]
) -> Drafter:
    """The trained drafter. `documents(length, seed)` is a stream of texts."""
    samples = _Samples(target, documents(_LENGTH, 2), 192)
    say(f"drafter: the target agrees with its corpus on {samples.agreement:.2%} of tokens")
    drafter = Drafter(target.model.embed_tokens.weight.data, target.lm_head.weight.data)
    optimizer = torch.optim.AdamW(drafter.weights.values(), lr=_RATE, weight_decay=0.0)
    for step in range(1, _STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = _RATE * 0.5 * (1 + math.cos(math.pi * step / _STEPS)) + 1e-5
        start = int(torch.randint(16, _LENGTH - BLOCK, ()))
        context, block, wanted = samples.block(torch.randperm(len(samples.ids))[:_BATCH], start)
        logits = drafter.logits(context, block, ROPE_THETA)[:, 1:]
        loss = functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), wanted.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 250 == 0:
            say(f"drafter: step {step} of {_STEPS}, loss {loss.item():.3f}")
    unseen = _Samples(target, documents(_LENGTH, 3), 64)
    right, wrong = (accept_length(drafter, unseen, theta) for theta in (ROPE_THETA, WRONG_THETA))
    say(f"drafter: accept length {right:.2f}, and {wrong:.2f} with the wrong theta")
    return drafter


def save(drafter: Drafter, folder: Path) -> None:
    """Write weights and configuration as published DFlash drafters have them."""
    weights = {name: value.data.contiguous() for name, value in drafter.weights.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    config = {
        **SHAPE,
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": DEPTH,
        "num_target_layers": LAYERS,
        "rope_theta": ROPE_THETA,
        "block_size": BLOCK,
        "dflash_config": {"target_layer_ids": list(TARGET_LAYERS), "mask_token_id": MASK},
        "eos_token_id": END,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
