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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from .target import LAYERS, SHAPE
from .text import END, MASK, Documents

ROPE_THETA = 50.0
WRONG_THETA = 1_000_000.0  # sglang/srt/models/dflash.py of 0.5.12.post1, line 93
BLOCK = 8  # the last token and seven drafted ones


@dataclass(frozen=True, slots=True)
class Plan:
    """What a drafter is like, and how it learns."""

    shape: dict[str, Any]  # sizes of its config.json; the hidden size is its target's
    target_depth: int
    target_layers: tuple[int, ...]  # whose output the drafter sees
    depth: int = 2
    theta: float = ROPE_THETA
    batch: int = 48
    length: int = 384
    steps: int = 550
    rate: float = 3e-3


# Early layers know the text so far better than what follows it.
TINY = Plan(SHAPE, target_depth=LAYERS, target_layers=(1, 3))


def _new_weights(plan: Plan) -> dict[str, nn.Parameter]:
    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape) * 0.05

    hidden, inner = plan.shape["hidden_size"], plan.shape["intermediate_size"]
    head = plan.shape["head_dim"]
    queries = plan.shape["num_attention_heads"] * head
    keys = plan.shape["num_key_value_heads"] * head
    weights = {"fc.weight": normal(hidden, len(plan.target_layers) * hidden)}
    for name in ("hidden_norm", "norm"):
        weights[f"{name}.weight"] = torch.ones(hidden)
    for layer in range(plan.depth):
        prefix = f"layers.{layer}."
        weights |= {
            f"{prefix}input_layernorm.weight": torch.ones(hidden),
            f"{prefix}post_attention_layernorm.weight": torch.ones(hidden),
            f"{prefix}self_attn.q_proj.weight": normal(queries, hidden),
            f"{prefix}self_attn.k_proj.weight": normal(keys, hidden),
            f"{prefix}self_attn.v_proj.weight": normal(keys, hidden),
            f"{prefix}self_attn.o_proj.weight": normal(hidden, queries),
            f"{prefix}self_attn.q_norm.weight": torch.ones(head),
            f"{prefix}self_attn.k_norm.weight": torch.ones(head),
            f"{prefix}mlp.gate_proj.weight": normal(inner, hidden),
            f"{prefix}mlp.up_proj.weight": normal(inner, hidden),
            f"{prefix}mlp.down_proj.weight": normal(hidden, inner),
        }
    return {name: nn.Parameter(value) for name, value in weights.items()}


def _rms(x: Tensor, gain: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + SHAPE["rms_norm_eps"]) * gain


def _rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotary positions in the neox layout; x is [batch, tokens, heads, size]."""
    size = x.shape[-1]
    frequencies = theta ** -(torch.arange(0, size, 2).float() / size)
    angles = positions[:, None].float() * frequencies
    cos, sin = (torch.cat([f(angles)] * 2, -1)[None, :, None] for f in (torch.cos, torch.sin))
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Drafter:
    """DFlashDraftModel as SGLang computes it, without its cache."""

    def __init__(self, plan: Plan, embedding: Tensor, head: Tensor) -> None:
        self.plan = plan
        self.weights = _new_weights(plan)
        self._embedding, self._head = embedding, head

    def logits(self, context: Tensor, block: Tensor, theta: float) -> Tensor:
        """Draft after `context` [batch, tokens, features]; `block` [batch, BLOCK] ids."""
        w = self.weights
        past = context.shape[1]
        places = torch.arange(past + BLOCK)
        hidden_past = _rms(context @ w["fc.weight"].T, w["hidden_norm.weight"])
        hidden = self._embedding[block]
        for layer in range(self.plan.depth):
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
        w, shape = self.weights, self.plan.shape
        batch, new = x.shape[:2]
        queries, keys = shape["num_attention_heads"], shape["num_key_value_heads"]

        def heads(name: str, source: Tensor, count: int) -> Tensor:
            projected = source @ w[f"{prefix}{name}.weight"].T
            return projected.view(batch, -1, count, shape["head_dim"])

        q = _rms(heads("q_proj", x, queries), w[f"{prefix}q_norm.weight"])
        k = _rms(heads("k_proj", seen, keys), w[f"{prefix}k_norm.weight"])
        q, k = _rotate(q, places[-new:], theta), _rotate(k, places, theta)
        v = heads("v_proj", seen, keys)
        out = functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), enable_gqa=True
        )
        return out.transpose(1, 2).reshape(batch, new, -1) @ w[f"{prefix}o_proj.weight"].T


class _Samples:
    """Texts with the target's hidden states and its own greedy next tokens."""

    def __init__(self, plan: Plan, target: Any, source: Documents, count: int) -> None:
        rows = [source.draw() for _ in range(count)]
        self.ids = torch.tensor([ids for ids, _ in rows])
        self.prompts = torch.tensor([prompt for _, prompt in rows])
        with torch.no_grad():
            parts = [target(ids, output_hidden_states=True) for ids in self.ids.split(16)]
        seen = plan.target_layers
        self.features = torch.cat(
            [torch.cat([part.hidden_states[i + 1] for i in seen], -1) for part in parts]
        )
        guesses = torch.cat([part.logits.argmax(-1) for part in parts])
        written = torch.arange(1, plan.length)[None] >= self.prompts[:, None]
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
        for start in range(24, drafter.plan.length - BLOCK, 5):
            context, block, wanted = samples.block(rows, start)
            guess = drafter.logits(context, block, theta)[:, 1:].argmax(-1)
            in_text = samples.prompts <= start
            accepted.append((guess == wanted).int().cumprod(1).sum(1)[in_text])
    return 1 + torch.cat(accepted).float().mean().item()


def train(
    target: Any,
    documents: Callable[[int, int], Documents],
    say: Callable[[str], None],
    plan: Plan = TINY,
) -> Drafter:
    """The trained drafter. `documents(length, seed)` is a stream of texts."""
    samples = _Samples(plan, target, documents(plan.length, 2), 192)
    say(f"drafter: the target agrees with its corpus on {samples.agreement:.2%} of tokens")
    drafter = Drafter(plan, target.model.embed_tokens.weight.data, target.lm_head.weight.data)
    optimizer = torch.optim.AdamW(drafter.weights.values(), lr=plan.rate, weight_decay=0.0)
    for step in range(1, plan.steps + 1):
        cosine = math.cos(math.pi * step / plan.steps)
        for group in optimizer.param_groups:
            group["lr"] = plan.rate * 0.5 * (1 + cosine) + 1e-5
        start = int(torch.randint(16, plan.length - BLOCK, ()))
        rows = torch.randperm(len(samples.ids))[: plan.batch]
        context, block, wanted = samples.block(rows, start)
        logits = drafter.logits(context, block, plan.theta)[:, 1:]
        loss = functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), wanted.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 250 == 0:
            say(f"drafter: step {step} of {plan.steps}, loss {loss.item():.3f}")
    unseen = _Samples(plan, target, documents(plan.length, 3), 64)
    right, wrong = (accept_length(drafter, unseen, theta) for theta in (plan.theta, WRONG_THETA))
    say(f"drafter: accept length {right:.2f}, and {wrong:.2f} with the wrong theta")
    return drafter


def save(drafter: Drafter, folder: Path) -> None:
    """Write weights and configuration as published DFlash drafters have them."""
    weights = {name: value.data.contiguous() for name, value in drafter.weights.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    plan = drafter.plan
    config = {
        **plan.shape,
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": plan.depth,
        "num_target_layers": plan.target_depth,
        "rope_theta": plan.theta,
        "block_size": BLOCK,
        "dflash_config": {"target_layer_ids": list(plan.target_layers), "mask_token_id": MASK},
        "eos_token_id": END,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
